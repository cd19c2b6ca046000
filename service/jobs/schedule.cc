// The part of JobMachine that decides what runs: builds and placements.
#include <algorithm>
#include <tuple>

#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "base/log.h"
#include "proto/device_name.h"
#include "proto/mesh.h"
#include "service/jobs/job_machine.h"
#include "service/placement/deal.h"
#include "service/placement/device_mix.h"

namespace xlad::service {
namespace {

// The largest number of owners whose oldest job waits for other owners without blocking all later jobs.
constexpr ptrdiff_t kMaxWaiting = 20;

// Whether the job may run only on the workers that it had before it lost one of them.
bool WaitsForItsWorkers(const Job& job) {
  return job.spec.on_loss() == JobSpec::WAIT && !job.lost_worker.empty() && !job.resized;
}

// FailedPrecondition if another build of xlad compiled the optimized code, because the coordinator was updated in
// between. That code may compute other bits, and workers change to it at different steps, so their states would differ.
absl::Status CheckSameCompiler(const Job& job, const std::string& compiler) {
  if (!compiler.empty() && compiler == job.compiler) return absl::OkStatus();
  const auto build = [](const std::string& id) { return id.empty() ? "unknown" : id; };
  return absl::FailedPreconditionError(absl::StrCat(
      "found code compiled by build ", build(compiler), " of xlad, expected build ", build(job.compiler),
      ", which compiled the quick code: the coordinator was updated in between, and other builds may compute other "
      "bits; to run optimized code, submit the job again with --resume ", job.id.str()));
}

// The workers that a job may have and those that it should take first; null as in FreeDevices.
struct Workers {
  FreeDevices::MayHave may_have, in_use;
};

// Takes devices of one target.
std::vector<Peer> TakeOfOne(FreeDevices* free, const Workers& from, int64_t devices, const Target& target,
                            const FreeDevices::Blocks& blocks) {
  if (from.in_use != nullptr) return free->TakePacked(from.may_have, from.in_use, devices, target, blocks);
  if (from.may_have != nullptr) return free->TakeFrom(from.may_have, devices, target, blocks);
  return free->Take(devices, target, blocks);
}

}  // namespace

void JobMachine::SetReason(Job* job, const std::string& reason) {
  job->reason = job->ending.empty() ? reason : absl::StrCat(job->ending, "; ", reason);
}

JobMachine::Outcome JobMachine::ScheduleOne(Job* job) {
  if (job->state != PENDING || job->attempt_running) return Outcome::kDone;
  wake_ns_ = INT64_MAX;
  const int64_t pause_ms = RetryPauseMs(context_.options, *job);
  if (job->failed_ns < 0 || context_.now_ns >= job->failed_ns + pause_ms * kNsPerMs) return TryJob(job);
  WakeAt(job->failed_ns + pause_ms * kNsPerMs);
  const std::string what =
      job->damaged_attempts == 0
          ? absl::StrCat(job->failures, " attempts in a row have failed")
          : absl::StrCat(Counted(job->damaged_attempts, "attempt"), " in a row found checkpoint ", job->damaged_uri,
                         " damaged; it is read again, because the damage may lie in what one worker read");
  SetReason(job, absl::StrCat(what, "; the next one begins after a pause of ", pause_ms, " ms"));
  return Outcome::kWaitsForEvent;
}

void JobMachine::Wake(const JobId& id) {
  const Job* job = context_.jobs.Find(id);  // Null if the job has ended and was removed.
  if (job == nullptr || HasEnded(*job)) return;
  due_.Add(*job);
  parked_.erase(job->number);
}

// Adds the jobs whose wait may be over to due_.
void JobMachine::WakeJobs() {
  for (const JobId& id : std::exchange(context_.runnable, {})) Wake(id);
  while (!timers_.empty() && timers_.begin()->first <= context_.now_ns) {
    const JobId id = timers_.begin()->second;
    timers_.erase(timers_.begin());
    Wake(id);
  }
  const uint64_t offers = context_.OffersHash();
  if (std::exchange(offers_, offers) == offers) return;
  for (const auto& [number, id] : std::exchange(parked_, {})) Wake(id);
}

void JobMachine::Schedule() {
  WakeJobs();
  context_.blocking = JobId();
  context_.waiting.clear();
  context_.reservation.applies = false;
  Visit(0);
}

void JobMachine::ScheduleNew(const std::vector<JobId>& jobs) {
  int64_t first = INT64_MAX;
  for (const JobId& id : jobs) {
    Wake(id);
    if (const Job* job = context_.jobs.Find(id); job != nullptr) first = std::min(first, job->number);
  }
  if (context_.blocking.empty()) Visit(first);
}

void JobMachine::Visit(int64_t first) {
  pass_ = Pass();
  due_.Visit(first, [this](const JobId& id) { return VisitOne(id); });
  pass_ = Pass();
}

JobQueue::Next JobMachine::VisitOne(const JobId& id) {
  Job* job = context_.jobs.Find(id);
  if (job == nullptr) return JobQueue::Next::kRemove;
  if (context_.waiting.contains(job->owner)) return JobQueue::Next::kSkipOwner;
  const Outcome outcome = ScheduleOne(job);
  const bool waits_for_others = outcome == Outcome::kWaitsForOthers;
  if (waits_for_others && std::ssize(context_.waiting) < kMaxWaiting) {
    context_.waiting[job->owner] = job->id;
    return JobQueue::Next::kSkipOwner;
  }
  if (waits_for_others || outcome == Outcome::kBlocks) {
    context_.blocking = job->id;  // The job waits for busy devices, which later jobs must not take.
    return JobQueue::Next::kStop;
  }
  if (outcome == Outcome::kWaitsForDevices) return JobQueue::Next::kKeep;
  if (outcome == Outcome::kWaitsForWorkers) parked_[job->number] = job->id;
  if (outcome != Outcome::kDone && wake_ns_ < INT64_MAX) timers_.emplace(wake_ns_, job->id);
  return JobQueue::Next::kRemove;
}

const std::vector<WorkerDevices>& JobMachine::AllOffers() {
  if (!pass_.all.has_value()) pass_.all = context_.Offers(/*only_free=*/false);
  return *pass_.all;
}

FreeDevices& JobMachine::Free() {
  if (!pass_.free.has_value()) pass_.free.emplace(context_.Offers(/*only_free=*/true));
  return *pass_.free;
}

JobMachine::Devices JobMachine::DevicesFor(const Parts& parts) {
  if (!pass_.all_devices.has_value()) pass_.all_devices.emplace(AllOffers());
  return {pass_.all_devices->Count(parts), Free().Count(parts)};
}

void JobMachine::CountKept(const Job& job, const Parts& parts, Devices* devices) {
  int64_t left = devices->free;
  if (!context_.options.share_workers && context_.RunsOthers(job.owner)) {
    left = Free().Count(parts, [&](const std::string& worker) {
      return !context_.RunsOthersOn(WorkerId(worker), job.owner);
    });
  }
  devices->unshared = devices->free - left;
  if (!context_.reservation.applies) return;
  devices->reserved = left - Free().Count(parts, [&](const std::string& worker) { return !IsKeptFrom(job, worker); });
}

JobMachine::Parts JobMachine::PartsOf(const Job& job, const Target& first) {
  Parts parts = {{first, job.executable_digest}};
  if (job.spec.device_name().empty() && job.others.empty()) return parts;
  for (const BuiltExecutable& other : job.others) parts.push_back({other.target(), other.digest()});
  const auto allowed = ParseAllowedDevices(job.spec.device_name());
  for (FreeDevices::Part& part : parts) {
    for (const AllowedDevices& devices : allowed.value_or(std::vector<AllowedDevices>())) {
      if (devices.name == DeviceName(part.target)) part.most = devices.most;
    }
  }
  return parts;
}

const TargetSelection& JobMachine::SelectionFor(const Job& job) {
  int64_t wanted = WantedDevices(job, /*all=*/1);
  // In the canonical mode, a job that accepts any number of devices takes devices of all kinds that it names.
  if (IsCanonical(job.spec) && job.devices == 0) {
    wanted = LargestDivisor(job.mesh, DevicesOfNamedKinds(AllOffers(), job.spec.device_name()));
  }
  const std::pair<int64_t, std::string> key(wanted, job.spec.device_name());
  const auto found = pass_.selections.find(key);
  if (found != pass_.selections.end()) return found->second;
  return pass_.selections.emplace(key, SelectTargets(AllOffers(), key.first, key.second)).first->second;
}

JobMachine::Outcome JobMachine::TryJob(Job* job) {
  if (job->spec.session()) return PlaceSession(job);
  return job->executable_digest.empty() ? Build(job) : Place(job);
}

// Starts the build if the registered workers determine the targets of the program.
JobMachine::Outcome JobMachine::Build(Job* job) {
  if (building_.contains(job->id)) return Outcome::kWaitsForEvent;
  if (IsDelayed(job->id, delayed_builds_)) {
    WakeAt(delayed_builds_.at(job->id).from_ns);
    return Outcome::kWaitsForEvent;
  }
  const std::vector<Target> targets = TargetsFor(job);
  if (targets.empty()) return HasEnded(*job) ? Outcome::kDone : Outcome::kWaitsForWorkers;
  if (optimizing_.contains(job->id)) StopBuilds(job->id);
  quick_.erase(job->id);
  delayed_optimizations_.erase(job->id);
  building_.insert(job->id);
  context_.jobs.SetState(job, COMPILING);
  job->since_unix_ns = context_.wall_ns;
  job->reason = job->ending;
  context_.effects.actions.push_back(StartBuild{job->id, targets, job->mesh, targets.size() == 1 && MayBeQuick(*job)});
  context_.Changed(job->id);
  return Outcome::kDone;
}

// Whether the job may start on quickly compiled code. All workers must be able to replace it.
bool JobMachine::MayBeQuick(const Job& job) const {
  if (job.spec.compile_tier() != JobSpec::QUICK_FIRST) return false;
  return std::all_of(context_.workers.begin(), context_.workers.end(), [&](const auto& worker) {
    return !context_.TakesWork(worker.second) || worker.second.registration.replaces_code();
  });
}

void JobMachine::StartOptimizations() {
  std::erase_if(quick_, [&](const JobId& id) {
    const Job& job = *context_.jobs.Find(id);
    if (job.state == STARTING || IsDelayed(id, delayed_optimizations_)) return false;
    optimizing_[id] = job.executable_digest;
    context_.effects.actions.push_back(StartOptimizing{id, job.executable_digest, job.mesh});
    return true;
  });
}

// Returns whether the workers have been unable to run the job during the whole grace period, in which more workers may
// register. The first call starts this period. A call before its end sets a timer for the job.
bool JobMachine::IsRefusedForLong(const Job& job) {
  const CoordinatorOptions& options = context_.options;
  const int64_t grace_ms =
      SelectionFor(job).is_kind_missing ? options.missing_kind_grace_ms : options.device_kind_grace_ms;
  const int64_t since_ns = refused_since_ns_.emplace(job.id, context_.now_ns).first->second;
  const int64_t due_ns = since_ns + grace_ms * kNsPerMs;
  if (context_.now_ns >= due_ns) return true;
  WakeAt(due_ns);
  return false;
}

// Returns the targets for a job that must be built, or none if the registered workers do not determine them. A job that
// the workers can never run fails after a grace period. A job that does not name several kinds gets targets of several
// kinds only after this period.
std::vector<Target> JobMachine::TargetsFor(Job* job) {
  const TargetSelection& selection = SelectionFor(*job);
  if (!selection.is_refusal && !selection.is_last_resort) refused_since_ns_.erase(job->id);
  if (!selection.targets.empty() && !selection.is_last_resort) return selection.targets;
  SetReason(job, selection.reason);
  if (selection.is_last_resort) return IsRefusedForLong(*job) ? selection.targets : std::vector<Target>();
  if (!selection.is_refusal || !IsRefusedForLong(*job)) return {};
  // A job that has run before waits until its workers are back.
  if (job->attempt == 0) EndJob(context_, job, FAILED, selection.reason);
  return {};
}

JobMachine::Outcome JobMachine::WaitForDevices(Job* job, const Devices& devices, const Parts& parts, int64_t wanted) {
  const int64_t free = devices.free;
  std::string found = absl::StrCat("the workers have ", devices.all);
  if (wanted <= devices.all) {
    found = absl::StrCat(free, free == 1 ? " is" : " are", " free of ", devices.all);
    if (devices.unshared > 0) {
      absl::StrAppend(&found, ", ", devices.unshared, " of them on workers that run jobs of another user");
    }
    if (devices.reserved > 0) {
      absl::StrAppend(&found, ", ", devices.reserved, " of them on workers that are reserved for an older job");
    }
  }
  SetReason(job, absl::StrCat("waits for ", DeviceCountText(wanted), ", ", found));
  if (wanted > devices.all) return Outcome::kWaitsForWorkers;
  if (devices.unshared == 0 && devices.reserved == 0) return Outcome::kBlocks;
  if (context_.reservation.applies) return Outcome::kWaitsForOthers;
  Reserve(*job, parts, wanted);
  return AreOthersBusy() ? Outcome::kBlocks : Outcome::kWaitsForOthers;
}

// Whether no device is free on the workers that are not reserved, so that no later job could start.
bool JobMachine::AreOthersBusy() const {
  return std::all_of(context_.workers.begin(), context_.workers.end(), [&](const auto& known) {
    const auto& [id, worker] = known;
    const bool is_open = context_.TakesWork(worker) && !context_.reservation.workers.contains(id);
    int64_t free = is_open ? worker.registration.devices() : 0;
    for (const auto& [name, used] : worker.used) free -= used;
    return free <= 0;
  });
}

// Reserves workers with as many devices for `parts` as the job needs, if there are enough: those that are idle, then
// those that the job has reserved before, then those with the fewest used devices. No later job starts on a reserved
// worker, so each one becomes idle when its jobs have ended. Other workers in use could get new jobs, so only idle ones
// replace it before that.
void JobMachine::Reserve(const Job& job, const Parts& parts, int64_t devices) {
  Context::Reservation& reservation = context_.reservation;
  reservation.applies = true;
  std::map<std::string, int64_t> most;  // By device name: how many more devices the job may use.
  const auto add = [&](const Worker& worker) {
    int64_t added = 0;
    if (!context_.TakesWork(worker) || (WaitsForItsWorkers(job) && !HasPeer(job, worker.id.str()))) return added;
    for (const DeviceOffer& offer : OffersOf(worker.registration)) {
      const auto part = std::find_if(parts.begin(), parts.end(),
                                     [&](const auto& p) { return IsSameTarget(p.target, offer.target()); });
      if (part == parts.end()) continue;
      int64_t& left = most.emplace(DeviceName(part->target), part->most).first->second;
      const int64_t of_offer = std::min<int64_t>(offer.count(), left);
      left -= of_offer;
      added += of_offer;
    }
    return added;
  };
  if (reservation.job != job.id) reservation = {job.id, {}, true};
  // Whether the worker is in use, whether it would be new in the reservation, and its number of used devices.
  std::vector<std::tuple<bool, bool, int64_t, WorkerId>> order;
  for (const auto& [id, worker] : context_.workers) {
    int64_t used = 0;
    for (const auto& [name, count] : worker.used) used += count;
    order.emplace_back(used > 0, !reservation.workers.contains(id), used, id);
  }
  std::sort(order.begin(), order.end());
  reservation.workers.clear();
  int64_t sum = 0;
  for (auto next = order.begin(); next != order.end() && sum < devices; ++next) {
    const WorkerId& id = std::get<WorkerId>(*next);
    const int64_t added = add(context_.workers.at(id));
    if (added > 0) reservation.workers.insert(id);
    sum += added;
  }
  reservation.applies = sum >= devices;
}

// Resizes a job with --on-loss shrink if it lost a worker at least suspect_ms ago and can run on a smaller mesh or, in
// the canonical mode, on fewer devices. Returns whether it was resized.
bool JobMachine::TryShrink(Job* job, int64_t devices) {
  if (job->spec.on_loss() != JobSpec::SHRINK || job->lost_worker.empty()) return false;
  const int64_t due_ns = job->failed_ns + context_.options.suspect_ms * kNsPerMs;
  if (context_.now_ns < due_ns) {  // The worker may reconnect until then.
    WakeAt(due_ns);
    return false;
  }
  const std::string reason =
      absl::StrCat(job->ending, "; ", DeviceCountText(devices), devices == 1 ? " is left" : " are left");
  JobEvent event = context_.NewEvent(job->id);
  event.mutable_resized()->set_reason(reason);
  if (IsCanonical(job->spec)) {
    const int64_t fewer = LargestDivisor(job->mesh, devices);
    if (devices < 1 || fewer >= job->devices) return false;
    event.mutable_resized()->set_devices(fewer);
  } else {
    const std::vector<std::string> named(job->spec.shrink_axes().begin(), job->spec.shrink_axes().end());
    const Mesh smaller = ShrunkMesh(job->mesh, named.empty() ? job->batch_axes : named, devices);
    if (smaller.empty()) return false;
    StopBuilds(job->id);
    *event.mutable_resized()->mutable_mesh() = smaller;
  }
  context_.Record(std::move(event));
  context_.Changed(job->id);
  return true;
}

bool JobMachine::IsKeptFrom(const Job& job, const std::string& worker) const {
  const WorkerId id(worker);
  const Context::Reservation& reservation = context_.reservation;
  if (reservation.applies && reservation.job != job.id && reservation.workers.contains(id)) return true;
  return !context_.options.share_workers && context_.RunsOthersOn(id, job.owner);
}

FreeDevices::MayHave JobMachine::WorkersFor(const Job& job) const {
  const bool only_former = WaitsForItsWorkers(job);
  const bool are_some_kept =
      context_.reservation.applies || (!context_.options.share_workers && context_.RunsOthers(job.owner));
  if (!only_former && !are_some_kept) return nullptr;
  return [this, &job, only_former, are_some_kept](const std::string& worker) {
    if (only_former && !HasPeer(job, worker)) return false;
    return !are_some_kept || !IsKeptFrom(job, worker);
  };
}

FreeDevices::MayHave JobMachine::WorkersInUse(const Job& job) const {
  if (context_.options.share_workers || job.owner.empty()) return nullptr;
  return [this](const std::string& worker) { return !context_.FindWorker(WorkerId(worker))->jobs.empty(); };
}

std::vector<Peer> JobMachine::TakeFree(const FreeDevices::MayHave& may_have, const TakePeers& take) {
  if (context_.cut_links.empty()) return take(&Free(), may_have);
  return TakeConnected(may_have, context_.cut_links.Pairs(), take, &Free());
}

bool JobMachine::DoSomeLackOps(const std::vector<WorkerDevices>& workers, const Parts& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const FreeDevices::Part& part) {
    return part.target.has_dots_of_f64_and_s8() &&
           std::any_of(workers.begin(), workers.end(), [&](const WorkerDevices& worker) {
             return LacksOps(worker.offer.target(), part.target);
           });
  });
}

