// Checkpoints in folders: which are there, and their beginning and end.
//
//   ROOT/JOB/step-000000000100-attempt-1/shard-0.safetensors, shard-1.safetensors, ..., index.json
//
// The index is written last and removed first: a folder without it is not a checkpoint, whatever else it has.
#pragma once

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

// Removes the folders of a job (ROOT/JOB) that have no index and belong to a step before `step` or to an attempt before
// `attempt`: their writers continued without them or were replaced.
absl::Status RemoveUnfinished(FileSystem& files, const std::string& job_folder, int64_t step, int64_t attempt);

}  // namespace xlad::storage
