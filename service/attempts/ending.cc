#include "service/attempts/ending.h"

#include <algorithm>

#include "service/attempts/damaged_checkpoint.h"
#include "service/attempts/shared_folder.h"
#include "service/state/messages.h"

namespace xlad::service {
namespace {

// Returns why the job ends with this attempt, or an empty text if the job continues.
std::string WhyNoRetry(const Job& job, const AttemptEnding& ending) {
  if (job.spec.session()) return ending.reason;
  const int64_t limit = job.spec.max_attempts();
  if (limit > 0 && job.failures >= limit) {
    return limit == 1 ? ending.reason
                      : absl::StrCat(ending.reason, " (", job.failures,
                                     " attempts in a row failed without a new checkpoint, --attempts ", limit, ")");
  }
  if (job.program_error_repeated) {
    return absl::StrCat(ending.reason, " (the attempt before failed with the same error at the same step)");
  }
  return "";
}

// Records the end of the running attempt and sends `message` to its workers.
void EndAttempt(Context& context, Job* job, const AttemptEnded& ended, const CoordinatorMessage& message) {
  JobEvent event = context.NewEvent(job->id);
  *event.mutable_attempt_ended() = ended;
  event.mutable_attempt_ended()->set_attempt(job->attempt);
  context.Record(std::move(event));
  context.SendToAll(*job, message);
  context.RemoveAttempt(*job);
  context.Changed(job->id);
}

// Returns the sum of the reports of all workers of an attempt.
RunReport SumOf(const std::map<std::string, RunReport>& reports) {
  RunReport sum;
  for (const auto& [worker, report] : reports) {
    for (const auto& [kind, launches] : report.launches()) (*sum.mutable_launches())[kind] += launches;
    for (const auto& [medium, count] : report.collectives()) (*sum.mutable_collectives())[medium] += count;
  }
  return sum;
}

}  // namespace

void EndJob(Context& context, Job* job, JobState state, const std::string& reason) {
  JobEvent event = context.NewEvent(job->id);
  event.mutable_ended()->set_state(state);
  event.mutable_ended()->set_reason(reason);
  const auto attempt = context.attempts.find(job->id);
  if (state == SUCCEEDED && attempt != context.attempts.end()) {
    *event.mutable_ended()->mutable_report() = SumOf(attempt->second.finished);
  }
  const bool building = job->state == COMPILING;
  context.Record(std::move(event));
  if (building) context.effects.actions.push_back(StopBuild{job->id});
  if (context.attempts.contains(job->id)) {
    context.SendToAll(*job, state == SUCCEEDED ? ForgetMessage(job->current()) : AbortMessage(job->current(), reason));
  }
  context.RemoveAttempt(*job);
  context.Changed(job->id);
  context.reschedule = true;
  RemoveOldFiles(context, *job);
  DropResumed(context, *job);
}

void FailAttempt(Context& context, Job* job, const AttemptEnding& ending) {
  AttemptEnded ended;
  ended.set_reason(ending.reason);
  ended.set_lost_worker(ending.lost_worker);
  ended.set_program_error(ending.program_error);
  if (!ending.findings.empty()) ended.set_damaged_checkpoint(job->placed.checkpoint_uri());
  ended.mutable_findings()->Assign(ending.findings.begin(), ending.findings.end());
  ended.set_step(ending.step >= 0 ? ending.step : job->step);
  EndAttempt(context, job, ended, AbortMessage(job->current(), ending.reason));
  job->failed_ns = context.now_ns;
  std::string final_reason = WhyNoRetry(*job, ending);
  if (final_reason.empty() && IsConfirmedDamage(*job)) final_reason = DropDamaged(context, job);
  if (!final_reason.empty()) EndJob(context, job, FAILED, final_reason);
}

void StopAttempt(Context& context, Job* job, const AttemptStop& stop) {
  AttemptEnded ended;
  ended.set_reason(stop.reason);
  ended.set_step(stop.step);
  ended.set_stopped(true);
  ended.set_lost_worker(stop.lost_worker);
  const AttemptId attempt = job->current();
  EndAttempt(context, job, ended, stop.forget ? ForgetMessage(attempt) : AbortMessage(attempt, stop.reason));
  if (!stop.lost_worker.empty()) job->failed_ns = context.now_ns;
}

int64_t RetryPauseMs(const CoordinatorOptions& options, const Job& job) {
  const int64_t damaged = job.damaged_attempts > 0 ? job.damaged_attempts + 1 : 0;
  return RetryPauseMs(options, std::max(job.failures, damaged));
}

int64_t RetryPauseMs(const CoordinatorOptions& options, int64_t failures) {
  int64_t pause_ms = failures < 2 ? 0 : options.retry_pause_ms;
  for (int64_t i = 2; i < failures && pause_ms < options.max_retry_pause_ms; ++i) pause_ms *= 2;
  return std::min(pause_ms, options.max_retry_pause_ms);
}

}  // namespace xlad::service