JobMachine::Outcome JobMachine::Place(Job* job) {
  // A worker that cannot replace code may have registered after the build.
  if (job->is_quick && !MayBeQuick(*job)) return Build(job);
  const auto plan = context_.plans.find(job->executable_digest);
  if (plan == context_.plans.end()) {
    if (IsDelayed(job->id, delayed_builds_)) return Build(job);  // The executable is not read again during the pause.
    std::vector<JobId>& waiting = loading_[job->executable_digest];
    if (waiting.empty()) context_.effects.actions.push_back(LoadPlan{job->executable_digest});
    waiting.push_back(job->id);
    return Outcome::kWaitsForEvent;
  }
  const Parts parts = PartsOf(*job, plan->second.target);
  // Such a worker may have registered after the build.
  if (DoSomeLackOps(AllOffers(), parts)) return Build(job);
  Devices devices = DevicesFor(parts);
  const int64_t wanted = WantedDevices(*job, devices.all);
  if (wanted <= devices.all) CountKept(*job, parts, &devices);
  const std::vector<int64_t> blocks = InnerBlocks(job->mesh, wanted);
  const FreeDevices::MayHave in_use = WorkersInUse(*job);
  std::vector<Peer> peers;
  const bool may_fit = wanted <= devices.free - devices.unshared - devices.reserved;
  if (may_fit) peers = TakeFree(WorkersFor(*job), [&](FreeDevices* free, const FreeDevices::MayHave& from) {
    return parts.size() > 1 ? free->TakeMix(from, wanted, parts, blocks, in_use)
                            : TakeOfOne(free, {from, in_use}, wanted, parts[0].target, blocks);
  });
  if (!peers.empty()) {
    GiveShards(DeviceCount(job->mesh) / wanted, &peers);
    const PlannedProgram& program = plan->second;
    attempts_.Launch(job, peers, context_.AllSendPartialsInF32(peers) ? program.plans : program.old_plans);
    return Outcome::kDone;
  }
  if (WaitsForItsWorkers(*job)) return WaitForItsWorkers(job, parts, wanted);
  const Outcome waits = WaitForDevices(job, devices, parts, wanted);
  if (wanted > devices.all) return TryShrink(job, devices.all) ? TryJob(job) : WaitForTargets(job, parts);
  refused_since_ns_.erase(job->id);
  return waits;
}

