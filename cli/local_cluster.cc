#include "cli/local_cluster.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/net/network.h"
#include "base/process/child_process.h"
#include "cli/command.h"
#include "runtime/host_threads.h"

namespace xlad::cli {
namespace {

constexpr int64_t kSoonMs = 5000;  // A worker that ends sooner is replaced after a growing delay.
constexpr int64_t kMaxEarlyEnds = 3;
constexpr int64_t kMinWaitMs = 500;
constexpr int64_t kMaxWaitMs = 30'000;

// Returns the file to which the standard error of this process is appended, or "" if the file is not in the folder: it
// then belongs to the user.
std::string OwnLogIn(const std::string& folder) {
  const std::string path = AppendedStderr();
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return !path.empty() && std::filesystem::equivalent(parent, folder, error) ? path : "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(const LocalClusterOptions& options) {
  // In an indexed Job of Kubernetes, this variable is the index of this process, not of the cluster's workers.
  unsetenv("JOB_COMPLETION_INDEX");
  std::unique_ptr<LocalCluster> cluster(new LocalCluster());
  cluster->data_folder_ = options.data_folder;
  cluster->is_users_own_ = options.is_users_own;
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(options.data_folder));
  service::DaemonOptions daemon;
  daemon.listen = options.listen;
  daemon.http = options.http;
  daemon.advertise = options.advertise;
  daemon.data_folder = options.data_folder;
  daemon.program_path = kOwnProgram;
  daemon.cache_folder = options.cache_folder;
  daemon.coordinator = options.coordinator;
  daemon.build_limits = options.build_limits;
  daemon.keep_idle_build = options.keep_idle_build;
  XLAD_ASSIGN_OR_RETURN(cluster->daemon_, service::CoordinatorDaemon::Start(daemon));
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> connection, cluster->WorkerConnection(options));
  const int64_t threads = options.threads > 0 ? options.threads : runtime::HostThreads();
  int64_t all_devices = 0;
  for (const DeviceRequests& requests : options.devices) all_devices += CountDevices(requests);
  for (size_t w = 0; w < options.devices.size(); ++w) {
    const int64_t share = std::max<int64_t>(1, threads * CountDevices(options.devices[w]) / all_devices);
    Worker& worker = cluster->workers_.emplace_back();
    worker.name = absl::StrCat("worker-", w);
    const std::string devices = DeviceFlagText(options.devices[w]);
    worker.argv = {kOwnProgram, "worker",    "--device",          devices,       "--id",
                   worker.name, "--threads", absl::StrCat(share), "--transport", options.transport};
    worker.argv.insert(worker.argv.end(), {"--grace-ms", absl::StrCat(options.grace_ms)});
    worker.argv.insert(worker.argv.end(), connection.begin(), connection.end());
    if (options.any_network) worker.argv.push_back("--insecure-network");
    if (options.workers_log_to_files) worker.log = JoinPath(options.data_folder, absl::StrCat(worker.name, ".log"));
    XLAD_RETURN_IF_ERROR(cluster->StartWorker(&worker));
  }
  cluster->own_log_ = OwnLogIn(options.data_folder);
  return cluster;
}

// The flags that tell a worker how to connect to the coordinator, and at which address other workers reach it.
absl::StatusOr<std::vector<std::string>> LocalCluster::WorkerConnection(const LocalClusterOptions& options) {
  XLAD_ASSIGN_OR_RETURN(const HostPort listen, ParseHostPort(options.listen));
  if (IsLoopback(listen.host)) return std::vector<std::string>{"--coordinator", Address()};
  XLAD_ASSIGN_OR_RETURN(const std::string join, KeepJoinFile("worker.join", {"worker", security::Role::kWorker}));
  if (options.is_users_own) join_files_.push_back(KeepOwnJoinFile(options.data_folder, Address()));
  std::vector<std::string> flags = {"--join", join, "--listen", listen.host};
  if (!options.advertise.empty()) flags.insert(flags.end(), {"--advertise", options.advertise});
  return flags;
}

absl::StatusOr<Endpoint> LocalCluster::OwnEndpoint() {
  if (!IsOffLoopback(Address())) return Endpoint{Address(), "", ""};
  XLAD_ASSIGN_OR_RETURN(const std::string join,
                        KeepJoinFile("operator.join", {OwnUserName(), security::Role::kOperator}));
  return Endpoint{Address(), join, join};
}

