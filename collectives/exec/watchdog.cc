#include "collectives/exec/watchdog.h"

#include "absl/strings/str_cat.h"

namespace xlad::collectives {

bool ProgressWatchdog::Poll() {
  bool stuck = false;
  std::string all;
  for (const Recorder* recorder : recorders_) {
    const Recorder::Waiting now = recorder->Now();
    if (!now.running) continue;
    const int64_t waited_ms = (clock_->NowNs() - now.since_ns) / kNsPerMs;
    stuck = stuck || waited_ms > limit_ms_;
    absl::StrAppend(&all, all.empty() ? "" : "; ", now.text, " for ", waited_ms, " ms");
  }
  if (!stuck) return false;
  return abort_->Raise(
      {absl::DeadlineExceededError(absl::StrCat("no progress for more than ", limit_ms_, " ms: ", all)), ""});
}

}  // namespace xlad::collectives
