// Stores the indices of checkpoints.
#pragma once

#include "base/file_system.h"
#include "service/blob_store.h"
#include "service/log/job.h"
#include "service/state/effects.h"

namespace xlad::service {

// Stores the index as a blob and, if the shards are files, also in the folder of the shards. DataLoss if a shard that
// is a blob is missing. Unavailable if the blob cannot be written: the folder of the blobs is the coordinator's, and
// errors there say nothing about the place that the job has named. Other errors are those of the folder of the shards.
absl::StatusOr<Checkpoint> WriteIndex(FileSystem& files, const StoreIndex& request, BlobStore* blobs);

}  // namespace xlad::service
