// The state of the workers that have registered. It is not in the log, because workers register again after a restart.
#pragma once

#include <map>
#include <set>
#include <string>

#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "service/log/ids.h"

namespace xlad::service {

// A registration of more devices is refused.
inline constexpr int64_t kMaxWorkerDevices = 1 << 16;

enum class WorkerState {
  kAlive,
  // The worker has been silent for suspect_ms, or since a peer lost its connection to it. Its attempts continue, but it
  // gets no new ones.
  kSuspect,
  kLost,     // The worker has been silent for lost_ms, and its attempts have ended.
  kMayExit,  // The worker has asked to be drained, has no attempt anymore, and was told that it may exit.
};

struct Worker {
  WorkerId id;
  RegisterWorker registration;
  ConnectionId connection;
  int64_t last_message_ns = 0;
  int64_t gone_ns = 0;  // When its connection closed. Valid if it has no connection.
  std::string gone_why;  // Why the coordinator ended its connection, for display; empty if it did not.
  // Silence on the worker's links to its peers counts only from this time on. If these links were cut together with the
  // link to the coordinator, they may take as long to recover as they were cut, because TCP doubles the time between
  // retransmissions.
  int64_t links_count_from_ns = 0;
  bool leaving = false;  // Whether it has asked to be drained (SIGTERM). Reset when a new process registers.
  WorkerState state = WorkerState::kAlive;
  std::string reason;                   // Why the worker is suspect or lost.
  int64_t since_ns = 0;                 // When the worker entered its state.
  std::set<JobId> jobs;                 // The jobs whose running attempts are placed on the worker.
  std::map<std::string, int64_t> used;  // The number of devices of these attempts, by device name.
};

// Returns the name of the state for clients (proto/job.proto). `drained` is true if an operator has drained the worker.
std::string StateName(const Worker& worker, bool drained);

}  // namespace xlad::service