// If the workers that the job had are back, but not free, they are reserved for it, because it may have no others.
JobMachine::Outcome JobMachine::WaitForItsWorkers(Job* job, const Parts& parts, int64_t wanted) {
  const auto is_back = [&](const std::string& worker) {
    const Worker* const found = context_.FindWorker(WorkerId(worker));
    return found != nullptr && context_.TakesWork(*found);
  };
  std::string missing = is_back(job->lost_worker) ? "" : job->lost_worker;
  for (const Peer& peer : job->placed.peers()) {
    if (missing.empty() && !is_back(peer.worker_id())) missing = peer.worker_id();
  }
  if (!missing.empty()) {
    SetReason(job, absl::StrCat("waits for worker ", missing, " (--on-loss wait)"));
    return Outcome::kWaitsForDevices;
  }
  if (!context_.reservation.applies) Reserve(*job, parts, wanted);
  const auto is_former = [&](const std::string& worker) { return HasPeer(*job, worker); };
  const int64_t all = pass_.all_devices->Count(parts, is_former), free = Free().Count(parts, is_former);
  const int64_t kept = free - Free().Count(parts, [&](const std::string& worker) {
    return is_former(worker) && !IsKeptFrom(*job, worker);
  });
  SetReason(job, absl::StrCat("waits for ", DeviceCountText(wanted), " of its workers (--on-loss wait), which are ",
                              "back: ", free, free == 1 ? " is" : " are", " free of ", all,
                              kept == 0 ? "" : absl::StrCat(", ", kept, " of them on workers that run or are reserved ",
                                                            "for jobs of another user")));
  return Outcome::kWaitsForDevices;
}

