#include "service/goodput.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"

namespace xlad::service {
namespace {

constexpr int64_t kPage = 2000;
constexpr std::array<const char*, 7> kCauses = {"wait", "compile", "load", "step", "checkpoint", "restart", "lost"};

// Visits the events in order and assigns each interval between two events to one or more causes.
class TimeSheet {
 public:
  explicit TimeSheet(const std::map<int64_t, AttemptTime>& steps) : steps_(steps) {}

  void Handle(const JobEvent& event) {
    if (event.has_submitted()) begin_ns_ = since_ns_ = event.unix_ns();
    const int64_t ns = event.unix_ns() - since_ns_;
    switch (event.event_case()) {
      case JobEvent::kBuilt: {
        // No job waits for the build of optimized code (only_code).
        if (phase_ != Phase::kWaiting || ns < 0 || event.built().only_code()) return;
        const auto compile_ns = static_cast<int64_t>(event.built().compile_ms() * kNsPerMs);
        Take("compile", std::clamp<int64_t>(compile_ns, 0, ns));
        return;
      }
      case JobEvent::kPlaced:
        return Begin(Phase::kLoading, event);
      case JobEvent::kStarted:
        attempt_ = event.started().attempt();
        return Begin(Phase::kRunning, event);
      case JobEvent::kAttemptEnded: {
        failed_ = !event.attempt_ended().stopped();
        Close(event.unix_ns());
        phase_ = Phase::kWaiting;
        restarting_ = failed_;
        return;
      }
      case JobEvent::kEnded:
        Close(event.unix_ns());
        phase_ = Phase::kEnded;
        return;
      default:
        return;
    }
  }

  std::vector<JobTime> Finish(int64_t now_unix_ns) {
    if (phase_ != Phase::kEnded && begin_ns_ > 0) Close(std::max(now_unix_ns, since_ns_));
    std::vector<JobTime> out;
    for (const char* cause : kCauses) {
      JobTime& time = out.emplace_back();
      time.set_cause(cause);
      time.set_seconds(static_cast<double>(ns_[cause]) / kNsPerSecond);
    }
    return out;
  }

 private:
  enum class Phase { kWaiting, kLoading, kRunning, kEnded };

  // Assigns a part of the time since the last event to a cause.
  void Take(const char* cause, int64_t ns) {
    ns_[cause] += ns;
    since_ns_ += ns;
  }

  void Begin(Phase phase, const JobEvent& event) {
    Close(event.unix_ns());
    phase_ = phase;
    if (phase == Phase::kRunning) restarting_ = failed_ = false;
  }

  // Ends the phase at this time and assigns the time of the phase to its causes.
  void Close(int64_t unix_ns) {
    const int64_t ns = std::max<int64_t>(0, unix_ns - since_ns_);
    if (phase_ == Phase::kWaiting) Take(restarting_ ? "restart" : "wait", ns);
    if (phase_ == Phase::kLoading) Take(restarting_ || failed_ ? "restart" : "load", ns);
    if (phase_ != Phase::kRunning) return;
    const auto found = steps_.find(attempt_);
    const AttemptTime steps = found == steps_.end() ? AttemptTime() : found->second;
    const int64_t step_ns = std::min(ns, static_cast<int64_t>(steps.step_ms * kNsPerMs));
    const int64_t save_ns = std::min(ns - step_ns, static_cast<int64_t>(steps.save_ms * kNsPerMs));
    Take("step", step_ns);
    Take("checkpoint", save_ns);
    Take(failed_ ? "lost" : "wait", ns - step_ns - save_ns);
  }

  const std::map<int64_t, AttemptTime>& steps_;
  std::map<std::string, int64_t> ns_;
  Phase phase_ = Phase::kWaiting;
  int64_t begin_ns_ = 0, since_ns_ = 0, attempt_ = 0;
  bool failed_ = false;      // The latest attempt has failed.
  bool restarting_ = false;  // The previous attempt has failed and the next one does not run yet.
};

}  // namespace

std::vector<JobTime> TimeByCause(const std::vector<JobEvent>& events, const std::map<int64_t, AttemptTime>& steps,
                                 int64_t now_unix_ns) {
  TimeSheet sheet(steps);
  for (const JobEvent& event : events) sheet.Handle(event);
  return sheet.Finish(now_unix_ns);
}

std::string TimeText(const std::vector<JobTime>& time) {
  double all = 0;
  for (const JobTime& part : time) all += part.seconds();
  std::vector<JobTime> sorted = time;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const JobTime& a, const JobTime& b) { return a.seconds() > b.seconds(); });
  std::string text;
  for (const JobTime& part : sorted) {
    if (all <= 0 || part.seconds() < all / 1000) continue;
    absl::StrAppendFormat(&text, "%s%s %.1f %%", text.empty() ? "" : ", ", part.cause(), 100 * part.seconds() / all);
  }
  return text;
}

absl::StatusOr<std::vector<JobTime>> GoodputMeter::Measure(JobLog& log, const JobId& job, int64_t now_unix_ns) {
  std::vector<JobEvent> events;
  int64_t attempt = 0;
  XLAD_RETURN_IF_ERROR(VisitEventsOf(log, job, [&](const JobEvent& event) {
    attempt = std::max<int64_t>(attempt, event.placed().attempt());
    events.push_back(event);
  }));
  const std::lock_guard lock(mutex_);
  if (sums_.size() > kMaxJobs) sums_.clear();
  Sums& sums = sums_[job];
  if (sums.attempt != attempt) sums = {attempt, 0, {}};
  for (bool more = true; more;) {
    XLAD_ASSIGN_OR_RETURN(const std::vector<StepMetrics> page, log.ReadMetrics(job, sums.next_step, kPage));
    more = std::ssize(page) == kPage;
    for (const StepMetrics& step : page) {
      AttemptTime& time = sums.by_attempt[step.attempt()];
      time.step_ms += step.step_ms();
      time.save_ms += step.save_ms();
      sums.next_step = step.step() + 1;
    }
  }
  return TimeByCause(events, sums.by_attempt, now_unix_ns);
}

}  // namespace xlad::service
