#include "cli/run_launched.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "cli/command.h"
#include "collectives/exec/bootstrap/rendezvous.h"
#include "collectives/exec/group/control.h"
#include "runtime/devices/registry/registry.h"
#include "storage/host_cache.h"
#include "worker/worker_main.h"

namespace xlad::cli {
namespace {

constexpr char kCoordinator[] = "coordinator";
constexpr char kEnd[] = "end";
// Rank 0 starts its coordinator in about a second, but the other ranks may have been started much earlier.
constexpr int64_t kArriveMs = 60'000;
constexpr std::chrono::milliseconds kLookEvery{50};

// The processes find each other through files, and connect without a secret, so all must be on this host.
absl::Status CheckAllAreHere(const collectives::Launch& launch) {
  if (launch.local_ranks == launch.ranks) return absl::OkStatus();
  const std::string found =
      launch.local_ranks.has_value()
          ? absl::StrCat(*launch.local_ranks, " of ", launch.ranks, " processes of ", launch.launcher, " on this host")
          : absl::StrCat("rank ", launch.rank, " of ", launch.ranks, " by ", launch.launcher,
                         ", which does not say how many ranks are on this host");
  return absl::UnimplementedError(absl::StrCat(
      "found ", found, ", expected all; start the processes on one host, or start `xlad coordinator` and let the "
      "launcher start `xlad worker --join FILE` on the hosts (docs/howto/run-on-several-hosts.md), or set XLAD_RANK=0 "
      "and XLAD_RANKS=1 to run this process alone"));
}

}  // namespace

absl::StatusOr<std::optional<collectives::Launch>> LaunchOfRun() {
  XLAD_ASSIGN_OR_RETURN(std::optional<collectives::Launch> launch, collectives::DetectLaunch());
  if (!launch.has_value() || launch->ranks == 1) return std::optional<collectives::Launch>();
  XLAD_RETURN_IF_ERROR(CheckAllAreHere(*launch));
  return launch;
}

LaunchedRun::LaunchedRun(const collectives::Launch& launch, std::unique_ptr<collectives::MeetingFolder> folder)
    : launch_(launch),
      folder_(std::move(folder)),
      values_(collectives::FileBootstrap(RealFileSystem(), folder_->path())) {}

absl::StatusOr<std::unique_ptr<LaunchedRun>> LaunchedRun::Open(const collectives::Launch& launch) {
  XLAD_ASSIGN_OR_RETURN(const std::string folder, collectives::ControlFolder());
  XLAD_ASSIGN_OR_RETURN(auto meeting,
                        collectives::MeetingFolder::Open(absl::StrCat(folder, "/meet-", launch.key, "-run")));
  return std::unique_ptr<LaunchedRun>(new LaunchedRun(launch, std::move(meeting)));
}

absl::Status LaunchedRun::PutCoordinator(const std::string& address) { return values_->Put(kCoordinator, address); }

absl::Status LaunchedRun::PutEnd(int exit_code) { return values_->Put(kEnd, absl::StrCat(exit_code)); }

int LaunchedRun::RunWorker(const WorkerPart& part) {
  const int64_t deadline_ns = RealClock().NowNs() + kArriveMs * kNsPerMs;
  absl::StatusOr<std::string> address = values_->Get(kCoordinator);
  while (!address.ok() && RealClock().NowNs() < deadline_ns) {
    std::this_thread::sleep_for(kLookEvery);
    if (values_->Get(kEnd).ok()) return kFailed;  // Rank 0 has printed the reason.
    address = values_->Get(kCoordinator);
  }
  if (!address.ok()) {
    return Fail(absl::DeadlineExceededError(
        absl::StrCat("rank ", rank(), ": rank 0 has not started the coordinator within ", kArriveMs, " ms")));
  }
  worker::WorkerOptions options;
  options.coordinator.address = *address;
  options.devices = part.devices;
  options.worker_id = absl::StrCat("worker-", rank());
  options.threads = part.threads;
  options.program_path = kOwnProgram;
  options.version = XLAD_VERSION;
  options.transport = part.transport;
  options.any_network = part.any_network;
  options.cache_folder = storage::HostCache::DefaultFolder();
  std::atomic<int>* const stop = StopRequested();
  std::atomic<bool> worker_has_ended = false;
  std::thread watch([&] {
    while (!worker_has_ended && !values_->Get(kEnd).ok()) std::this_thread::sleep_for(kLookEvery);
    *stop = 1;
  });
  const auto end = worker::RunWorker(options, runtime::AllDeviceKinds(), stop);
  worker_has_ended = true;
  watch.join();
  int code = kFailed;
  const absl::StatusOr<std::string> text = values_->Get(kEnd);
  if (text.ok() && absl::SimpleAtoi(*text, &code)) return code;
  return end.ok() ? kFailed : Fail(end.status());
}

}  // namespace xlad::cli
