// `xlad top`: the jobs and workers of a coordinator, every second. A terminal is redrawn; a file or a pipe gets one
// table after the other.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/job_json.h"
#include "cli/worker_json.h"
#include "client/coordinator_client.h"
#include "proto/job_state.h"
#include "proto/mesh.h"

namespace xlad::cli {
namespace {

constexpr int64_t kTopPollMs = 1000;
constexpr int64_t kSliceMs = 50;  // How often the loop looks for an interruption.

struct TopOptions {
  Endpoint endpoint;
  bool once = false;
  std::string format;
};

// What the coordinator answers. A coordinator that does not serve lists no jobs and workers.
struct Snapshot {
  CoordinatorStatus status;
  std::vector<JobStatus> jobs;
  ListWorkersResponse workers;
};

absl::StatusOr<Snapshot> Ask(client::CoordinatorClient& client) {
  Snapshot now;
  XLAD_ASSIGN_OR_RETURN(now.status, client.Status());
  if (!now.status.serving()) return now;
  XLAD_ASSIGN_OR_RETURN(now.jobs, client.ListJobs());
  XLAD_ASSIGN_OR_RETURN(now.workers, client.ListWorkers());
  return now;
}

// The step of a job at an earlier time, and the speed that was measured at that time.
struct Progress {
  int64_t step = 0;
  int64_t at_ns = 0;
  double steps_per_second = 0;  // 0 if it is not known yet.
};

std::string Duration(double seconds) {
  char text[32];
  if (seconds < 90)
    std::snprintf(text, sizeof text, "%.0fs", seconds);
  else if (seconds < 5400)
    std::snprintf(text, sizeof text, "%.0fm", seconds / 60);
  else
    std::snprintf(text, sizeof text, "%.1fh", seconds / 3600);
  return text;
}

// Returns the first characters of a line of UTF-8.
absl::string_view FirstColumns(absl::string_view line, int columns) {
  const auto begins_character = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; };
  for (size_t i = 0; i < line.size(); ++i) {
    if (begins_character(line[i]) && --columns < 0) return line.substr(0, i);
  }
  return line;
}

// Shortens the text to the size of the terminal of standard output: cuts lines that would take two rows, and drops the
// last lines if the first ones would otherwise scroll off the screen.
std::string FitTerminal(absl::string_view text) {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return std::string(text);
  std::vector<absl::string_view> lines = absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
  const size_t rows = std::max(2, size.ws_row - 1);  // The cursor takes the last row.
  std::string missing;
  if (lines.size() > rows) {
    missing = absl::StrCat("... ", Counted(lines.size() - rows + 1, "more line"), "; xlad ps prints all jobs");
    lines.resize(rows - 1);
    lines.push_back(missing);
  }
  for (absl::string_view& line : lines) line = FirstColumns(line, size.ws_col);
  return absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
}

class Top {
 public:
  std::string Draw(const Snapshot& now, int64_t now_ns) {
    const CoordinatorStatus& status = now.status;
    std::map<std::string, int64_t> states, devices;
    for (const auto& worker : now.workers.workers()) {
      ++states[worker.state()];
      devices[worker.state()] += worker.devices();
    }
    std::string text =
        absl::StrCat("coordinator on ", status.host(), ", pid ", status.pid(), ", ",
                     status.serving() ? "serving" : absl::StrCat("not serving: ", status.reason()), "\n");
    std::vector<std::string> workers, jobs;
    for (const auto& [state, count] : states) {
      workers.push_back(absl::StrCat(count, " ", state, " with ", Counted(devices[state], "device")));
    }
    for (const auto& [state, count] : status.jobs()) jobs.push_back(absl::StrCat(count, " ", state));
    absl::StrAppend(&text, "workers: ", workers.empty() ? "none" : absl::StrJoin(workers, ", "),
                    "\njobs: ", jobs.empty() ? "none" : absl::StrJoin(jobs, ", "));
    char line[512];
    std::snprintf(line, sizeof line, "\n\n%-14s %-20s %-10s %-14s %15s %9s %7s %10s  %s\n", "ID", "NAME", "STATE",
                  "MESH", "STEP", "STEPS/S", "LEFT", "LOSS", "REASON");
    text += line;
    for (const JobStatus& job : now.jobs) {
      if (!HasEnded(job.state())) text += Row(job, now_ns);
    }
    return text;
  }

