#include "cli/run_launched.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/net/network.h"
#include "base/process/child_process.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "cli/local_cluster.h"
#include "collectives/exec/bootstrap/rendezvous.h"
#include "collectives/exec/group/control.h"
#include "runtime/devices/registry/registry.h"
#include "storage/host_cache.h"
#include "worker/worker_main.h"

namespace xlad::cli {
namespace {

constexpr char kCoordinator[] = "coordinator";
constexpr char kEnd[] = "end";
// Rank 0 starts its coordinator in about a second, but the other ranks may have been started much earlier. On NFS, a
// host may see the files of another host a minute late.
constexpr int64_t kArriveMs = 60'000, kArriveOnSharedFolderMs = 180'000;
constexpr int64_t kForeverMs = int64_t{100} * 365 * 86'400'000;
constexpr std::chrono::milliseconds kLookEvery{50};

// Without --meet, the processes find each other through files of this host, and connect without a secret.
absl::Status CheckAllAreHere(const collectives::Launch& launch) {
  if (launch.local_ranks == launch.ranks) return absl::OkStatus();
  const std::string found =
      launch.local_ranks.has_value()
          ? absl::StrCat(*launch.local_ranks, " of ", launch.ranks, " processes of ", launch.launcher, " on this host")
          : absl::StrCat("rank ", launch.rank, " of ", launch.ranks, " by ", launch.launcher,
                         ", which does not say how many ranks are on this host");
  return absl::UnimplementedError(absl::StrCat(
      "found ", found,
      ", expected all; on several hosts, let the processes meet in a folder that all hosts share "
      "(--meet FOLDER --listen INTERFACE), or set XLAD_RANK=0 and XLAD_RANKS=1 to run this process alone"));
}

}  // namespace

void AddHostsFlags(CLI::App* app, HostsFlags* flags) {
  CLI::Option* const meet =
      app->add_option("--meet", flags->meet,
                      "if a launcher such as mpirun has started this command on several hosts: a folder that all hosts "
                      "share and no other run uses at the same time")
          ->check(Folder());
  CLI::Option* const listen =
      app->add_option("--listen", flags->listen,
                      "with --meet: the host, address or interface by which the other hosts reach this one")
          ->transform(InterfaceAddress())
          ->check(Host());
  meet->needs(listen);
  listen->needs(meet);
}

absl::StatusOr<std::optional<collectives::Launch>> LaunchOfRun(const HostsFlags& flags) {
  XLAD_ASSIGN_OR_RETURN(std::optional<collectives::Launch> launch, collectives::DetectLaunch());
  if (!flags.meet.empty() && !launch.has_value()) {
    return WrongUsage(absl::InvalidArgumentError(
        "--meet: found no launcher, expected several processes that mpirun or srun has started; without a launcher, "
        "use `xlad coordinator` and `xlad worker` (docs/howto/run-on-several-hosts.md)"));
  }
  if (!flags.meet.empty() && IsLoopback(flags.listen)) {
    return WrongUsage(absl::InvalidArgumentError(absl::StrCat(
        "--listen: found ", flags.listen, ", expected an address of this host that the other hosts can reach")));
  }
  if (!launch.has_value() || launch->ranks == 1) return std::optional<collectives::Launch>();
  if (flags.meet.empty()) XLAD_RETURN_IF_ERROR(CheckAllAreHere(*launch));
  return launch;
}

LaunchedRun::LaunchedRun(const collectives::Launch& launch, std::string listen,
                         std::unique_ptr<collectives::MeetingFolder> folder)
    : launch_(launch),
      listen_(std::move(listen)),
      folder_(std::move(folder)),
      values_(collectives::FileBootstrap(RealFileSystem(), folder_->path())) {}

absl::StatusOr<std::unique_ptr<LaunchedRun>> LaunchedRun::Open(const collectives::Launch& launch,
                                                               const HostsFlags& flags) {
  std::string path;
  if (flags.meet.empty()) {
    XLAD_ASSIGN_OR_RETURN(const std::string folder, collectives::ControlFolder());
    path = absl::StrCat(folder, "/meet-", launch.key, "-run");
  } else {
    std::error_code ignored;
    path = absl::StrCat(std::filesystem::absolute(flags.meet, ignored).string(), "/meet-launch-run");
    // The folder may be left over from a run whose processes were killed.
    collectives::MeetingFolder::RemoveIfUnused(path);
  }
  XLAD_ASSIGN_OR_RETURN(auto meeting, collectives::MeetingFolder::Open(path));
  return std::unique_ptr<LaunchedRun>(new LaunchedRun(launch, flags.listen, std::move(meeting)));
}

std::string LaunchedRun::ListenAddress() const { return JoinHostPort(listen_.empty() ? "127.0.0.1" : listen_, 0); }

std::string LaunchedRun::JoinFile() const { return JoinPath(folder_->path(), "worker.join"); }

absl::Status LaunchedRun::PutCoordinator(const std::string& address, const std::string& data_folder) {
  if (!listen_.empty()) {
    XLAD_ASSIGN_OR_RETURN(join_file_,
                          service::JoinFileKeeper::Start({.path = JoinFile(),
                                                          .data_folder = data_folder,
                                                          .address = address,
                                                          .caller = {"worker", security::Role::kWorker},
                                                          .valid_s = kRunTokenSeconds},
                                                         service::JoinFileKeeper::AtEnd::kRevokeTokens));
  }
  return values_->Put(kCoordinator, address);
}

absl::Status LaunchedRun::PutEnd(int exit_code) { return values_->Put(kEnd, absl::StrCat(exit_code)); }

absl::StatusOr<std::string> LaunchedRun::Await(const char* name, int64_t patience_ms,
                                               const std::function<bool()>& ends) const {
  const int64_t deadline_ns = RealClock().NowNs() + patience_ms * kNsPerMs;
  while (true) {
    absl::StatusOr<std::string> value = values_->Get(name);
    if (value.ok() || ends() || RealClock().NowNs() >= deadline_ns) return value;
    std::this_thread::sleep_for(kLookEvery);
  }
}

int LaunchedRun::RunWorker(const WorkerPart& part) {
  const int64_t arrive_ms = listen_.empty() ? kArriveMs : kArriveOnSharedFolderMs;
  const auto has_end = [this] { return values_->Get(kEnd).ok(); };
  const absl::StatusOr<std::string> address = Await(kCoordinator, arrive_ms, has_end);
  if (!address.ok() && has_end()) return kFailed;  // Rank 0 has printed the reason.
  if (!address.ok()) {
    return Fail(absl::DeadlineExceededError(
        absl::StrCat("rank ", rank(), ": rank 0 has not started the coordinator within ", arrive_ms, " ms")));
  }
  worker::WorkerOptions options;
  options.coordinator.address = *address;
  if (!listen_.empty()) {
    options.coordinator.ca_file = options.coordinator.token_file = JoinFile();
    options.listen = listen_;
  }
  options.devices = part.devices;
  options.worker_id = absl::StrCat("worker-", rank());
  options.threads = part.threads;
  options.program_path = kOwnProgram;
  options.version = XLAD_VERSION;
  options.transport = part.transport;
  options.any_network = part.any_network;
  options.cache_folder = storage::HostCache::DefaultFolder();
  options.grace_ms = kRunDrainMs;
  std::atomic<int>* const stop = StopRequested();
  std::atomic<bool> worker_has_ended = false;
  std::thread watch([&] {
    Await(kEnd, kForeverMs, [&] { return worker_has_ended.load(); }).IgnoreError();
    int none = 0;
    stop->compare_exchange_strong(none, SIGTERM);
  });
  const auto end = worker::RunWorker(options, runtime::AllDeviceKinds(), stop);
  worker_has_ended = true;
  watch.join();
  // After a drain, rank 0 commits the checkpoint before it sets the exit code.
  const bool is_drained = end.ok() && *end == worker::WorkerEnd::kWorkMoved;
  const absl::StatusOr<std::string> text = Await(kEnd, arrive_ms, [&] { return !is_drained; });
  int code = kFailed;
  if (text.ok() && absl::SimpleAtoi(*text, &code)) return code;
  if (is_drained) return kMoved;
  return end.ok() ? kFailed : Fail(end.status());
}

}  // namespace xlad::cli
