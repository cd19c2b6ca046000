#include "cli/follow.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/file_error.h"
#include "base/file_system.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/plot.h"
#include "cli/save_state.h"
#include "cli/timeline.h"
#include "collectives/exec/communicator.h"
#include "proto/mesh.h"

namespace xlad::cli {
namespace {

constexpr int64_t kPatienceMs = 60'000;  // How long the coordinator may be unreachable.

// The number of kernels and library ops that have run, by kind of device.
std::map<std::string, int64_t> SortedLaunches(const JobStatus& status) {
  return {status.report().launches().begin(), status.report().launches().end()};
}

// The number of collectives that devices have run, by the memory in which they ran (Communicator::Medium).
std::map<std::string, int64_t> SortedCollectives(const JobStatus& status) {
  return {status.report().collectives().begin(), status.report().collectives().end()};
}

// The reports of all steps, in step order.
class History {
 public:
  explicit History(const JobSpec& spec) {
    for (const JobSpec::Result& result : spec.results()) {
      if (result.kind() == JobSpec::Result::STATE) continue;
      if (result.kind() == JobSpec::Result::LOSS && loss_column_ < 0) loss_column_ = static_cast<int>(names_.size());
      names_.push_back(result.name());
    }
    columns_.resize(names_.size());
  }

  void Add(const StepMetrics& step) {
    for (int c = 0; c < std::ssize(columns_); ++c) {
      columns_[c].push_back(c < step.values_size() ? step.values(c) : 0);
    }
    step_ms_.push_back(step.step_ms());
    if (!step.quick_code()) optimized_step_ms_.push_back(step.step_ms());
    simulated_.push_back(step.simulated());
  }

  std::vector<float> losses() const { return loss_column_ < 0 ? std::vector<float>() : columns_[loss_column_]; }
  // The times of the steps on optimized code, or of all steps if there are none.
  const std::vector<double>& step_ms() const { return optimized_step_ms_.empty() ? step_ms_ : optimized_step_ms_; }
  // The number of steps on quickly compiled code.
  int64_t quick_steps() const { return std::ssize(step_ms_) - std::ssize(optimized_step_ms_); }
  // The last step on simulated chips, or null.
  const SimulatedTime* simulated() const {
    return simulated_.empty() || simulated_.back().topology().empty() ? nullptr : &simulated_.back();
  }

  std::string ToJson(const JobStatus& status) const {
    nlohmann::ordered_json json;
    json["loss"] = losses();
    json["metrics"] = nlohmann::ordered_json::object();
    for (int c = 0; c < std::ssize(names_); ++c) {
      if (c != loss_column_) json["metrics"][names_[c]] = columns_[c];
    }
    json["step_ms"] = step_ms_;
    json["quick_steps"] = quick_steps();
    json["compile_ms"] = status.compile_ms();
    json["launches"] = nlohmann::ordered_json::object();
    for (const auto& [kind, launches] : SortedLaunches(status)) json["launches"][kind] = launches;
    json["collectives"] = nlohmann::ordered_json::object();
    for (const auto& [medium, count] : SortedCollectives(status)) json["collectives"][medium] = count;
    if (simulated() != nullptr) json["simulated"] = SimulatedJson();
    return JsonText(json) + "\n";
  }

 private:
  // For each step, the simulated time and the busy time of each unit.
  nlohmann::ordered_json SimulatedJson() const {
    std::vector<double> step, mxu, vpu, hbm, ici, stall, bytes;
    for (const SimulatedTime& time : simulated_) {
      step.push_back(time.us());
      mxu.push_back(time.mxu_us());
      vpu.push_back(time.vpu_us());
      hbm.push_back(time.hbm_us());
      ici.push_back(time.ici_us());
      stall.push_back(time.stall_us());
      bytes.push_back(time.hbm_bytes());
    }
    return {{"topology", simulated()->topology()},
            {"step_us", step},
            {"units", {{"mxu", mxu}, {"vpu", vpu}, {"hbm", hbm}, {"ici", ici}}},
            {"stall_us", stall},
            {"hbm_traffic_bytes", bytes}};
  }