 private:
  std::string Row(const JobStatus& job, int64_t now_ns) {
    Progress& progress = progress_[job.id()];
    const double seconds = static_cast<double>(now_ns - progress.at_ns) * 1e-9;
    if (progress.at_ns == 0 || job.step() < progress.step) {
      progress = {job.step(), now_ns, 0};
    } else if (job.step() > progress.step || seconds > 10) {
      progress = {job.step(), now_ns, static_cast<double>(job.step() - progress.step) / std::max(seconds, 1e-3)};
    }
    char speed[32] = "-", loss[32] = "-", line[512];
    std::string left = "-";
    if (progress.steps_per_second > 0) {
      std::snprintf(speed, sizeof speed, "%.4g", progress.steps_per_second);
      left = Duration(static_cast<double>(job.steps() - job.step()) / progress.steps_per_second);
    }
    if (job.has_loss()) std::snprintf(loss, sizeof loss, "%.5g", static_cast<double>(job.loss()));
    std::snprintf(line, sizeof line, "%-14s %-20.20s %-10s %-14s %15s %9s %7s %10s  ", job.id().c_str(),
                  job.name().c_str(), JobState_Name(job.state()).c_str(), MeshText(job.mesh()).c_str(),
                  absl::StrCat(job.step(), "/", job.steps()).c_str(), speed, left.c_str(), loss);
    return absl::StrCat(line, job.reason(), "\n");
  }

  std::map<std::string, Progress> progress_;
};

nlohmann::ordered_json ToJson(const Snapshot& now) {
  const CoordinatorStatus& status = now.status;
  nlohmann::ordered_json json = {{"host", status.host()},
                                 {"pid", status.pid()},
                                 {"serving", status.serving()},
                                 {"reason", status.reason()},
                                 {"jobs_by_state", nlohmann::ordered_json::object()},
                                 {"workers", nlohmann::ordered_json::array()},
                                 {"jobs", nlohmann::ordered_json::array()}};
  for (const auto& [state, count] : status.jobs()) json["jobs_by_state"][state] = count;
  for (const auto& worker : now.workers.workers()) json["workers"].push_back(WorkerToJson(worker));
  for (const JobStatus& job : now.jobs) {
    if (!HasEnded(job.state())) json["jobs"].push_back(JobToJson(job));
  }
  return json;
}

int RunTop(const TopOptions& options) {
  std::atomic<int>* stop = StopRequested();
  const auto client = client::CoordinatorClient::Connect(options.endpoint);
  if (!client.ok()) return Fail(client.status());
  const bool redraws = !options.once && isatty(STDOUT_FILENO) != 0;
  Top top;
  while (true) {
    const absl::StatusOr<Snapshot> now = Ask(**client);
    if (!now.ok()) return Fail(now.status());
    if (options.format == "json") {
      std::printf("%s\n", JsonText(ToJson(*now), 2).c_str());
      return kOk;
    }
    const std::string drawn = top.Draw(*now, RealClock().NowNs());
    if (redraws) {
      // Clears the screen, but not the lines that were scrolled out of it.
      std::printf("\x1b[H\x1b[2J%s", FitTerminal(drawn).c_str());
    } else {
      std::printf("%s%s", drawn.c_str(), options.once ? "" : "\n");
    }
    if (std::fflush(stdout) != 0) return kOk;  // For example, the reader of a pipe has ended. `main` reports this.
    if (options.once) return kOk;
    for (int64_t waited = 0; waited < kTopPollMs; waited += kSliceMs) {
      if (*stop != 0) return kOk;
      std::this_thread::sleep_for(std::chrono::milliseconds(kSliceMs));
    }
  }
}

}  // namespace

void AddTop(CLI::App& parent, Action* action) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* app = parent.add_subcommand("top", "show the jobs of a coordinator every second");
  app->footer(
      "Examples:\n  xlad top --coordinator 127.0.0.1:7411\n  xlad top --once --format json\nCtrl-C ends it.");
  app->add_flag("--once", options->once, "print once, and exit");
  AddFormatFlag(app, &options->format);
  AddEndpointFlags(app, &options->endpoint);
  app->callback([=] {
    if (options->format == "json" && !options->once) {
      throw CLI::ValidationError("--format", "found json without --once, expected both");
    }
    *action = [=] { return RunTop(*options); };
  });
}

}  // namespace xlad::cli
