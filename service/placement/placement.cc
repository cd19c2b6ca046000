#include "service/placement/placement.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/containers.h"
#include "collectives/plan/check.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/message_type.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/spec_proto.h"
#include "proto/device_name.h"
#include "security/session_keys.h"
#include "service/placement/device_mix.h"

namespace xlad::service {

bool IsSameTarget(const Target& a, const Target& b) {
  const bool same_name = a.device_kind() == b.device_kind() && a.device_model() == b.device_model();
  const bool same_code = a.cpu() == b.cpu() && a.features() == b.features() && a.chip() == b.chip();
  return same_code && (same_name || DeviceName(a) == DeviceName(b));
}

bool LacksOps(const Target& device, const Target& code) {
  return code.has_dots_of_f64_and_s8() && !device.has_dots_of_f64_and_s8() && IsSameTarget(device, code);
}

std::vector<DeviceOffer> OffersOf(const RegisterWorker& registration) {
  if (registration.offers_size() > 0) return {registration.offers().begin(), registration.offers().end()};
  DeviceOffer offer;
  offer.set_count(registration.devices());
  *offer.mutable_target() = registration.target();
  return {offer};
}

std::string TargetText(const Target& target) {
  return absl::StrCat(DeviceName(target), " (", target.cpu().empty() ? "no CPU" : target.cpu(), ")");
}

absl::Status CheckCompiledFor(const Executable& executable, const Target& requested) {
  if (IsSameTarget(executable.target(), requested)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "found an executable for ", TargetText(executable.target()), " with features \"", executable.target().features(),
      "\", expected one for ", TargetText(requested), " with features \"", requested.features(),
      "\", as the workers offer; the kind of device must state the triple, CPU and features of its code completely"));
}

namespace {

// The devices of all workers that run code for one target.
struct Pool {
  Target target;
  int64_t devices = 0;
  std::vector<const WorkerDevices*> workers;
  size_t order = 0;  // The index of its name in the list of allowed devices.
};

// Returns the pools of allowed devices in the order of the names in `allowed`. If `allowed` is empty, returns all
// pools, sorted by name.
std::vector<Pool> PoolsOf(const std::vector<WorkerDevices>& workers, const std::vector<AllowedDevices>& allowed) {
  std::vector<Pool> pools;
  for (const WorkerDevices& worker : workers) {
    const Target& target = worker.offer.target();
    const auto named = std::find_if(allowed.begin(), allowed.end(),
                                    [&](const AllowedDevices& a) { return a.name == DeviceName(target); });
    if (!allowed.empty() && named == allowed.end()) continue;
    auto pool = std::find_if(pools.begin(), pools.end(), [&](const Pool& p) { return IsSameTarget(p.target, target); });
    if (pool == pools.end()) pool = pools.insert(pools.end(), {target});
    if (LacksOps(target, pool->target)) pool->target.set_has_dots_of_f64_and_s8(false);
    pool->devices += worker.devices;
    pool->workers.push_back(&worker);
    pool->order = named - allowed.begin();
  }
  std::stable_sort(pools.begin(), pools.end(), [](const Pool& a, const Pool& b) {
    return a.order != b.order ? a.order < b.order : DeviceName(a.target) < DeviceName(b.target);
  });
  return pools;
}

bool HaveSeveralCpus(const std::vector<Pool>& pools) {
  return std::adjacent_find(pools.begin(), pools.end(), [](const Pool& a, const Pool& b) {
           return DeviceName(a.target) == DeviceName(b.target);
         }) != pools.end();
}

// Returns "cpu: 2 on w1, 1 on w2; opaque: 2 on w3", with the models of CPU if devices of one kind have different ones.
std::string PoolsText(const std::vector<Pool>& pools) {
  const bool with_cpu = HaveSeveralCpus(pools);
  const auto worker_text = [](std::string* out, const WorkerDevices* worker) {
    absl::StrAppend(out, worker->devices, " on ", worker->registration->worker_id());
  };
  return absl::StrJoin(pools, "; ", [&](std::string* out, const Pool& pool) {
    absl::StrAppend(out, with_cpu ? TargetText(pool.target) : DeviceName(pool.target), ": ",
                    absl::StrJoin(pool.workers, ", ", worker_text));
  });
}

// Returns the names of allowed devices that the workers do not have.
std::vector<std::string> MissingNames(const std::vector<Pool>& pools, const std::vector<AllowedDevices>& allowed) {
  std::vector<std::string> missing;
  for (const AllowedDevices& devices : allowed) {
    const auto has_name = [&](const Pool& pool) { return DeviceName(pool.target) == devices.name; };
    if (std::none_of(pools.begin(), pools.end(), has_name)) missing.push_back(devices.name);
  }
  return missing;
}

// Returns a pool that can run the job alone, or null if there is none. If there are several, returns the first one that
// the job names, or the largest one if the job does not name devices.
const Pool* FindEnough(const std::vector<Pool>& pools, const std::vector<AllowedDevices>& allowed, int64_t devices) {
  const Pool* found = nullptr;
  for (const Pool& pool : pools) {
    const int64_t most = allowed.empty() ? pool.devices : allowed[pool.order].most;
    if (std::min(pool.devices, most) < devices) continue;
    if (found == nullptr || (pool.order == found->order && pool.devices > found->devices)) found = &pool;
  }
  return found;
}

// Returns the targets of as many pools as are needed, in the order of `pools`. `*usable` is set to the number of
// devices in all pools that the job may use.
std::vector<Target> Mix(const std::vector<Pool>& pools, const std::vector<AllowedDevices>& allowed, int64_t devices,
                        int64_t* usable) {
  std::vector<Target> targets;
  std::map<size_t, int64_t> used;  // The number of used devices by Pool::order.
  *usable = 0;
  for (const Pool& pool : pools) {
    int64_t count = pool.devices;
    if (!allowed.empty()) count = std::min(count, allowed[pool.order].most - used[pool.order]);
    if (count <= 0) continue;
    used[pool.order] += count;
    if (*usable < devices) targets.push_back(pool.target);
    *usable += count;
  }
  return targets;
}

TargetSelection Refuse(const std::string& reason) { return {.reason = reason, .is_refusal = true}; }

}  // namespace

