// The workers that the coordinator knows. Nothing here is in the log: workers register again after a restart.
#pragma once

#include <map>
#include <set>
#include <string>

#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "service/log/ids.h"

namespace xlad::service {

enum class WorkerState {
  kAlive,
  kSuspect,  // Silent for a while, or since peers have lost it; its attempts continue, it gets no new ones.
  kLost,
  kDrained,  // It has left on its own request.
};

struct Worker {
  WorkerId id;
  RegisterWorker registration;
  ConnectionId connection;
  int64_t last_heard_ns = 0;
  int64_t gone_ns = 0;  // When its connection closed, if it has none.
  // From when on a silence of its links counts. A link that was cut together with that to the coordinator takes as long
  // again to recover, because retransmissions become rarer by doubling their distances.
  int64_t links_count_from_ns = 0;
  bool leaving = false;  // It asked to be drained (SIGTERM); ends with its process.
  WorkerState state = WorkerState::kAlive;
  std::string reason;                   // Why it is suspect or lost.
  int64_t since_ns = 0;                 // When it entered its state.
  std::set<JobId> jobs;                 // Whose running attempt is placed here.
  std::map<std::string, int64_t> used;  // Devices of those attempts, by device name.
};

// As clients see it (proto/job.proto). `drained` is true if an operator has drained the worker.
std::string StateName(const Worker& worker, bool drained);

}  // namespace xlad::service
