// `xlad chaos`: trains a job twice, once undisturbed and once with faults, and compares the results. It starts a new
// cluster for each run.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/process/child_process.h"
#include "base/random.h"
#include "base/rounding.h"
#include "cli/command.h"
#include "cli/fault_proxy.h"
#include "cli/flag_checks.h"
#include "client/coordinator_client.h"
#include "client/job_directory.h"
#include "tensor/safetensors.h"

namespace xlad::cli {
namespace {

constexpr int64_t kStartMs = 20'000;
constexpr int64_t kClientPauseMs = 500;
// The disturbed run is ended after kMaxRecoveryFactor times the duration of the undisturbed one, plus kMaxRecoveryMs.
constexpr double kMaxRecoveryFactor = 10;
constexpr int64_t kMaxRecoveryMs = 300'000;

struct ChaosOptions {
  std::string directory, mesh, folder, format = "table", on_loss = "restart";
  std::vector<std::string> kinds;  // The kinds of faults, or empty for all.
  double minutes = 1;
  double period_s = 60;  // The mean time between the starts of two faults.
  int64_t seed = 1;
  int64_t steps = 0;  // If 0, the number of steps that take `minutes`.
  int64_t workers = 4;
  int64_t checkpoint_every = 10;
};

double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }
void SleepMs(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// --- Processes.

// The processes whose parent is `pid`.
std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/task/", pid, "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

int64_t RssKb(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("VmRSS:", 0) == 0) return std::atoll(line.c_str() + 6);
  }
  return 0;
}

int64_t OpenFiles(pid_t pid) {
  std::error_code error;
  const std::filesystem::directory_iterator files(absl::StrCat("/proc/", pid, "/fd"), error);
  return error ? 0 : std::distance(begin(files), end(files));
}