TargetSelection SelectTargets(const std::vector<WorkerDevices>& workers, int64_t devices, const std::string& names) {
  if (workers.empty()) return {.reason = "waits for a worker to register"};
  const auto parsed = ParseAllowedDevices(names);
  if (!parsed.ok()) return Refuse(absl::StrCat("--device: ", parsed.status().message()));
  const std::vector<AllowedDevices>& allowed = *parsed;
  if (!allowed.empty() && MostDevices(allowed) < devices) {
    return Refuse(absl::StrCat("--device: found ", names, ", expected ", devices, " or more devices for the mesh"));
  }
  std::vector<Pool> pools = PoolsOf(workers, allowed);
  if (const Pool* enough = FindEnough(pools, allowed, devices); enough != nullptr) {
    return {.targets = {enough->target}, .devices = enough->devices};
  }
  if (pools.size() == 1 && allowed.size() < 2) return {.targets = {pools[0].target}, .devices = pools[0].devices};
  TargetSelection mix;
  if (allowed.empty()) {  // The largest pool is used first, so that the job runs on as few kinds as possible.
    std::stable_sort(pools.begin(), pools.end(), [](const Pool& a, const Pool& b) { return a.devices > b.devices; });
  }
  mix.targets = Mix(pools, allowed, devices, &mix.devices);
  const std::vector<std::string> missing = MissingNames(pools, allowed);
  if (mix.devices < devices && !missing.empty()) {
    TargetSelection refused =
        Refuse(absl::StrCat("no worker has devices of kind ", absl::StrJoin(missing, " or "), "; the workers have ",
                            PoolsText(PoolsOf(workers, {})), "; start a worker with --device ", missing[0]));
    refused.devices = mix.devices;
    refused.is_kind_missing = true;
    return refused;
  }
  const std::string have = absl::StrCat("the workers have ", PoolsText(PoolsOf(workers, allowed)));
  if (mix.devices < devices) {
    return {.devices = mix.devices,
            .reason =
                absl::StrCat("waits for ", DeviceCountText(devices), allowed.empty() ? "" : " of ", names, "; ", have)};
  }
  mix.is_last_resort = allowed.size() < 2;
  if (mix.is_last_resort) {
    mix.reason = absl::StrCat("waits for ", DeviceCountText(devices), " of the same kind",
                              HaveSeveralCpus(pools) ? " and CPU model" : "", "; later it accepts a mix; ", have);
  }
  return mix;
}

