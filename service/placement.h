// Which worker runs which mesh positions, and how its collectives go. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"
#include "proto/worker.pb.h"
#include "service/job.h"

namespace xlad::service {

// Devices of one kind on one worker.
struct WorkerDevices {
  RegisterWorker registration;
  DeviceOffer offer;    // One of the worker's offers.
  int64_t devices = 0;  // How many of the offer's devices count, for example those that are free.
};

// What the worker offers, by kind of device.
std::vector<DeviceOffer> OffersOf(const RegisterWorker& registration);

// The fewest workers that suffice, with mesh positions in order and dealt as evenly as possible. Only devices that can
// run code for `target` are used, so all of them are of one kind. Empty if they do not suffice.
std::vector<Peer> PlaceOnWorkers(const std::vector<WorkerDevices>& free, int64_t devices, const Target& target);

// The kind of device that a job should be compiled for.
struct TargetSelection {
  std::optional<Target> target;  // Set if the workers have such devices, though not necessarily enough yet.
  std::string reason;            // If there is no target: what the job waits for.
  bool is_refusal = false;       // The workers that are there can never run the job.
};

// `workers`: every offer in the cluster with all of its devices. `required` is a device name (proto/device_name.h), or
// empty if any kind will do; then the kind with the most devices is selected. A job runs on devices of one kind: if the
// job needs more devices than any one kind has, but not more than all kinds together, it is refused.
TargetSelection SelectTarget(const std::vector<WorkerDevices>& workers, int64_t devices, const std::string& required);

// One plan for each of the executable's collectives, every schedule checked.
absl::StatusOr<std::vector<CollectivePlanProto>> PlanCollectives(const Executable& executable,
                                                                 const std::vector<Peer>& peers);

// The launch message for one worker of the job's placed attempt.
LaunchTask LaunchFor(const Job& job, const Peer& peer);

}  // namespace xlad::service