// Called for a job that needs more devices than the workers have for `parts`, the targets of its executables. Compiles
// the job for other targets if only those have had enough devices during the grace period.
JobMachine::Outcome JobMachine::WaitForTargets(Job* job, const Parts& parts) {
  const TargetSelection& selection = SelectionFor(*job);
  const bool are_same =
      std::equal(parts.begin(), parts.end(), selection.targets.begin(), selection.targets.end(),
                 [](const FreeDevices::Part& part, const Target& target) { return IsSameTarget(part.target, target); });
  if (selection.targets.empty() || selection.is_last_resort) SetReason(job, selection.reason);
  if (!selection.targets.empty() && !are_same && selection.devices >= WantedDevices(*job, 1)) {
    if (!selection.is_last_resort) {
      const auto target_text = [](std::string* out, const FreeDevices::Part& part) {
        out->append(TargetText(part.target));
      };
      absl::StrAppend(&job->reason, " that run code for ", absl::StrJoin(parts, " or ", target_text),
                      ", the target of its executable");
    }
    if (!IsRefusedForLong(*job)) return Outcome::kWaitsForWorkers;
    const Outcome outcome = Build(job);
    refused_since_ns_.erase(job->id);
    return outcome;
  }
  refused_since_ns_.erase(job->id);
  return Outcome::kWaitsForWorkers;
}