int64_t DevicesOfNamedKinds(const std::vector<WorkerDevices>& workers, const std::string& names) {
  const auto allowed = ParseAllowedDevices(names);
  if (!allowed.ok() || allowed->size() < 2) return 0;
  int64_t devices = 0;
  Mix(PoolsOf(workers, *allowed), *allowed, /*devices=*/1, &devices);
  return devices;
}

std::vector<Peer> PeersFor(const std::vector<std::pair<const WorkerDevices*, int64_t>>& shares) {
  std::vector<Peer> peers;
  int32_t next = 0;
  for (const auto& [worker, devices] : shares) {
    const RegisterWorker& registration = *worker->registration;
    Peer& peer = peers.emplace_back();
    peer.set_worker_id(registration.worker_id());
    peer.set_incarnation(registration.incarnation());
    peer.set_host(registration.host());
    peer.set_pid(registration.pid());
    peer.set_data_address(registration.data_address());
    peer.set_device_name(DeviceName(worker->offer.target()));
    for (int64_t i = 0; i < devices; ++i) peer.add_devices(next++);
  }
  return peers;
}

void GiveShards(int64_t shards, std::vector<Peer>* peers) {
  if (shards <= 1) return;
  const auto give = [shards](google::protobuf::RepeatedField<int32_t>* positions) {
    const google::protobuf::RepeatedField<int32_t> devices = *positions;
    positions->Clear();
    for (const int32_t device : devices) {
      for (int64_t shard = 0; shard < shards; ++shard) positions->Add(static_cast<int32_t>(device * shards + shard));
    }
  };
  for (Peer& peer : *peers) {
    peer.set_shards_per_device(static_cast<int32_t>(shards));
    give(peer.mutable_devices());
    for (PeerDevices& kind : *peer.mutable_kinds()) give(kind.mutable_devices());
  }
}

namespace {

absl::StatusOr<CollectivePlanProto> CheckedPlan(const collectives::CollectivePlan& plan,
                                                const collectives::CollectiveSpec& spec) {
  XLAD_RETURN_IF_ERROR(collectives::CheckPlan(plan, spec));
  XLAD_ASSIGN_OR_RETURN(const uint64_t hash, collectives::ScheduleHash(plan, spec));
  return collectives::PlanToProto<CollectivePlanProto>(plan, hash);
}

// Returns the fastest plan whose messages have the type of the elements.
absl::StatusOr<collectives::CollectivePlan> PlanOfElements(const collectives::CollectiveSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<collectives::PlanCost> ranked, collectives::RankPlans(spec, {}));
  for (const collectives::PlanCost& candidate : ranked) {
    if (collectives::MessageType(candidate.plan, spec) == spec.type) return candidate.plan;
  }
  return absl::InternalError(absl::StrCat("found no plan for ", spec.ToString(), " that sends its elements"));
}

}  // namespace

absl::StatusOr<std::vector<CollectivePlanProto>> PlanCollectives(const Executable& executable, int64_t devices) {
  std::vector<CollectivePlanProto> plans;
  for (const CollectiveSpec& proto : executable.collectives()) {
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectiveSpec spec, collectives::SpecFromProto(proto, devices));
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectivePlan plan, collectives::MakePlan(spec));
    XLAD_ASSIGN_OR_RETURN(plans.emplace_back(), CheckedPlan(plan, spec));
  }
  return plans;
}

absl::StatusOr<std::vector<CollectivePlanProto>> PlansForOldWorkers(const Executable& executable, int64_t devices,
                                                                    std::vector<CollectivePlanProto> plans) {
  for (int i = 0; i < std::ssize(plans); ++i) {
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectiveSpec spec,
                          collectives::SpecFromProto(executable.collectives(i), devices));
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectivePlan plan, collectives::PlanFromProto(plans[i]));
    if (collectives::MessageType(plan, spec) == spec.type) continue;
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectivePlan other, PlanOfElements(spec));
    XLAD_ASSIGN_OR_RETURN(plans[i], CheckedPlan(other, spec));
  }
  return plans;
}

