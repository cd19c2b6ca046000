// Batches that clients send to the jobs that need them (storage/batch_spool.h).
#include "service/engine.h"
#include "storage/job_uris.h"

namespace xlad::service {

absl::StatusOr<PutBatchResponse> Engine::NextBatch(const std::string& job_id) {
  bool ended = false;
  XLAD_ASSIGN_OR_RETURN(const int64_t first, Ask<int64_t>([&](CoordinatorCore& coordinator) -> absl::StatusOr<int64_t> {
                          const Job* job = coordinator.context().jobs.Find(JobId(job_id));
                          if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", job_id));
                          if (job->spec.data_uri() != storage::kStreamUri) {
                            return absl::FailedPreconditionError(absl::StrCat(
                                "found a batch for job ", job_id, ", whose data is not a stream (data_uri \"",
                                job->spec.data_uri(), "\"), expected \"", storage::kStreamUri, "\""));
                          }
                          ended = HasEnded(*job);
                          return StartOf(*job).step;
                        }));
  PutBatchResponse response;
  response.set_ended(ended);
  if (ended) return response;
  XLAD_RETURN_IF_ERROR(spool_->Keep(job_id, first));
  XLAD_ASSIGN_OR_RETURN(const int64_t next, spool_->Next(job_id));
  response.set_next(next);
  RemoveBatchesIfEnded(job_id);  // The job may have ended before Keep made its folder.
  return response;
}

void Engine::RemoveBatchesIfEnded(const std::string& job_id) {
  const absl::StatusOr<JobStatus> job = GetJob(job_id);
  if (absl::IsNotFound(job.status()) || (job.ok() && HasEnded(job->state()))) spool_->Remove(job_id);
}

}  // namespace xlad::service