// Returns the target of a session, or none if the session cannot be placed now. Its programs are compiled for the
// devices on which it is placed, which are of one kind.
std::vector<Target> JobMachine::TargetsForSession(Job* job) {
  const TargetSelection& selection = SelectionFor(*job);
  if (selection.targets.size() < 2) return TargetsFor(job);
  const std::string reason =
      absl::StrCat("the session needs ", DeviceCount(job->mesh), " devices of one kind, the workers have ",
                   selection.devices, " of several kinds; jobs can run on several kinds, sessions cannot");
  SetReason(job, reason);
  if (IsRefusedForLong(*job) && job->attempt == 0) EndJob(context_, job, FAILED, reason);
  return {};
}

JobMachine::Outcome JobMachine::PlaceSession(Job* job) {
  const std::vector<Target> targets = TargetsForSession(job);
  if (targets.empty()) return HasEnded(*job) ? Outcome::kDone : Outcome::kWaitsForWorkers;
  const int64_t wanted = DeviceCount(job->mesh);
  const std::vector<int64_t> blocks = InnerBlocks(job->mesh, wanted);
  for (const Target& offered : Free().Targets()) {
    if (!job->spec.device_name().empty() && DeviceName(offered) != job->spec.device_name()) continue;
    const FreeDevices::MayHave may_have = WorkersFor(*job), in_use = WorkersInUse(*job);
    const std::vector<Peer> peers = TakeFree(may_have, [&](FreeDevices* free, const FreeDevices::MayHave& from) {
      return TakeOfOne(free, {from, in_use}, wanted, offered, blocks);
    });
    if (peers.empty()) continue;
    attempts_.Launch(job, peers, {});
    return Outcome::kDone;
  }
  const Parts parts = {{targets[0], ""}};
  Devices devices = DevicesFor(parts);
  if (wanted <= devices.all) CountKept(*job, parts, &devices);
  return WaitForDevices(job, devices, parts, wanted);
}

