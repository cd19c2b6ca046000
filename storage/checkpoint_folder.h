// Checkpoints in folders: which exist, and their beginning and end.
//
//   ROOT/JOB/step-000000000100-attempt-1/shard-0.safetensors, shard-1.safetensors, ..., index.json
//
// The index is written last and removed first: a folder without it is not a checkpoint, whatever else it has.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "proto/checkpoint.pb.h"

namespace xlad::storage {

// Writes the index into the folder of its shards, whose uris are names in it. Returns when it is on disk.
absl::Status WriteIndexFile(FileSystem& files, const std::string& folder, const v1::CheckpointIndex& index);

// Removes the checkpoint, or what was written of one. OK if it is not there.
absl::Status RemoveCheckpointFolder(FileSystem& files, const std::string& folder);

struct FoundCheckpoint {
  std::string folder;
  absl::StatusOr<v1::CheckpointIndex> index;  // Or why it cannot be read.
};
// The checkpoints at a path: the folder of one checkpoint, of a job, or a root. Sorted by folder, so that those of one
// job are in the order of their steps. NotFound if the path is not a folder.
absl::StatusOr<std::vector<FoundCheckpoint>> ListCheckpoints(FileSystem& files, const std::string& path);

// The folders of a job that belong to a step before `step` or to an attempt before `attempt`, except for some: what was
// never committed, and what is not needed any more.
struct Others {
  int64_t step = INT64_MAX;
  int64_t attempt = INT64_MAX;
  std::set<std::string> keep;  // Names of folders.
};
// Removes these folders of a job (ROOT/JOB). OK if it has none.
absl::Status RemoveOthers(FileSystem& files, const std::string& job_folder, const Others& others);

}  // namespace xlad::storage
