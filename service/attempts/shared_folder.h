// Removes checkpoints that are no longer needed from folders that all machines share ("file:"). Blobs of the
// coordinator's own store are removed by service/blobs/blob_collector.h.
#pragma once

#include "service/log/job.h"
#include "service/state/context.h"

namespace xlad::service {

// Removes everything in the job's folder except its committed checkpoints and those that other jobs continue from. The
// removed files are shards of checkpoints that were never committed, and checkpoints that the job dropped while another
// job needed them. While the job runs, folders of its current attempt stay if they may still become checkpoints.
void RemoveOldFiles(Context& context, const Job& job);

// The same for what was written after the job with this id had ended. Does nothing if the job has not ended.
void RemoveFilesIfEnded(Context& context, const JobId& id);

// Called for a job that has ended. Removes the checkpoint from which the job continued, if the job that wrote the
// checkpoint has dropped it and no other job needs it.
void DropResumed(Context& context, const Job& job);

}  // namespace xlad::service
