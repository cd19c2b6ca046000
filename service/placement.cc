#include "service/placement.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/plan/check.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/spec_proto.h"
#include "proto/device_name.h"

namespace xlad::service {

namespace {

bool IsSameTarget(const Target& a, const Target& b) {
  return DeviceName(a) == DeviceName(b) && a.cpu() == b.cpu() && a.features() == b.features();
}

}  // namespace

std::vector<DeviceOffer> OffersOf(const RegisterWorker& registration) {
  if (registration.offers_size() > 0) return {registration.offers().begin(), registration.offers().end()};
  DeviceOffer offer;
  offer.set_count(registration.devices());
  *offer.mutable_target() = registration.target();
  return {offer};
}

TargetSelection SelectTarget(const std::vector<WorkerDevices>& workers, int64_t devices, const std::string& required) {
  struct Pool {
    Target target;
    int64_t devices = 0;
    std::vector<std::string> workers;
  };
  std::map<std::string, Pool> pools;
  int64_t all_devices = 0;
  for (const WorkerDevices& worker : workers) {
    Pool& pool = pools[DeviceName(worker.offer.target())];
    if (pool.devices == 0) pool.target = worker.offer.target();
    pool.devices += worker.devices;
    all_devices += worker.devices;
    pool.workers.push_back(absl::StrCat(worker.devices, " on ", worker.registration.worker_id()));
  }
  if (pools.empty()) return {std::nullopt, "waits for a worker to register"};
  const std::string found = absl::StrJoin(pools, "; ", [](std::string* out, const auto& pool) {
    absl::StrAppend(out, pool.first, ": ", absl::StrJoin(pool.second.workers, ", "));
  });
  if (!required.empty()) {
    const auto pool = pools.find(required);
    if (pool != pools.end()) return {pool->second.target};
    return {std::nullopt,
            absl::StrCat("no worker has devices of kind ", required, "; the workers have ", found,
                         "; start a worker with --device ", required),
            true};
  }
  const auto largest = std::max_element(pools.begin(), pools.end(), [](const auto& a, const auto& b) {
    return a.second.devices < b.second.devices;
  });
  if (pools.size() == 1 || largest->second.devices >= devices) return {largest->second.target};
  if (all_devices < devices) {
    return {std::nullopt, absl::StrCat("waits for ", devices, " devices of one kind; the workers have ", found)};
  }
  return {std::nullopt,
          absl::StrCat("the job needs ", devices, " devices of one kind; the workers have ", found,
                       "; mixed jobs, which run on several kinds of device, are not supported yet"),
          true};
}

std::vector<Peer> PlaceOnWorkers(const std::vector<WorkerDevices>& free, int64_t devices, const Target& target) {
  std::vector<WorkerDevices> fit;
  for (const WorkerDevices& worker : free) {
    if (IsSameTarget(worker.offer.target(), target)) fit.push_back(worker);
  }
  std::stable_sort(fit.begin(), fit.end(), [](const auto& a, const auto& b) { return a.devices > b.devices; });
  size_t workers = 0;
  int64_t capacity = 0;
  while (workers < fit.size() && capacity < devices) capacity += fit[workers++].devices;
  if (capacity < devices) return {};
  fit.resize(workers);

  // Deal one device at a time to the worker that has the fewest and still has room.
  std::vector<int64_t> share(workers, 0);
  for (int64_t dealt = 0; dealt < devices; ++dealt) {
    size_t best = workers;
    for (size_t w = 0; w < workers; ++w) {
      if (share[w] < fit[w].devices && (best == workers || share[w] < share[best])) best = w;
    }
    ++share[best];
  }
  std::vector<Peer> peers;
  int32_t next = 0;
  for (size_t w = 0; w < workers; ++w) {
    if (share[w] == 0) continue;
    const RegisterWorker& registration = fit[w].registration;
    Peer& peer = peers.emplace_back();
    peer.set_worker_id(registration.worker_id());
    peer.set_incarnation(registration.incarnation());
    peer.set_host(registration.host());
    peer.set_pid(registration.pid());
    peer.set_data_address(registration.data_address());
    peer.set_device_name(DeviceName(fit[w].offer.target()));
    for (int64_t i = 0; i < share[w]; ++i) peer.add_devices(next++);
  }
  return peers;
}

absl::StatusOr<std::vector<CollectivePlanProto>> PlanCollectives(const Executable& executable,
                                                                 const std::vector<Peer>& peers) {
  int devices = 0;
  for (const Peer& peer : peers) devices += peer.devices_size();
  std::vector<CollectivePlanProto> plans;
  for (const CollectiveSpec& proto : executable.collectives()) {
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectiveSpec spec, collectives::SpecFromProto(proto, devices));
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectivePlan plan, collectives::MakePlan(spec));
    XLAD_RETURN_IF_ERROR(collectives::CheckPlan(plan, spec));
    XLAD_ASSIGN_OR_RETURN(const uint64_t hash, collectives::ScheduleHash(plan, spec));
    plans.push_back(collectives::PlanToProto<CollectivePlanProto>(plan, hash));
  }
  return plans;
}

LaunchTask LaunchFor(const Job& job, const Peer& peer) {
  LaunchTask launch;
  launch.set_job_id(job.id);
  launch.set_attempt(job.placed.attempt());
  launch.set_generation(job.placed.generation());
  launch.set_executable_digest(job.executable_digest);
  for (const int32_t device : peer.devices()) launch.add_devices()->set_device(device);
  *launch.mutable_peers() = job.placed.peers();
  *launch.mutable_plans() = job.placed.plans();
  *launch.mutable_spec() = job.spec;
  launch.set_first_step(job.placed.first_step());
  launch.set_state_blob(job.placed.state_blob());
  return launch;
}

}  // namespace xlad::service
