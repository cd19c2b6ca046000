// Checkpoints in folders that all machines share ("file:"): what is not needed there any more is removed. (Blobs of the
// coordinator's own store are removed by service/blob_collector.h.)
#pragma once

#include "service/log/job.h"
#include "service/state/context.h"

namespace xlad::service {

// Removes what the job has in its folder beside its committed checkpoints and those that other jobs continue from:
// shards of checkpoints that were never committed, and checkpoints that it dropped while another job needed them. While
// the job runs, folders of its current attempt that may still become checkpoints stay.
void TidyFolder(Context& context, const Job& job);

// For a job that has ended: removes the checkpoint that it was submitted to continue from, if its owner has dropped it
// and no other job needs it.
void DropResumed(Context& context, const Job& job);

}  // namespace xlad::service
