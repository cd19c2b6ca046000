// Stores the indices of checkpoints.
#pragma once

#include "base/file_system.h"
#include "service/blob_store.h"
#include "service/log/job.h"
#include "service/state/effects.h"

namespace xlad::service {

// Stores the index as a blob and, if the shards are files, also in the folder of the shards. DataLoss if a shard that
// is a blob is missing. If the blob cannot be written, an error for shards in the coordinator's store keeps its code,
// unless it is DataLoss. All other such errors become Unavailable, because they say nothing about the place that the
// job has named. Errors of the folder of the shards are returned unchanged.
absl::StatusOr<Checkpoint> WriteIndex(FileSystem& files, const StoreIndex& request, BlobStore* blobs);

}  // namespace xlad::service
