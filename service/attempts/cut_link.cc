#include "service/attempts/cut_link.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "service/attempts/ending.h"

namespace xlad::service {
namespace {

// Returns how long the two workers have had no answer from each other, counted only while the coordinator received
// messages from both. A worker from which the coordinator receives no messages is handled by suspect_ms and lost_ms.
int64_t SilenceNs(const Context& context, const Worker& a, const Worker& b, const SilentPeer& silent) {
  const int64_t recent_ns = context.options.recent_message_ms * kNsPerMs;
  for (const Worker* worker : {&a, &b}) {
    if (worker->state != WorkerState::kAlive || context.now_ns - worker->last_message_ns >= recent_ns) return 0;
  }
  const int64_t since_ns = context.now_ns - silent.silent_ms() * kNsPerMs;
  return context.now_ns - std::max({since_ns, a.links_count_from_ns, b.links_count_from_ns});
}

}  // namespace

bool EndIfLinkIsCut(Context& context, const WorkerId& worker, const RunningTask& task, Job* job) {
  if (context.attempts.at(job->id).awaiting_adoption) return false;
  const Worker& reporter = *context.FindWorker(worker);
  const int64_t apart_ms = context.options.keep_apart_ms;
  std::string reason;  // Names only the first silent peer; all silent peers are kept apart from the worker.
  for (const SilentPeer& silent : task.silent()) {
    const Worker* const peer = context.FindWorker(WorkerId(silent.worker_id()));
    if (peer == nullptr || peer == &reporter || !HasPeer(*job, silent.worker_id())) continue;
    const int64_t silence_ns = SilenceNs(context, reporter, *peer, silent);
    if (silence_ns < context.options.link_cut_ms * kNsPerMs) continue;
    context.cut_links.Add(worker.str(), silent.worker_id(), context.now_ns + apart_ms * kNsPerMs);
    if (!reason.empty()) continue;
    reason = absl::StrFormat(
        "%s and %s have not reached each other for %.1f s at step %d, while both reach the coordinator: the link "
        "between them is down; for %d s they are not placed in one attempt if other workers are free",
        Context::WorkerText(*job, worker.str()), Context::WorkerText(*job, silent.worker_id()),
        static_cast<double>(silence_ns) / (1000.0 * kNsPerMs), job->step, apart_ms / 1000);
  }
  if (reason.empty()) return false;
  FailAttempt(context, job, {reason, "", "", -1});
  return true;
}

}  // namespace xlad::service