// A coordinator, its workers, and a proxy between the coordinator and each worker. The processes can be killed and
// started again.
class ChaosCluster {
 public:
  static absl::StatusOr<std::unique_ptr<ChaosCluster>> Start(const ChaosOptions& options, const std::string& folder) {
    std::unique_ptr<ChaosCluster> cluster(new ChaosCluster(options, folder));
    XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(folder));
    XLAD_RETURN_IF_ERROR(cluster->StartCoordinator());
    for (int64_t w = 0; w < options.workers; ++w) {
      XLAD_ASSIGN_OR_RETURN(auto proxy, FaultProxy::Start(cluster->address_));
      cluster->proxies_.push_back(std::move(proxy));
      cluster->workers_.push_back(nullptr);
      XLAD_RETURN_IF_ERROR(cluster->StartWorker(w));
    }
    return cluster;
  }

  const std::string& address() const { return address_; }
  int64_t size() const { return std::ssize(workers_); }
  ChildProcess& coordinator() { return *coordinator_; }
  ChildProcess& worker(int64_t w) { return *workers_[w]; }
  FaultProxy& proxy(int64_t w) { return *proxies_[w]; }

  // Starts the coordinator and waits until it listens. When it is started again, it gets the port that it had before.
  absl::Status StartCoordinator() {
    const std::string log = JoinPath(folder_, absl::StrCat("coordinator-", ++coordinator_starts_, ".log"));
    XLAD_ASSIGN_OR_RETURN(coordinator_, ChildProcess::Start({kOwnProgram, "coordinator", "--listen",
                                                             address_.empty() ? "127.0.0.1:0" : address_, "--data",
                                                             JoinPath(folder_, "data")},
                                                            log));
    const int64_t give_up_ns = RealClock().NowNs() + kStartMs * kNsPerMs;
    while (RealClock().NowNs() < give_up_ns) {
      std::ifstream file(log);
      std::string line;
      while (std::getline(file, line)) {
        const auto json = nlohmann::json::parse(line, nullptr, false);
        if (!json.is_object() || json.value("msg", "") != "coordinator listens") continue;
        address_ = json.value("address", "");
        return absl::OkStatus();
      }
      if (coordinator_->HasEnded()) {
        return absl::AbortedError(
            absl::StrCat("the coordinator ended: ", coordinator_->HowEnded(), "; its log: ", log));
      }
      SleepMs(10);
    }
    return absl::DeadlineExceededError(
        absl::StrCat("the coordinator does not listen after ", kStartMs / 1000, " s; its log: ", log));
  }

  absl::Status StartWorker(int64_t w) {
    const std::string name = absl::StrCat("w", w);
    const int64_t devices = CeilDiv(DevicesOfMesh(), options_.workers);
    XLAD_ASSIGN_OR_RETURN(workers_[w],
                          ChildProcess::Start({kOwnProgram, "worker", "--coordinator", proxies_[w]->Address(),
                                               "--id", name, "--devices", absl::StrCat(devices)},
                                              JoinPath(folder_, absl::StrCat(name, ".log"))));
    return absl::OkStatus();
  }

  // Restarts the processes that have ended, as a supervisor does.
  absl::Status Supervise() {
    if (coordinator_->HasEnded()) XLAD_RETURN_IF_ERROR(StartCoordinator());
    for (int64_t w = 0; w < size(); ++w) {
      if (workers_[w]->HasEnded()) XLAD_RETURN_IF_ERROR(StartWorker(w));
    }
    return absl::OkStatus();
  }

  nlohmann::json Resources() {
    int64_t workers_kb = 0, workers_files = 0;
    for (const auto& worker : workers_) {
      workers_kb += RssKb(worker->pid());
      workers_files += OpenFiles(worker->pid());
    }
    return {{"coordinator_rss_mb", RssKb(coordinator_->pid()) / 1024},
            {"coordinator_files", OpenFiles(coordinator_->pid())},
            {"workers_rss_mb", workers_kb / 1024},
            {"workers_files", workers_files}};
  }

 private:
  ChaosCluster(const ChaosOptions& options, std::string folder) : options_(options), folder_(std::move(folder)) {}

  int64_t DevicesOfMesh() const {
    int64_t devices = 1;
    std::istringstream axes(options_.mesh);
    for (std::string axis; std::getline(axes, axis, ',');) {
      devices *= std::max<int64_t>(1, std::atoll(axis.substr(axis.find('=') + 1).c_str()));
    }
    return devices;
  }

  const ChaosOptions options_;
  const std::string folder_;
  std::string address_;
  int coordinator_starts_ = 0;
  std::unique_ptr<ChildProcess> coordinator_;
  std::vector<std::unique_ptr<FaultProxy>> proxies_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;
};

// --- Faults.

// One fault: `begin` starts it, and `end` ends it `hold_ms` later.
struct Fault {
  std::string kind, victim;
  int64_t hold_ms = 0;
  std::function<absl::Status()> begin, end;
};

int64_t RandomBetween(Random* random, int64_t low, int64_t high) { return low + random->Below(high - low + 1); }

absl::Status SetFileLimit(pid_t pid, rlim_t limit) {
  rlimit now{};
  if (prlimit(pid, RLIMIT_FSIZE, nullptr, &now) != 0) return absl::InternalError("cannot read the limit of file sizes");
  now.rlim_cur = std::min(limit, now.rlim_max);
  if (prlimit(pid, RLIMIT_FSIZE, &now, nullptr) != 0) return absl::InternalError("cannot set the limit of file sizes");
  return absl::OkStatus();
}

absl::Status SignalTo(ChildProcess* process, int signal) {
  process->Signal(signal);
  return absl::OkStatus();
}

