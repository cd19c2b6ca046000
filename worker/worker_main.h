// The worker daemon.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/net/grpc_channel.h"
#include "base/skewed_clock.h"
#include "base/status.h"
#include "runtime/device_kind.h"

namespace xlad::worker {

struct WorkerOptions {
  Endpoint coordinator;
  std::vector<runtime::DeviceRequest> devices;  // The devices that this worker offers; each request has a count.
  // The HOST or HOST:PORT on which the worker listens for peers. Without a port, any free port is used. If it is empty,
  // the host is that from which this machine reaches the coordinator (OwnHostTowards in base/net/socket_address.h).
  std::string listen;
  std::string advertise;      // The host to which peers connect. If empty, it is the host of `listen`.
  std::string worker_id;      // If empty, the id that is stored in data_folder is used, or a random id.
  std::string data_folder;    // If empty, nothing is stored.
  std::string ready_file;     // A file that exists while the worker is registered; empty for none.
  int64_t grace_ms = 30'000;  // How long draining may take.
  // The number of cores that all devices together may keep busy; 0 means all cores that this process may use.
  int threads = 0;
  // A task fails if one operation of a collective takes longer than this; 0 means no limit. A limit shorter than the
  // longest time between two collectives of a step would end tasks that are merely slow.
  int64_t progress_limit_ms = 600'000;
  std::string version;       // The version of xlad, for display.
  std::string program_path;  // The path of xlad: `program_path __attempt` is the process of an attempt.
  // Whether a process is kept ready for the next attempt, so that the attempt starts sooner.
  bool keep_idle_attempt = true;
  int64_t memory_limit_bytes = 0;  // The limit on the private memory of each attempt's process; 0 means no limit.
  std::string transport = "auto";  // How messages are sent to other workers (collectives/exec/transports/registry/).
  bool any_network = false;        // Allows a plugin to use networks other than the loopback interface, unencrypted.
  ClockSkew clock_skew;            // For tests: the error of the clock with which this worker measures.
  // The folder of the blobs that the workers of this host share. If empty, there is no cache.
  std::string cache_folder;
  int64_t cache_bytes = int64_t{4} << 30;  // The space on disk that the cache may use.
};

// Why a worker has ended without an error.
enum class WorkerEnd {
  kIdle,       // No task was moved: the worker had no tasks, or they ended by themselves while it drained.
  kWorkMoved,  // Tasks were stopped while it drained; their state is saved, and they continue elsewhere.
};

// Runs until *stop is not 0 and then drains: its tasks stop and save their state, so that other workers can continue
// them. If the coordinator cannot be reached while the worker drains, the tasks continue until the coordinator can be
// reached or the grace period is over. Each attempt runs in a separate process, which ends with the daemon. The calling
// thread must exist as long as the process. `kinds` is the table of device kinds (runtime/devices/registry/) and
// outlives the call. Errors:
//   DeadlineExceeded    if a task was still running at the end of the grace period;
//   InvalidArgument     for options that are wrong, for example an unknown listen host;
//   Unavailable         if this machine has no devices of a requested kind, or if for a minute no name server answers,
//                       or the coordinator's host is unknown or cannot be reached;
//   FailedPrecondition  if the coordinator refused the registration, for example because of the worker's version;
//   another status      if the coordinator refused the connection permanently, for example Unauthenticated.
absl::StatusOr<WorkerEnd> RunWorker(const WorkerOptions& options, runtime::DeviceKinds kinds, std::atomic<int>* stop);

}  // namespace xlad::worker