  std::vector<std::string> names_;
  int loss_column_ = -1;
  std::vector<std::vector<float>> columns_;
  std::vector<double> step_ms_, optimized_step_ms_;
  std::vector<SimulatedTime> simulated_;
};

double MedianStepMs(const History& history) {
  std::vector<double> times = history.step_ms();
  if (times.empty()) return 0;
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void PrintProgress(const JobStatus& status, const History& history, const JobSpec& spec) {
  if (status.state() != RUNNING) {
    std::fprintf(stderr, "\r\033[K%s: %s %s", status.id().c_str(), JobState_Name(status.state()).c_str(),
                 status.reason().c_str());
    return;
  }
  const double ms = MedianStepMs(history);
  const std::string rate =
      ms > 0 && spec.batch_size() > 0
          ? absl::StrCat("  ", static_cast<int64_t>(1000.0 * static_cast<double>(spec.batch_size()) / ms),
                         " examples/s")
          : "";
  absl::FPrintF(stderr, "\r\033[Kstep %d/%d  loss %.4f  %.2f ms/step%s", status.step(), status.steps(),
                static_cast<double>(status.loss()), ms, rate);
  std::fflush(stderr);
}

// Prints why a job has been pending for kSayAfterMs, once for each reason. Used if there is no progress line.
class WaitingNotice {
 public:
  void Update(const JobStatus& status) {
    const int64_t now_ns = RealClock().NowNs();
    if (status.state() != PENDING) since_ns_ = 0;
    if (status.state() != PENDING || status.reason() == said_) return;
    if (since_ns_ == 0) since_ns_ = now_ns;
    if (now_ns - since_ns_ < kSayAfterMs * kNsPerMs) return;
    said_ = status.reason();
    std::fprintf(stderr, "xlad: %s %s\n", status.id().c_str(), said_.c_str());
  }

 private:
  static constexpr int64_t kSayAfterMs = 5000;
  int64_t since_ns_ = 0;  // When the job became pending, or 0 if it is not pending.
  std::string said_;
};

// Prints a warning if checkpoints cannot be stored. The job continues, but it would lose its progress if a worker were
// lost. The coordinator reports the first of several errors in a row, and the error of the last state. Each is printed
// once.
class CheckpointNotice {
 public:
  void Update(const JobStatus& status, bool live) {
    const bool is_new = !status.checkpoint_error().empty() && status.checkpoint_error() != said_;
    said_ = status.checkpoint_error();
    if (!is_new) return;
    const bool is_last = status.step() >= status.steps();
    std::fprintf(stderr, "%sxlad: %s: %s; %s (xlad why %s)\n", live ? "\r\033[K" : "", status.id().c_str(),
                 said_.c_str(), is_last ? "it is tried again" : "the job continues without this checkpoint",
                 status.id().c_str());
  }

 private:
  std::string said_;
};

void PrintSummary(const JobStatus& status, const History& history) {
  const std::vector<float> losses = history.losses();
  std::string text = absl::StrCat(status.name(), " (", status.id(), ") on ", MeshText(status.mesh()), ", ",
                                  Counted(status.workers_size(), "worker"), ": ", JobState_Name(status.state()),
                                  " after ", status.step(), " of ", Counted(status.steps(), "step"));
  const std::map<std::string, int64_t> launches = SortedLaunches(status);
  if (launches.size() > 1) {
    absl::StrAppend(&text, ", launches: ", absl::StrJoin(launches, ", ", absl::PairFormatter(" ")));
  }
  const std::map<std::string, int64_t> collectives = SortedCollectives(status);
  const bool all_on_host =
      collectives.empty() || (collectives.size() == 1 && collectives.contains(collectives::kHostMedium));
  if (!all_on_host) {
    absl::StrAppend(&text, ", collectives: ", absl::StrJoin(collectives, ", ", absl::PairFormatter(" ")));
  }
  if (history.quick_steps() > 0) {
    absl::StrAppend(&text, ", ", Counted(history.quick_steps(), "step"), " on quickly compiled code");
  }
  if (!losses.empty()) absl::StrAppend(&text, ", loss ", losses.front(), " -> ", losses.back());
  std::fprintf(stderr, "%s, %.2f ms/step, built in %.0f ms\n", text.c_str(), MedianStepMs(history),
               status.compile_ms());
  for (const std::string& warning : status.warnings()) std::fprintf(stderr, "xlad: note: %s\n", warning.c_str());
  const SimulatedTime* const time = history.simulated();
  if (time == nullptr) return;
  std::fprintf(stderr,
               "simulated on %s: %.1f us/step; busy us: mxu %.1f, vpu %.1f, hbm %.1f, ici %.1f; waiting for "
               "collectives %.1f\n",
               time->topology().c_str(), time->us(), time->mxu_us(), time->vpu_us(), time->hbm_us(), time->ici_us(),
               time->stall_us());
}

absl::Status WriteTrace(client::CoordinatorClient& client, const std::string& job_id, const std::string& path) {
  XLAD_ASSIGN_OR_RETURN(const std::string timeline, FetchTimeline(client, job_id));
  return WriteOutput(path, timeline);
}

absl::Status WriteState(client::CoordinatorClient& client, const JobStatus& status, const FollowOptions& options) {
  XLAD_ASSIGN_OR_RETURN(const std::string uri, StateUriOf(status));
  const absl::Status saved = SaveTensors(StoreOf(client), uri, options.state_path);
  if (saved.ok()) return saved;
  const std::string start =
      options.data_folder.empty() ? "" : absl::StrCat("xlad coordinator --data ", options.data_folder, ", then ");
  const absl::Status failure(saved.code(),
                             absl::StrCat("--save-state: ", saved.message(), "; the coordinator has the state: ", start,
                                          "xlad ckpt export ", status.id(), " --to FILE"));
  return IsFileError(saved) ? MarkFileError(failure) : failure;
}

// Tries to write all results, prints each error, and returns the exit code of the first one. The state is first,
// because it is the result of the training, and the other results may fill the disk.
int WriteResults(client::CoordinatorClient& client, const JobStatus& status, const History& history,
                 const FollowOptions& options) {
  int code = kOk;
  const auto note = [&code](const absl::Status& written) {
    if (written.ok()) return;
    const int failed = Fail(written);
    if (code == kOk) code = failed;
  };
  if (!options.state_path.empty() && status.state() == SUCCEEDED) note(WriteState(client, status, options));
  if (!options.curve_path.empty()) {
    note(Annotate(WriteOutput(options.curve_path, history.ToJson(status)), "--curve"));
  }
  if (!options.plot_path.empty()) {
    const std::string plot = PlotSvg(status.name() + ": loss by step", history.losses());
    note(Annotate(WriteOutput(options.plot_path, plot), "--plot"));
  }
  if (!options.trace_path.empty()) note(Annotate(WriteTrace(client, status.id(), options.trace_path), "trace"));
  if (options.chart) std::fprintf(stderr, "%s", PlotText(history.losses(), 72, 14).c_str());
  return code;
}

// Stops a job at SIGTERM so that its training can be continued.
class Draining {
 public:
  // Returns whether the caller must stop following the job: at Ctrl-C, and when the drained job has stopped.
  bool Update(const JobStatus& status, int stop_signal, const FollowOptions& options) {
    if (!first_step_.has_value()) first_step_ = status.step();
    if (stop_signal != SIGTERM || !options.begin_drain) return stop_signal != 0;
    const bool is_placed = status.state() == STARTING || status.state() == RUNNING;
    if (!began_ && !HasEnded(status.state())) {
      began_ = true;
      was_placed_ = is_placed;
      attempt_ = status.attempt();
      std::fprintf(stderr, "%sxlad: SIGTERM: %s stops after a step and saves its state; a second SIGTERM ends it at "
                           "once\n",
                   ErrorIsTerminal() ? "\r\033[K" : "", status.id().c_str());
      options.begin_drain();
    }
    // Between two attempts, the status has the step that the failed attempt had reached. Steps that are not saved were
    // lost by the failure, not by the drain.
    if (was_placed_ && status.attempt() == attempt_) reached_ = std::max(reached_, status.step());
    return began_ && (!is_placed || status.attempt() != attempt_);
  }

  bool began() const { return began_; }

  // Called when the job has stopped. Returns an error if steps that it has done are not saved.
  absl::Status Check(const JobStatus& status) const {
    const int64_t saved = status.has_checkpoint() ? status.checkpoint_step() : first_step_.value_or(0);
    if (saved >= reached_) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        status.id(), " stopped at step ", reached_, ", but its newest checkpoint is of step ", saved, ": ",
        status.checkpoint_error().empty() ? status.reason() : status.checkpoint_error()));
  }