void JobMachine::OnBuilt(const JobId& id, const Mesh& mesh, const absl::StatusOr<BuiltProgram>& built) {
  Job* job = context_.jobs.Find(id);
  if (job == nullptr || HasEnded(*job) || !building_.contains(id)) return;
  if (MeshText(mesh) != MeshText(job->mesh)) return;  // The job was resized after this build began, and is built again.
  building_.erase(id);
  context_.reschedule = true;
  if (job->state == COMPILING) context_.jobs.SetState(job, PENDING);
  if (absl::IsUnavailable(built.status())) return BuildAgainLater(job, std::string(built.status().message()));
  if (!built.ok()) return EndJob(context_, job, FAILED, std::string(built.status().message()));
  delayed_builds_.erase(id);
  context_.plans[built->executable_digest] = built->plan;
  JobEvent event = context_.NewEvent(id);
  event.mutable_built()->set_executable_digest(built->executable_digest);
  event.mutable_built()->set_compile_ms(built->compile_ms);
  event.mutable_built()->set_cached(built->cached);
  for (const std::string& warning : built->warnings) event.mutable_built()->add_warnings(warning);
  *event.mutable_built()->mutable_mesh() = mesh;
  for (const std::string& axis : built->batch_axes) event.mutable_built()->add_batch_axes(axis);
  for (const BuiltExecutable& other : built->others) *event.mutable_built()->add_others() = other;
  event.mutable_built()->set_quick(built->quick);
  event.mutable_built()->set_compiler(built->compiler);
  context_.Record(std::move(event));
  context_.Changed(id);
  if (built->quick) quick_.insert(id);
}