namespace {

// Whether the boxes of an entry differ between devices whose mesh coordinates differ only along one axis, which has
// `size` coordinates. Consecutive coordinates are `stride` devices apart.
bool IsSplitAlong(const EntryValue& entry, int64_t stride, int64_t size) {
  if (entry.boxes_size() < 2) return false;
  for (int device = 0; device < entry.boxes_size(); ++device) {
    // The device with coordinate 0 on the axis and otherwise the same coordinates.
    const int64_t first = device - device / stride % size * stride;
    if (entry.boxes(device).SerializeAsString() != entry.boxes(static_cast<int>(first)).SerializeAsString())
      return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> BatchAxes(const Executable& executable, const JobSpec& spec,
                                   const google::protobuf::RepeatedPtrField<MeshAxis>& mesh) {
  std::vector<std::string> axes;
  if (executable.parameters_size() != spec.parameters_size()) return axes;
  int64_t stride = 1;
  for (int a = mesh.size() - 1; a >= 0; stride *= mesh[a].size(), --a) {  // The last axis varies fastest.
    bool splits_data = false, splits_state = false;
    for (int p = 0; p < spec.parameters_size(); ++p) {
      const JobSpec::Parameter::Kind kind = spec.parameters(p).kind();
      if (!IsSplitAlong(executable.parameters(p), stride, mesh[a].size())) continue;
      splits_data = splits_data || kind == JobSpec::Parameter::DATA;
      splits_state = splits_state || kind == JobSpec::Parameter::STATE;
    }
    if (splits_data && !splits_state) axes.push_back(mesh[a].name());
  }
  return axes;
}

google::protobuf::RepeatedPtrField<MeshAxis> ShrunkMesh(const google::protobuf::RepeatedPtrField<MeshAxis>& mesh,
                                                        const std::vector<std::string>& axes, int64_t devices) {
  google::protobuf::RepeatedPtrField<MeshAxis> best;
  int64_t best_devices = 0;
  const int64_t all = DeviceCount(mesh);
  for (int a = 0; a < mesh.size(); ++a) {
    if (!Contains(axes, mesh[a].name())) continue;
    const int64_t others = all / mesh[a].size();
    const int64_t size = std::min<int64_t>(mesh[a].size() - 1, devices / others);
    if (size < 1 || size * others <= best_devices) continue;
    best = mesh;
    best[a].set_size(size);
    best_devices = size * others;
  }
  return best;
}

LaunchTask LaunchOf(const Job& job) {
  LaunchTask launch;
  launch.set_job_id(job.id.str());
  launch.set_attempt(job.placed.attempt());
  launch.set_generation(job.placed.generation());
  *launch.mutable_peers() = job.placed.peers();
  for (Peer& peer : *launch.mutable_peers()) peer.clear_user();
  *launch.mutable_plans() = job.placed.plans();
  *launch.mutable_spec() = job.spec;
  *launch.mutable_spec()->mutable_mesh() = job.placed_mesh;
  launch.set_first_step(job.placed.first_step());
  launch.set_state_blob(job.placed.state_blob());
  launch.set_checkpoint_uri(job.placed.checkpoint_uri());
  launch.set_checkpoint_digest(job.placed.checkpoint_digest());
  launch.set_checkpoints(true);
  const std::string& secret = job.placed.session_secret();
  if (!secret.empty()) launch.set_data_key(security::DataKey(secret));
  return launch;
}

LaunchTask LaunchFor(const Job& job, const Peer& peer) {
  LaunchTask launch;
  launch.set_executable_digest(peer.kinds().empty() ? job.placed_executable : peer.kinds(0).executable_digest());
  if (peer.kinds().empty()) {
    for (const int32_t device : peer.devices()) launch.add_devices()->set_device(device);
  }
  for (const PeerDevices& kind : peer.kinds()) {
    for (const int32_t device : kind.devices()) {
      LaunchRecord* const record = launch.add_devices();
      record->set_device(device);
      record->set_executable_digest(kind.executable_digest());
    }
  }
  launch.set_shards_per_device(peer.shards_per_device());
  const std::string& secret = job.placed.session_secret();
  const bool is_first = Contains(peer.devices(), 0);
  const bool has_own_key = !secret.empty() && !is_first;
  launch.set_session_key(has_own_key ? security::FollowerKey(secret, peer.worker_id()) : job.placed.session_key());
  if (is_first) launch.set_session_secret(secret);
  return launch;
}

}  // namespace xlad::service