Fault CoordinatorFault(const std::string& kind, ChaosCluster* cluster, Random* random) {
  Fault fault{kind, "coordinator", 0, nullptr, nullptr};
  if (kind == "kill-coordinator") {
    fault.hold_ms = RandomBetween(random, 0, 3000);
    fault.begin = [cluster] { return SignalTo(&cluster->coordinator(), SIGKILL); };
    fault.end = [cluster] {
      cluster->coordinator().WaitFor(1000);
      return cluster->Supervise();
    };
  } else if (kind == "stop-coordinator") {
    fault.hold_ms = RandomBetween(random, 2000, 20000);
    fault.begin = [cluster] { return SignalTo(&cluster->coordinator(), SIGSTOP); };
    fault.end = [cluster] { return SignalTo(&cluster->coordinator(), SIGCONT); };
  } else {  // full-disk: the limit on file sizes is 0, so that no file can grow, as if the disk were full.
    fault.hold_ms = RandomBetween(random, 500, 5000);
    fault.begin = [cluster] { return SetFileLimit(cluster->coordinator().pid(), 0); };
    fault.end = [cluster] { return SetFileLimit(cluster->coordinator().pid(), RLIM_INFINITY); };
  }
  return fault;
}

Fault WorkerFault(const std::string& kind, ChaosCluster* cluster, Random* random) {
  const int64_t w = random->Below(cluster->size());
  Fault fault{kind, absl::StrCat("w", w), 0, nullptr, nullptr};
  fault.end = [cluster] { return cluster->Supervise(); };
  if (kind == "kill-worker") {
    fault.hold_ms = RandomBetween(random, 0, 3000);
    fault.begin = [cluster, w] {
      cluster->worker(w).Signal(SIGKILL);
      cluster->worker(w).WaitFor(1000);
      return absl::OkStatus();
    };
  } else if (kind == "kill-attempt") {
    fault.begin = [cluster, w] {
      for (const pid_t child : ChildrenOf(cluster->worker(w).pid())) kill(child, SIGKILL);
      return absl::OkStatus();
    };
  } else if (kind == "stop-worker") {
    fault.hold_ms = RandomBetween(random, 2000, 20000);
    const auto signal_all = [cluster, w](int signal) {
      for (const pid_t child : ChildrenOf(cluster->worker(w).pid())) kill(child, signal);
      return SignalTo(&cluster->worker(w), signal);
    };
    fault.begin = [signal_all] { return signal_all(SIGSTOP); };
    fault.end = [signal_all] { return signal_all(SIGCONT); };
  } else {  // cut
    const std::pair<Path, const char*> paths[] = {{Path::kRefused, "refused"},
                                                  {Path::kBlack, "black"},
                                                  {Path::kNoRequests, "no requests"},
                                                  {Path::kNoAnswers, "no answers"}};
    const auto& [path, name] = paths[random->Below(std::size(paths))];
    fault.kind = absl::StrCat("cut: ", name);
    fault.hold_ms = random->Below(2) == 0 ? RandomBetween(random, 100, 1000) : RandomBetween(random, 1000, 30000);
    fault.begin = [cluster, w, path = path] {
      cluster->proxy(w).Set(path);
      return absl::OkStatus();
    };
    fault.end = [cluster, w] {
      cluster->proxy(w).Set(Path::kOpen);
      return absl::OkStatus();
    };
  }
  return fault;
}

const std::vector<std::string>& FaultKinds() {
  static const std::vector<std::string> kinds = {"kill-worker",      "kill-attempt", "kill-coordinator", "stop-worker",
                                                 "stop-coordinator", "cut",          "full-disk"};
  return kinds;
}

Fault NextFault(const ChaosOptions& options, ChaosCluster* cluster, Random* random) {
  const std::vector<std::string>& kinds = options.kinds.empty() ? FaultKinds() : options.kinds;
  const std::string& kind = kinds[random->Below(kinds.size())];
  const bool of_worker = kind == "kill-worker" || kind == "kill-attempt" || kind == "stop-worker" || kind == "cut";
  return of_worker ? WorkerFault(kind, cluster, random) : CoordinatorFault(kind, cluster, random);
}

// --- Runs.