 private:
  bool began_ = false;
  bool was_placed_ = false;  // Whether an attempt was starting or running when the drain began.
  std::optional<int64_t> first_step_;  // Not 0 if the job resumes a checkpoint.
  int64_t attempt_ = 0, reached_ = 0;
};

int EndDrain(client::CoordinatorClient& client, const JobStatus& status, const Draining& draining,
             const History& history, const FollowOptions& options) {
  PrintSummary(status, history);
  const absl::Status saved = draining.Check(status);
  if (saved.ok() && options.drained) options.drained(status);
  const int written = WriteResults(client, status, history, options);
  if (!saved.ok()) return Fail(saved);
  return written == kOk ? static_cast<int>(kMoved) : written;
}

// Cancels the job, and says at which step.
void CancelAtStop(client::CoordinatorClient& client, const std::string& job_id, const JobSpec& spec) {
  if (const absl::Status canceled = client.Cancel(job_id); !canceled.ok()) {
    std::fprintf(stderr, "xlad: %s was not canceled: %s\n", job_id.c_str(), std::string(canceled.message()).c_str());
    return;
  }
  const absl::StatusOr<JobStatus> status = client.GetJob(job_id);
  if (!status.ok()) {
    std::fprintf(stderr, "xlad: %s was canceled; its last step is not known: %s\n", job_id.c_str(),
                 std::string(status.status().message()).c_str());
    return;
  }
  absl::FPrintF(stderr, "xlad: %s was canceled at step %d of %d\n", job_id, status->step(), spec.steps());
}

}  // namespace

