// Stores the indices of checkpoints.
#pragma once

#include "base/file_system.h"
#include "service/blobs/blob_store.h"
#include "service/log/job.h"
#include "service/state/effects.h"

namespace xlad::service {

// Stores the index as a blob and, if the shards are files, also in the folder of the shards. DataLoss if a shard that
// is a blob is missing. If the blob cannot be written and the job keeps its checkpoints in the coordinator's store, the
// error has the code of the failed write, but Unavailable instead of DataLoss. If the job has named another place, the
// error is always Unavailable, because it says nothing about that place. Errors of the folder of the shards are
// returned unchanged.
absl::StatusOr<Checkpoint> WriteIndex(FileSystem& files, const StoreIndex& request, BlobStore* blobs);

}  // namespace xlad::service