void JobMachine::OnOptimized(const StartOptimizing& request, const absl::StatusOr<BuiltProgram>& built) {
  const auto under_way = optimizing_.find(request.job);
  if (under_way == optimizing_.end() || under_way->second != request.executable_digest) return;
  optimizing_.erase(under_way);
  Job* job = context_.jobs.Find(request.job);
  if (job == nullptr || HasEnded(*job) || job->executable_digest != request.executable_digest) return;
  if (absl::IsUnavailable(built.status())) {
    DelayBuild(request.job, std::string(built.status().message()), &delayed_optimizations_);
    quick_.insert(request.job);
    return;
  }
  delayed_optimizations_.erase(request.job);
  JobEvent event = context_.NewEvent(request.job);
  const absl::Status status = built.ok() ? CheckSameCompiler(*job, built->compiler) : built.status();
  if (!status.ok()) {
    event.mutable_code_replaced()->set_attempt(job->attempt);
    event.mutable_code_replaced()->set_error(std::string(status.message()));
  } else {
    context_.plans[built->executable_digest] = built->plan;
    event.mutable_built()->set_executable_digest(built->executable_digest);
    event.mutable_built()->set_compile_ms(built->compile_ms);
    event.mutable_built()->set_only_code(true);
    event.mutable_built()->set_compiler(built->compiler);
  }
  context_.Record(std::move(event));
  attempts_.SendNewCode(*job);
  context_.Changed(request.job);
}

void JobMachine::OnPlanLoaded(const std::string& digest, const absl::StatusOr<PlannedProgram>& plan) {
  pass_ = Pass();
  for (const JobId& id : loading_[digest]) Wake(id);
  loading_.erase(digest);
  context_.reschedule = true;
  if (plan.ok()) {
    context_.plans[digest] = *plan;
    return;
  }
  for (Job* job : context_.jobs.Open()) {
    if (job->executable_digest != digest || job->attempt_running) continue;
    LogWarn("an executable cannot be read and is built again",
            {{"job", job->id.str()}, {"error", std::string(plan.status().message())}});
    Build(job);
    Wake(job->id);  // The job is visited again if Build has found no targets.
  }
}

void JobMachine::OnTick() {
  StartOptimizations();
  if (!timers_.empty() && context_.now_ns >= timers_.begin()->first) context_.reschedule = true;
}

}  // namespace xlad::service