int FollowJob(client::CoordinatorClient& client, const std::string& job_id, const JobSpec& spec,
              const FollowOptions& options) {
  const std::atomic<int>* stop = StopRequested();
  History history(spec);
  JobStatus status;
  absl::Status failure;
  const bool live = ErrorIsTerminal();
  WaitingNotice waiting;
  CheckpointNotice checkpoints;
  Draining draining;
  const absl::Status watched = client.Watch(job_id, kPatienceMs, [&](const WatchJobResponse& update) {
    status = update.status();
    for (const StepMetrics& step : update.metrics()) history.Add(step);
    checkpoints.Update(status, live);
    if (live) {
      PrintProgress(status, history, spec);
    } else {
      waiting.Update(status);
    }
    if (draining.Update(status, *stop, options)) return false;
    if (options.check && !draining.began() && !HasEnded(status.state())) failure = options.check();
    return failure.ok();
  });
  if (live) std::fprintf(stderr, "\r\033[K");
  if (draining.began() && watched.ok() && !HasEnded(status.state())) {
    return EndDrain(client, status, draining, history, options);
  }
  if (*stop != 0 && !HasEnded(status.state())) {
    if (options.cancel_on_stop) {
      CancelAtStop(client, job_id, spec);
    } else {
      std::fprintf(stderr, "xlad: %s continues; xlad ps shows it, and xlad cancel %s ends it\n", job_id.c_str(),
                   job_id.c_str());
    }
    return kInterrupted;
  }
  if (!failure.ok()) return Fail(failure);
  if (!watched.ok()) return Fail(watched);
  PrintSummary(status, history);
  const int written = WriteResults(client, status, history, options);
  if (status.state() == SUCCEEDED) return written;
  return Fail(absl::AbortedError(absl::StrCat("job ", job_id, " ", JobState_Name(status.state()), ": ",
                                              status.reason())));
}

}  // namespace xlad::cli
