// Which worker runs which mesh positions, and how its collectives go. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"
#include "proto/worker.pb.h"
#include "service/job.h"

namespace xlad::service {

struct FreeWorker {
  RegisterWorker registration;
  int64_t devices = 0;  // Free ones.
};

// As few workers as will do, mesh positions in order, spread as evenly as they go; only workers that can run code
// for `target`. Empty: they do not suffice.
std::vector<Peer> PlaceOnWorkers(const std::vector<FreeWorker>& free, int64_t devices, const Target& target);

// One plan for each of the executable's collectives, every schedule checked.
absl::StatusOr<std::vector<CollectivePlanProto>> PlanCollectives(const Executable& executable,
                                                                 const std::vector<Peer>& peers);

// The launch message for one worker of the job's placed attempt.
LaunchTask LaunchFor(const Job& job, const Peer& peer);

}  // namespace xlad::service