struct RunResult {
  bool succeeded = false;
  int64_t attempts = 0;
  int64_t steps_again = 0;               // Steps that a later attempt has repeated.
  std::map<std::string, double> time_s;  // The job's time by cause (proto/job.proto, JobTime).
  double wall_s = 0, held_s = 0;
  double median_step_ms = 0, steps_s = 0;  // steps_s is the sum of the times of all steps.
  std::vector<double> losses;
  nlohmann::json faults = nlohmann::json::array();
  nlohmann::json resources_before, resources_after;
  std::string state_path;
};

// The command that submits the job and follows it to its end. If the coordinator is unreachable for too long, the
// client ends and is started again. It then follows the same job, because the key is the same.
std::vector<std::string> SubmitCommand(const ChaosOptions& options, int64_t steps, const std::string& address,
                                       const std::string& folder) {
  return {kOwnProgram,
          "submit",
          options.directory,
          "--mesh",
          options.mesh,
          "--steps",
          absl::StrCat(steps),
          "--coordinator",
          address,
          "--key",
          "chaos",
          "--on-loss",
          options.on_loss,
          "--checkpoint-every",
          absl::StrCat(options.checkpoint_every),
          "--wait",
          "--save-state",
          JoinPath(folder, "state.safetensors"),
          "--curve",
          JoinPath(folder, "curve.json")};
}

void ReadCurve(const std::string& path, RunResult* result) {
  std::ifstream file(path);
  const auto curve = nlohmann::json::parse(file, nullptr, false);
  if (!curve.is_object()) return;
  result->losses = curve.value("loss", std::vector<double>());
  std::vector<double> times = curve.value("step_ms", std::vector<double>());
  if (times.empty()) return;
  result->steps_s = std::accumulate(times.begin(), times.end(), 0.0) / 1000;
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  result->median_step_ms = times[times.size() / 2];
}

// Reads how the only job of the cluster has spent its time.
absl::Status ReadLosses(const std::string& address, RunResult* result) {
  XLAD_ASSIGN_OR_RETURN(const auto client, client::CoordinatorClient::Connect({address, "", ""}));
  XLAD_ASSIGN_OR_RETURN(const std::vector<JobStatus> jobs, client->ListJobs());
  if (jobs.empty()) return absl::OkStatus();  // The submission was not acknowledged.
  result->attempts = jobs[0].attempt();
  XLAD_ASSIGN_OR_RETURN(const WhyJobResponse why, client->Why(jobs[0].id()));
  for (const JobTime& time : why.time()) result->time_s[time.cause()] = time.seconds();
  XLAD_ASSIGN_OR_RETURN(const JobLogResponse log, client->Log(jobs[0].id()));
  int64_t reached = 0;
  for (const JobLogResponse::Event& event : log.events()) {
    if (event.kind() == "attempt_ended") reached = event.step();
    if (event.kind() == "placed") result->steps_again += std::max<int64_t>(0, reached - event.step());
    if (event.kind() == "placed") reached = 0;
  }
  return absl::OkStatus();
}