absl::StatusOr<std::string> LocalCluster::KeepJoinFile(const char* name, security::Caller caller) {
  service::KeptJoinFile::Options file;
  file.path = JoinPath(data_folder_, absl::StrCat("security/", name));
  file.data_folder = data_folder_;
  file.address = Address();
  file.caller = std::move(caller);
  if (!is_users_own_) file.valid_s = kRunTokenSeconds;
  using AtEnd = service::JoinFileKeeper::AtEnd;
  const AtEnd at_end = is_users_own_ ? AtEnd::kKeepFile : AtEnd::kRevokeTokens;
  XLAD_ASSIGN_OR_RETURN(auto keeper, service::JoinFileKeeper::Start(file, at_end));
  join_files_.push_back(std::move(keeper));
  return file.path;
}

absl::Status LocalCluster::StartWorker(Worker* worker) {
  XLAD_ASSIGN_OR_RETURN(worker->process, ChildProcess::Start(worker->argv, worker->log));
  worker->started_ns = RealClock().NowNs();
  worker->replace_at_ns = 0;
  return absl::OkStatus();
}

LocalCluster::~LocalCluster() {
  workers_.clear();
  if (daemon_ != nullptr) daemon_->Shutdown();
}

std::string LocalCluster::HowEnded(const Worker& worker) {
  return absl::StrCat(worker.name, " (pid ", worker.process->pid(), ") ended: ", worker.process->HowEnded(),
                      worker.log.empty() ? "" : absl::StrCat("; its log: ", worker.log));
}

absl::Status LocalCluster::ReplaceDeadWorkers() {
  absl::Status status;
  for (Worker& worker : workers_) {
    if (!worker.process->HasEnded()) continue;
    const int64_t now_ns = RealClock().NowNs();
    if (worker.replace_at_ns == 0) {
      const bool ended_soon = now_ns - worker.started_ns < kSoonMs * kNsPerMs;
      worker.early_ends = ended_soon ? worker.early_ends + 1 : 0;
      worker.wait_ms = ended_soon ? std::clamp(worker.wait_ms * 2, kMinWaitMs, kMaxWaitMs) : 0;
      worker.replace_at_ns = now_ns + worker.wait_ms * kNsPerMs;
      LogError(HowEnded(worker), {{"replaced_in_ms", absl::StrCat(worker.wait_ms)}});
    }
    if (worker.early_ends >= kMaxEarlyEnds) status = absl::AbortedError(HowEnded(worker));
    if (now_ns < worker.replace_at_ns) continue;
    const absl::Status started = StartWorker(&worker);
    if (started.ok()) {
      LogInfo("worker replaced", {{"worker", worker.name}, {"pid", absl::StrCat(worker.process->pid())}});
      continue;
    }
    LogError("a worker cannot be replaced", {{"worker", worker.name}, {"error", std::string(started.message())}});
    worker.replace_at_ns = now_ns + kMaxWaitMs * kNsPerMs;
  }
  return status;
}

void LocalCluster::RotateLogs() {
  const int64_t now_ns = RealClock().NowNs();
  if (now_ns - logs_checked_ns_ < kNsPerSecond) return;
  logs_checked_ns_ = now_ns;
  absl::Status status;
  if (!own_log_.empty()) status.Update(RotateAppended(own_log_));
  for (const Worker& worker : workers_) {
    if (!worker.log.empty()) status.Update(RotateAppended(worker.log));
  }
  if (!status.ok() && logs_are_rotated_) {
    LogWarn("a large log file cannot be rotated", {{"error", std::string(status.message())}});
  }
  logs_are_rotated_ = status.ok();
}

void LocalCluster::BeginDrain() {
  for (const Worker& worker : workers_) worker.process->Signal(kDrainSignal);
}

bool LocalCluster::Drain(int64_t grace_ms) {
  BeginDrain();
  const int64_t deadline_ns = RealClock().NowNs() + grace_ms * kNsPerMs;
  bool moved = false;
  for (const Worker& worker : workers_) {
    worker.process->WaitFor(std::max<int64_t>(0, (deadline_ns - RealClock().NowNs()) / kNsPerMs));
    moved = moved || worker.process->HowEnded() == absl::StrCat("exit code ", kMoved);
  }
  workers_.clear();
  daemon_->Shutdown();
  return moved;
}

}  // namespace xlad::cli
