// Checkpoints in folders: lists, commits and removes them.
//
//   ROOT/JOB/step-000000000100-attempt-1/shard-0.safetensors, shard-1.safetensors, ..., index.json
//
// The index is written last and removed first: a folder without an index is not a checkpoint.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "proto/checkpoint.pb.h"

namespace xlad::storage {

// Writes the index into the folder of its shards. The uris of the shards are names in this folder. Returns when the
// index is on disk.
absl::Status WriteIndexFile(FileSystem& files, const std::string& folder, const v1::CheckpointIndex& index);

// Whether the folder has an index. It has none if its checkpoint has been removed, or has never been committed.
bool IsCheckpoint(FileSystem& files, const std::string& folder);

// Removes the checkpoint, even if it is incomplete. OK if it does not exist. If some files cannot be removed, removes
// all others, and returns the first error; if that file is the index, removes nothing.
absl::Status RemoveCheckpointFolder(FileSystem& files, const std::string& folder);

// How often a reader of a running job's checkpoints begins again because the job has replaced all that it was reading.
inline constexpr int kMaxCheckpointPasses = 10;

// The error, Aborted, of a reader that has begun again so often. `place` is the job or its folder.
absl::Status ReplacedTooFast(const std::string& place);

struct FoundCheckpoint {
  std::string folder;
  absl::StatusOr<v1::CheckpointIndex> index;  // The index, or the reason why it cannot be read.
};
// Lists the checkpoints at a path: the folder of one checkpoint, the folder of a job, or a root. They are sorted by
// folder, so the checkpoints of one job are in the order of their steps. Checkpoints that a running job removes
// meanwhile are left out. NotFound if the path is not a folder. If a running job replaces its checkpoints faster than
// they can be read, the result is Aborted for the folder of the job. For a root, the result then has one entry for this
// job, with the job's folder and this error.
absl::StatusOr<std::vector<FoundCheckpoint>> ListCheckpoints(FileSystem& files, const std::string& path);

// Selects the folders of a job to remove: those of a step before `step` or of an attempt before `attempt`, except those
// in `keep`. They are checkpoints that are no longer needed, or shards of checkpoints that were never committed.
struct ObsoleteFolders {
  int64_t step = INT64_MAX;
  int64_t attempt = INT64_MAX;
  std::set<std::string> keep;  // Names of folders.
};
// Removes the selected folders of a job (ROOT/JOB). OK if there are none. If some folders cannot be removed, removes
// all others, and returns the first error.
absl::Status RemoveObsoleteFolders(FileSystem& files, const std::string& job_folder, const ObsoleteFolders& obsolete);

}  // namespace xlad::storage
