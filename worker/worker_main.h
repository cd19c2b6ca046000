// The worker daemon.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/grpc_channel.h"
#include "base/skewed_clock.h"
#include "base/status.h"
#include "runtime/device_kind.h"

namespace xlad::worker {

struct WorkerOptions {
  Endpoint coordinator;
  std::vector<runtime::DeviceRequest> devices;  // What this worker offers; each has a count.
  std::string listen = "127.0.0.1";  // HOST or HOST:PORT on which peers connect; without a port, on any free one.
  std::string advertise;             // The host by which peers connect; empty: that of `listen`.
  std::string worker_id;                        // Empty: the id kept in data_folder, or a random one.
  std::string data_folder;                      // Empty: nothing is kept.
  int64_t grace_ms = 30'000;                    // How long draining may take.
  int threads = 0;  // The cores that all devices together may keep busy; 0: those that this process may use.
  // A task fails if one operation of a collective takes longer than this; 0: no limit. A limit shorter than the longest
  // time between two collectives of a step ends tasks that are merely slow.
  int64_t progress_limit_ms = 600'000;
  std::string version;             // The version of xlad, for display.
  std::string program_path;        // The path of xlad: `program_path __attempt` is the process of an attempt.
  bool keep_idle_attempt = true;   // Whether a process is kept ready for the next attempt, so that it starts sooner.
  int64_t memory_limit_bytes = 0;  // On the private memory of each attempt's process; 0: none.
  std::string transport = "auto";  // How messages travel to other workers (collectives/exec/transports/registry/).
  bool any_network = false;        // A plugin may use other networks than the loopback interface, unencrypted.
  ClockSkew clock_skew;            // For tests: the clock by which this worker measures is wrong.
  std::string cache_folder;        // The blobs that the workers of this host share; empty: none.
  int64_t cache_bytes = int64_t{4} << 30;  // The space on disk that the cache may use.
};

// Why a worker has ended without an error.
enum class WorkerEnd {
  kIdle,       // No task was moved: it had none, or they ended by themselves while it drained.
  kWorkMoved,  // Tasks were stopped while it drained; their state is saved, and they continue elsewhere.
};

// Runs until *stop is not 0 and then drains: its tasks stop and save their state, so that other workers can continue
// them. If the coordinator cannot be reached while the worker drains, the tasks continue until it can, or until the
// grace is over. Each attempt runs in a process of its own, which ends with this one. The calling thread must exist as
// long as the process. `kinds` is the table of device kinds (runtime/devices/registry/) and outlives the call. Errors:
//   DeadlineExceeded    if a task was still running when the grace was over;
//   InvalidArgument     for options that are wrong, for example an unknown listen host;
//   Unavailable         if this machine has no devices of a requested kind;
//   FailedPrecondition  if the coordinator refused the registration, for example because of the worker's version;
//   another status      if the coordinator refused the connection permanently, for example Unauthenticated.
absl::StatusOr<WorkerEnd> RunWorker(const WorkerOptions& options, runtime::DeviceKinds kinds, std::atomic<int>* stop);

}  // namespace xlad::worker
