// Assigns mesh positions to workers and plans an executable's collectives. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "service/log/job.h"

namespace xlad::service {

// Devices of one kind on one worker.
struct WorkerDevices {
  const RegisterWorker* registration = nullptr;  // Must outlive this object.
  DeviceOffer offer;                             // One of the worker's offers.
  int64_t devices = 0;                           // The number of devices to consider, for example the free ones.
};

// Returns the devices that the worker offers, one element per kind of device.
std::vector<DeviceOffer> OffersOf(const RegisterWorker& registration);

// Returns the peers of an attempt that takes these numbers of devices of the workers' offers. The positions are in the
// order of the list.
std::vector<Peer> PeersFor(const std::vector<std::pair<const WorkerDevices*, int64_t>>& shares);

// Assigns `shards` mesh positions instead of one to each device of `peers`, which PeersFor has returned.
//
// Example: with 2 shards per device, a worker with the positions 1 and 2 gets 2, 3, 4 and 5.
void GiveShards(int64_t shards, std::vector<Peer>* peers);

// The targets for which a job should be compiled.
struct TargetSelection {
  // The targets of devices that the workers have, though perhaps not enough yet; empty if the targets are undecided. If
  // there are several targets, the job runs on all of them, and devices of the first target get the lowest mesh
  // positions.
  std::vector<Target> targets;
  // With one target, the number of its devices in the cluster. Otherwise the number of devices in the cluster that the
  // job may use.
  int64_t devices = 0;
  // If there is no target, or `is_last_resort` is set: what the job waits for, or why it is refused.
  std::string reason;
  bool is_refusal = false;      // Whether the registered workers can never run the job.
  bool is_kind_missing = false;  // Whether the reason of a refusal is that no worker has devices of a named kind.
  bool is_last_resort = false;  // Whether there are several targets although the job does not name several kinds.
};

// Selects the targets of a job that needs `devices` devices. A target is one kind of device and one model of CPU. If a
// target alone has enough devices, it is selected: of several such targets, the first one that `allowed` names, or the
// one with the most devices if `allowed` is empty. If no target has enough, as many targets as are needed are selected,
// or none if all devices are too few. One exception: if only one target of the cluster is allowed, it is selected even
// if it has too few devices, unless `allowed` names several. A target has only the library ops of all of its devices.
// `workers` has every offer in the cluster with all of its devices. `allowed` is JobSpec.device_name, whose syntax must
// be valid.
TargetSelection SelectTargets(const std::vector<WorkerDevices>& workers, int64_t devices, const std::string& allowed);

// The number of devices that a job may take if `allowed` names several kinds, each with its limit. 0 if `allowed` does
// not name several kinds, because the job then runs on one kind.
int64_t DevicesOfNamedKinds(const std::vector<WorkerDevices>& workers, const std::string& allowed);

// Whether code compiled for one target runs on the other, unless LacksOps.
bool IsSameTarget(const Target& a, const Target& b);
// Whether a device of the same target does not compute all library ops that the code may have, because its worker is of
// an older version.
bool LacksOps(const Target& device, const Target& code);

// The device name and the CPU of a target, for messages: "cpu (znver3)".
std::string TargetText(const Target& target);

// OK if the executable runs on devices of the requested target. Otherwise workers could never run it, and
// InvalidArgument names both targets.
absl::Status CheckCompiledFor(const Executable& executable, const Target& requested);

// Returns one plan per collective of the executable, in order, after checking the schedules of all ranks. An error
// names the collective. `devices` is the number of devices of the mesh.
absl::StatusOr<std::vector<CollectivePlanProto>> PlanCollectives(const Executable& executable, int64_t devices);

// Returns `plans`, which PlanCollectives has returned, with other plans for the collectives whose messages would have
// a different type than their elements. Workers of older versions, which do not set
// RegisterWorker.sends_partials_in_f32, refuse the former plans. Errors are those of PlanCollectives.
absl::StatusOr<std::vector<CollectivePlanProto>> PlansForOldWorkers(const Executable& executable, int64_t devices,
                                                                    std::vector<CollectivePlanProto> plans);

// Returns the mesh axes that split parameters of kind DATA and none of kind STATE: along these axes the batch can be
// divided differently without changing the state's shards. `mesh` is the mesh of the executable.
std::vector<std::string> BatchAxes(const Executable& executable, const JobSpec& spec,
                                   const google::protobuf::RepeatedPtrField<MeshAxis>& mesh);

// Returns the largest mesh with at most `devices` devices that can be made by reducing the size of one of `axes` in
// `mesh`, or an empty mesh if there is none.
google::protobuf::RepeatedPtrField<MeshAxis> ShrunkMesh(const google::protobuf::RepeatedPtrField<MeshAxis>& mesh,
                                                        const std::vector<std::string>& axes, int64_t devices);

// Returns the part of the launch message of the job's current attempt that is the same for all workers.
LaunchTask LaunchOf(const Job& job);
// Returns the part for the worker of `peer`. Its whole launch message is LaunchOf merged with this part.
LaunchTask LaunchFor(const Job& job, const Peer& peer);

}  // namespace xlad::service
