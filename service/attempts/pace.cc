#include "service/attempts/pace.h"

#include <algorithm>
#include <optional>

#include "service/state/messages.h"

namespace xlad::service {
namespace {

constexpr int64_t kMaxAheadMs = 5000;
constexpr int64_t kMinAhead = 8;  // In steps. Workers with collectives in every step are at most a few steps apart.
constexpr int64_t kComparedEveryMs = 500;
constexpr int64_t kMeasureMs = 1000;
// Reports that were delayed, for example while the coordinator was stopped, can arrive in any order. Only after this
// time are they all known.
constexpr int64_t kPatienceMs = 2000;

struct Range {
  int64_t slowest = INT64_MAX;
  int64_t furthest = 0;
};

// The numbers of finished steps. Empty if a worker has not reported lately, because its number is then not known.
std::optional<Range> ProgressOf(const Context& context, const Job& job, const Attempt& attempt) {
  Range range;
  for (const Peer& peer : job.placed.peers()) {
    const auto worker = context.workers.find(WorkerId(peer.worker_id()));
    const auto step = attempt.progress.find(peer.worker_id());
    if (worker == context.workers.end() || step == attempt.progress.end()) return std::nullopt;
    const int64_t silent_ns = context.now_ns - worker->second.last_message_ns;
    if (silent_ns >= context.options.recent_message_ms * kNsPerMs) return std::nullopt;
    range.slowest = std::min(range.slowest, step->second);
    range.furthest = std::max(range.furthest, step->second);
  }
  return range;
}

bool HasSentPauses(const Attempt::Pace& pace, int64_t now_ns) {
  return pace.apart_since_ns >= 0 && now_ns - pace.apart_since_ns >= kPatienceMs * kNsPerMs;
}

CoordinatorMessage LeaseUntil(const Job& job, int64_t step) {
  CoordinatorMessage message;
  SetAttempt(job.current(), message.mutable_renew());
  message.mutable_renew()->set_lease_until_step(step);
  return message;
}

void EndPauses(Attempt::Pace* pace) {
  pace->apart_since_ns = -1;
  pace->pauses = false;
}

// Measures the speed of the slowest worker.
void Measure(int64_t slowest, int64_t now_ns, Attempt::Pace* pace) {
  if (pace->measured_ns == 0) {
    pace->measured_ns = now_ns;
    pace->measured_step = slowest;
  }
  const int64_t passed_ns = now_ns - pace->measured_ns;
  if (slowest <= pace->measured_step || passed_ns < kMeasureMs * kNsPerMs) return;
  pace->steps_per_ms = static_cast<double>((slowest - pace->measured_step) * kNsPerMs) / static_cast<double>(passed_ns);
  pace->measured_ns = now_ns;
  pace->measured_step = slowest;
}

}  // namespace

void KeepTogether(Context& context, const Job& job) {
  Attempt& attempt = context.attempts.at(job.id);
  Attempt::Pace& pace = attempt.pace;
  const bool may_drift = job.state == RUNNING && !job.spec.session() && job.placed.peers_size() > 1;
  if (!may_drift || context.now_ns - pace.checked_ns < kComparedEveryMs * kNsPerMs) return;
  pace.checked_ns = context.now_ns;
  const std::optional<Range> range = ProgressOf(context, job, attempt);
  if (!range.has_value()) return EndPauses(&pace);  // Workers that wait continue after a while.
  Measure(range->slowest, context.now_ns, &pace);
  const auto max_ahead = std::max(kMinAhead, static_cast<int64_t>(pace.steps_per_ms * kMaxAheadMs));
  // Pauses begin at max_ahead and end at half of it, because a worker that waits is closer than max_ahead as soon as
  // the slowest one continues.
  const int64_t ahead = range->furthest - range->slowest;
  if (pace.steps_per_ms == 0 || ahead <= (pace.apart_since_ns < 0 ? max_ahead : max_ahead / 2)) {
    if (HasSentPauses(pace, context.now_ns)) context.SendToAll(job, LeaseUntil(job, attempt.lease_until));
    return EndPauses(&pace);
  }
  if (pace.apart_since_ns < 0) pace.apart_since_ns = context.now_ns;
  const int64_t until = range->slowest + max_ahead;
  if (!HasSentPauses(pace, context.now_ns) || until >= attempt.lease_until) return;
  // Workers of older versions do not wait, so they can be further ahead than 2 * max_ahead. Workers that wait are soon
  // no further ahead than max_ahead was when their lease was sent; max_ahead varies with the measured speed.
  pace.pauses = ahead <= 2 * max_ahead;
  // The slowest worker may become faster, and a worker that has waited may be the slowest one now.
  for (const auto& [worker, step] : attempt.progress) {
    const bool must_wait = step > range->slowest + max_ahead / 2;
    context.Send(WorkerId(worker), LeaseUntil(job, must_wait ? until : attempt.lease_until));
  }
}

}  // namespace xlad::service