// Runs the job until it ends or `limit_s` seconds have passed. If `random` is null, there are no faults.
absl::StatusOr<RunResult> RunJob(const ChaosOptions& options, const std::string& name, int64_t steps, double limit_s,
                                 Random* random) {
  const std::string folder = JoinPath(options.folder, name);
  XLAD_ASSIGN_OR_RETURN(const auto cluster, ChaosCluster::Start(options, folder));
  const std::vector<std::string> command = SubmitCommand(options, steps, cluster->address(), folder);
  const std::string log = JoinPath(folder, "client.log");
  XLAD_ASSIGN_OR_RETURN(auto client, ChildProcess::Start(command, log));
  RunResult result;
  const int64_t start_ns = RealClock().NowNs();
  const auto now_s = [&] { return Seconds(RealClock().NowNs() - start_ns); };
  std::optional<Fault> fault;
  double due_s = random == nullptr ? 1e18 : options.period_s * (0.5 + random->Unit()), until_s = 0, since_s = 0;
  while (now_s() < limit_s && *StopRequested() == 0) {
    SleepMs(20);
    if (fault.has_value() && now_s() >= until_s) {
      XLAD_RETURN_IF_ERROR(fault->end());
      result.held_s += now_s() - since_s;
      fault.reset();
    }
    if (!fault.has_value()) XLAD_RETURN_IF_ERROR(cluster->Supervise());
    if (client->HasEnded()) {
      if (client->HowEnded() == "exit code 0" || !fault.has_value()) {
        result.succeeded = client->HowEnded() == "exit code 0";
        if (result.succeeded || client->HowEnded() != absl::StrCat("exit code ", kUnavailable)) break;
      }
      SleepMs(kClientPauseMs);
      XLAD_ASSIGN_OR_RETURN(client, ChildProcess::Start(command, log));
    }
    if (fault.has_value() || now_s() < due_s) continue;
    // The resources are measured just before the first fault, when all processes have begun their work.
    if (result.faults.empty()) result.resources_before = cluster->Resources();
    fault = NextFault(options, cluster.get(), random);
    since_s = now_s();
    until_s = since_s + static_cast<double>(fault->hold_ms) / 1000;
    due_s = std::max(due_s + options.period_s * (0.5 + random->Unit()), until_s);
    result.faults.push_back({{"at_s", since_s},
                             {"kind", fault->kind},
                             {"victim", fault->victim},
                             {"held_s", static_cast<double>(fault->hold_ms) / 1000}});
    XLAD_RETURN_IF_ERROR(fault->begin());
  }
  if (fault.has_value()) XLAD_RETURN_IF_ERROR(fault->end());
  result.wall_s = now_s();
  if (*StopRequested() == 0) {
    const absl::Status read = ReadLosses(cluster->address(), &result);
    if (!read.ok()) LogWarn("the report cannot say what was lost", {{"error", std::string(read.message())}});
  }
  result.resources_after = cluster->Resources();
  result.state_path = JoinPath(folder, "state.safetensors");
  ReadCurve(JoinPath(folder, "curve.json"), &result);
  return result;
}

// The names of the parameters whose bits differ.
absl::StatusOr<std::vector<std::string>> Differences(const std::string& path, const std::string& other_path) {
  XLAD_ASSIGN_OR_RETURN(const tensor::NamedArrays state, tensor::ReadSafetensors(RealFileSystem(), path));
  XLAD_ASSIGN_OR_RETURN(const tensor::NamedArrays other, tensor::ReadSafetensors(RealFileSystem(), other_path));
  std::vector<std::string> names;
  for (const auto& [name, array] : state) {
    const auto found = other.find(name);
    const bool same = found != other.end() && found->second.shape() == array.shape() &&
                      std::equal(array.bytes().begin(), array.bytes().end(), found->second.bytes().begin());
    if (!same) names.push_back(name);
  }
  return names;
}

std::string ToTable(const nlohmann::json& report) {
  std::string text;
  for (const auto& fault : report["faults"]) {
    absl::StrAppendFormat(&text, "%8.1f s  %-18s %-12s held %.1f s\n", fault.value("at_s", 0.0),
                          fault.value("kind", ""), fault.value("victim", ""), fault.value("held_s", 0.0));
  }
  const auto lost = report.value("lost", nlohmann::json::object());
  absl::StrAppendFormat(&text, "lost: %d attempts, %d steps that were repeated; seconds more than the undisturbed run:",
                        lost.value("attempts", int64_t{0}), lost.value("steps", int64_t{0}));
  for (const auto& [cause, seconds] : lost.value("seconds", nlohmann::json::object()).items()) {
    absl::StrAppendFormat(&text, " %s %.1f", cause, seconds.get<double>());
  }
  absl::StrAppendFormat(&text, "\n%d steps, goodput %.1f %%, final parameters %s, losses %s\n",
                        report.value("steps", int64_t{0}), 100 * report.value("goodput", 0.0),
                        report.value("same_parameters", false) ? "equal to the undisturbed run's" : "DIFFER",
                        report.value("same_losses", false) ? "equal" : "DIFFER");
  return text;
}

// What the faults have cost: attempts and steps that were repeated, and by cause the seconds that the job needed more
// than without faults. A cause is negative if the job needed fewer.
nlohmann::json Lost(const RunResult& calm, const RunResult& run) {
  nlohmann::json seconds = nlohmann::json::object();
  for (const auto& [cause, spent] : run.time_s) {
    const auto usual = calm.time_s.find(cause);
    seconds[cause] = spent - (usual == calm.time_s.end() ? 0 : usual->second);
  }
  return {{"attempts", std::max<int64_t>(0, run.attempts - 1)}, {"steps", run.steps_again}, {"seconds", seconds}};
}

// The first mesh with axes in the manifest, as a value of --mesh. If the manifest cannot be read or has no such mesh:
// "single". Then ReadJobDirectory reports what is wrong.
std::string FirstMesh(const std::string& directory) {
  std::ifstream file(JoinPath(directory, "manifest.json"));
  const auto manifest = nlohmann::ordered_json::parse(file, nullptr, false);
  const auto none = nlohmann::ordered_json::array();
  for (const auto& mesh : manifest.is_object() ? manifest.value("meshes", none) : none) {
    if (!mesh.is_object() || !mesh.contains("axes") || !mesh["axes"].is_object() || mesh["axes"].empty()) continue;
    std::vector<std::string> axes;
    for (const auto& [name, size] : mesh["axes"].items()) axes.push_back(absl::StrCat(name, "=", size.dump()));
    return absl::StrJoin(axes, ",");
  }
  return "single";
}

absl::StatusOr<nlohmann::json> Measure(const ChaosOptions& options) {
  constexpr int64_t kTrialSteps = 100;
  // Errors in the job directory are reported before any process is started.
  XLAD_RETURN_IF_ERROR(
      client::ReadJobDirectory(RealFileSystem(), options.directory, options.mesh, /*steps=*/-1).status());
  int64_t steps = options.steps;
  if (steps == 0) {
    XLAD_ASSIGN_OR_RETURN(const RunResult trial, RunJob(options, "trial", kTrialSteps, 300, nullptr));
    if (!trial.succeeded || trial.median_step_ms <= 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("the job does not run without faults; see ", JoinPath(options.folder, "trial/client.log")));
    }
    steps = std::max<int64_t>(kTrialSteps, static_cast<int64_t>(options.minutes * 60'000 / trial.median_step_ms));
  }
  XLAD_ASSIGN_OR_RETURN(const RunResult calm, RunJob(options, "undisturbed", steps, 1e9, nullptr));
  if (!calm.succeeded) {
    return absl::FailedPreconditionError(
        absl::StrCat("the undisturbed run failed; see ", JoinPath(options.folder, "undisturbed/client.log")));
  }
  const auto random = SeededRandom(options.seed);
  const double limit_s = calm.wall_s * kMaxRecoveryFactor + static_cast<double>(kMaxRecoveryMs) / 1000;
  XLAD_ASSIGN_OR_RETURN(const RunResult run, RunJob(options, "disturbed", steps, limit_s, random.get()));
  nlohmann::json report = {{"seed", options.seed},
                           {"mesh", options.mesh},
                           {"steps", steps},
                           {"succeeded", run.succeeded},
                           {"faults", run.faults},
                           {"undisturbed_s", calm.wall_s},
                           {"disturbed_s", run.wall_s},
                           {"held_s", run.held_s},
                           {"step_ms", calm.median_step_ms},
                           {"time_s", run.time_s},
                           {"lost", Lost(calm, run)},
                           {"goodput", run.succeeded ? calm.steps_s / std::max(1e-9, run.wall_s - run.held_s) : 0.0},
                           {"resources_before", run.resources_before},
                           {"resources_after", run.resources_after},
                           {"same_parameters", false},
                           {"same_losses", run.losses == calm.losses},
                           {"folder", options.folder}};
  if (run.succeeded) {
    XLAD_ASSIGN_OR_RETURN(const auto different, Differences(calm.state_path, run.state_path));
    report["same_parameters"] = different.empty();
    report["different_parameters"] = different;
  }
  return report;
}

int RunChaos(ChaosOptions options) {
  const bool keeps_folder = !options.folder.empty();
  if (!keeps_folder) {
    const auto temporary = TemporaryFolder();
    if (!temporary.ok()) return Fail(temporary.status());
    options.folder = JoinPath(*temporary, absl::StrCat("xlad-chaos-", getpid(), "-", SystemRandom()->Hex(3)));
  }
  if (options.mesh.empty()) options.mesh = FirstMesh(options.directory);
  std::error_code ignored;
  const auto report = Measure(options);
  if (*StopRequested() != 0) {
    if (!keeps_folder) std::filesystem::remove_all(options.folder, ignored);
    return kInterrupted;
  }
  if (!report.ok()) return Fail(report.status());
  std::printf("%s", options.format == "json" ? (report->dump(2) + "\n").c_str() : ToTable(*report).c_str());
  const bool good = report->value("same_parameters", false) && report->value("same_losses", false);
  if (good && !keeps_folder) std::filesystem::remove_all(options.folder, ignored);
  if (!good) std::fprintf(stderr, "xlad: logs: %s\n", options.folder.c_str());
  return good ? kOk : kFailed;
}

}  // namespace

void AddChaos(CLI::App& parent, Action* action) {
  auto options = std::make_shared<ChaosOptions>();
  CLI::App* app = parent.add_subcommand("chaos",
                                        "train a job twice, on new clusters, without and with faults, "
                                        "and compare the results");
  app->footer(
      "Example:\n  xlad chaos examples/spiral_mlp --minutes 5 --seed 7 --period 10 --format json\n"
      "The exit code is 1 if the disturbed run fails, or if its losses or final parameters differ in any bit.\n"
      "The same seed repeats the same faults.");
  app->add_option("JOBDIR", options->directory, "job directory")->required();
  app->add_option("--minutes", options->minutes, "how long the undisturbed run takes")
      ->capture_default_str()
      ->check(PositiveNumber());
  app->add_option("--steps", options->steps, "steps, instead of --minutes")->check(AtLeast(1));
  app->add_option("--seed", options->seed, "seed of the faults: their kinds, victims and times")->capture_default_str();
  app->add_option("--period", options->period_s, "seconds between faults, on average")
      ->capture_default_str()
      ->check(PositiveNumber());
  app->add_option("--faults", options->kinds, "the kinds of faults; default: all")
      ->delimiter(',')
      ->check(OneOf(FaultKinds()));
  app->add_option("--mesh", options->mesh, "mesh axes and sizes; default: the manifest's first mesh with axes")
      ->check(MeshAxes());
  app->add_option("--workers", options->workers, "worker processes, with the same number of devices each")
      ->capture_default_str()
      ->check(Between(1, 64));
  app->add_option("--checkpoint-every", options->checkpoint_every, "steps between checkpoints")
      ->capture_default_str()
      ->check(AtLeast(1));
  app->add_option("--on-loss", options->on_loss, "restart, shrink or wait")
      ->capture_default_str()
      ->check(OneOf({"restart", "shrink", "wait"}));
  app->add_option("--data", options->folder, "keep logs in this folder");
  AddFormatFlag(app, &options->format);
  app->callback([=] { *action = [=] { return RunChaos(*options); }; });
}

}  // namespace xlad::cli
