// The part of StormWorkers that knows hosts: faults of whole hosts and of the paths between them, and checks of
// placements on several hosts.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/mesh.h"
#include "tests/simulation/storm.h"
#include "tests/simulation/storm_process.h"

namespace xlad::simulation {

// Injects a fault of a host or of a path between hosts in some cases. Returns whether it did.
bool StormWorkers::InjectHostFault() {
  if (hosts_ < 2) return false;
  const uint64_t what = storm_->random().Below(storm_->kind() == StormKind::kStops ? 6 : 12);
  const bool dies = what == 0 && storm_->Has(StormFault::kHostDeath);
  const bool is_cut = what <= 2 && !dies && storm_->Has(StormFault::kHostCut);
  if (dies) LoseHost();
  if (is_cut) CutHosts();
  return dies || is_cut;
}

// The workers of two hosts do not reach each other for some time. All of them reach the coordinator.
void StormWorkers::CutHosts() {
  const int first = static_cast<int>(storm_->random().Below(hosts_));
  const int second = (first + static_cast<int>(storm_->Between(1, hosts_ - 1))) % hosts_;
  const std::pair<int, int> pair = std::minmax(first, second);
  const int64_t since_ns = storm_->NowNs(), ms = storm_->Between(50, 20'000);
  if (storm_->random().Below(2) == 0) storm_->KeepQuiet(ms);
  cut_hosts_[pair] = since_ns;
  storm_->Note(absl::StrCat("host", pair.first, " and host", pair.second, " do not reach each other for ", ms, " ms"));
  storm_->After(ms, [this, pair, since_ns] {
    const auto found = cut_hosts_.find(pair);
    if (found != cut_hosts_.end() && found->second == since_ns) cut_hosts_.erase(found);
  });
}

bool StormWorkers::HasCutHost(const std::string& id) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& process) {
    return process->id == id && std::any_of(cut_hosts_.begin(), cut_hosts_.end(), [&](const auto& cut) {
             return cut.first.first == process->host || cut.first.second == process->host;
           });
  });
}

bool StormWorkers::AreCut(const Process& a, const Process& b) const {
  return cut_hosts_.contains(std::minmax(a.host, b.host));
}

// Whether some members of the gang do not reach each other, because their hosts do not.
bool StormWorkers::IsApart(const Gang& gang) const {
  if (cut_hosts_.empty()) return false;
  for (const auto& [number, member] : gang.members) {
    for (const auto& [other_number, other] : gang.members) {
      if (number < other_number && AreCut(*member.first, *other.first)) return true;
    }
  }
  return false;
}

// Adds to the report of a task the peers from which it has received nothing for some time.
void StormWorkers::ReportSilence(const Process& process, const Task& task, RunningTask* report) {
  const Gang& gang = *task.gang;
  if (task.end.has_value() || (cut_hosts_.empty() && gang.gone_since_ns.empty())) return;
  for (const Peer& peer : gang.launch.peers()) {
    const Process* const other = FindProcess(peer.worker_id());
    int64_t since_ns = -1;
    if (const auto gone = gang.gone_since_ns.find(peer.worker_id()); gone != gang.gone_since_ns.end()) {
      since_ns = gone->second;
    } else if (other != nullptr && AreCut(process, *other)) {
      since_ns = std::max(cut_hosts_.at(std::minmax(process.host, other->host)), gang.launched_ns);
    }
    if (since_ns < 0) continue;
    SilentPeer* const silent = report->add_silent();
    silent->set_worker_id(peer.worker_id());
    silent->set_silent_ms((storm_->NowNs() - since_ns) / kNsPerMs);
  }
}

// A host loses power. It starts again after some time.
void StormWorkers::LoseHost() {
  const int host = static_cast<int>(storm_->random().Below(hosts_));
  const int64_t away_ms = storm_->Between(3000, 25'000);
  if (storm_->random().Below(2) == 0) storm_->KeepQuiet(25'000);
  storm_->Note(absl::StrCat("host", host, " loses power for ", away_ms, " ms"));
  for (const auto& process : processes_) {
    if (process->host != host || !process->up) continue;
    LosePower(process.get());
    storm_->After(away_ms + storm_->Between(0, 3000), [this, p = process.get()] { StartProcess(p); });
  }
}

// Ends the worker and its tasks. Neither the coordinator nor the peers are notified: the connections stay open, and
// nothing arrives.
void StormWorkers::LosePower(Process* process) {
  constexpr int64_t kMinOpenMs = 15'000, kMaxOpenMs = 30'000;
  const int64_t connection = std::exchange(process->connection, 0);
  process->up = process->registered = false;
  process->lost_power = true;
  process->held_up.clear();
  process->held_down.clear();
  process->waiting.clear();
  if (connections_.erase(connection) != 0) {
    storm_->After(storm_->Between(kMinOpenMs, kMaxOpenMs), [this, connection] {
      storm_->Post([connection](Core& c) { c.OnWorkerGone(service::ConnectionId(connection)); });
    });
  }
  for (const auto& [key, task] : process->tasks) {
    task.gang->members.erase(process->number);
    task.gang->gone_since_ns[process->id] = storm_->NowNs();
    if (task.gang->members.empty()) task.gang->over = true;
  }
  process->tasks.clear();
}

// --- Placements.

// The offers after a batch contain no devices that an attempt of this batch could not have had, because none become
// free after the placement. Attempts that had to take certain workers are not checked.
void StormWorkers::CheckPlacements() {
  const auto& context = storm_->core()->context();
  const auto open = context.jobs.Open();
  const bool are_former_kept = std::any_of(open.begin(), open.end(), [](const service::Job* job) {
    return absl::StrContains(job->reason, "which are back");
  });
  std::vector<const service::Job*> placed;
  for (const service::Job* job : open) {
    const auto attempt = context.attempts.find(job->id);
    if (attempt == context.attempts.end()) continue;
    const bool is_new = std::exchange(seen_attempts_[job->id.str()], job->attempt) != job->attempt;
    if (!is_new || attempt->second.awaiting_adoption) continue;
    placed.push_back(job);
    if (are_former_kept || !context.waiting.empty() || job->spec.on_loss() == JobSpec::WAIT) continue;
    CheckHosts(*job);
    CheckPacking(*job);
  }
  if (are_former_kept) overtaken_ = Overtaken();
  if (!are_former_kept) CheckOvertaking(placed);
}

// An attempt is on one host if one has enough devices. If the workers of a cut link are kept apart, it may be on
// others, but not on both workers.
void StormWorkers::CheckHosts(const service::Job& job) {
  const auto& context = storm_->core()->context();
  std::map<std::string, int64_t> devices;  // By host, first those of the job.
  std::set<std::string> workers;
  for (const Peer& peer : job.placed.peers()) {
    devices[peer.host()] += peer.devices_size();
    workers.insert(peer.worker_id());
  }
  const auto cuts = context.cut_links.Pairs();
  const bool has_cut = std::any_of(cuts.begin(), cuts.end(), [&](const auto& pair) {
    return workers.contains(pair.first) && workers.contains(pair.second);
  });
  const size_t hosts = devices.size();
  if (hosts < 2 || (!cuts.empty() && !has_cut)) return;
  for (const service::WorkerDevices& offer : context.Offers(/*only_free=*/true)) {
    const service::WorkerId worker(offer.registration->worker_id());
    const bool may_have = context.options.share_workers || !context.RunsOthersOn(worker, job.owner);
    if (may_have) devices[offer.registration->host()] += offer.devices;
  }
  for (const auto& [host, count] : devices) {
    if (count < service::DeviceCount(job.placed_mesh)) continue;
    storm_->Violate(absl::StrCat(job.id.str(), " is placed on ", hosts, " hosts", has_cut ? " with a cut link" : "",
                                 " although ", host, " had ", count, " free devices"));
  }
}

// A job of a known owner does not take an idle worker if one that runs its owner's jobs has enough devices.
void StormWorkers::CheckPacking(const service::Job& job) {
  const auto& context = storm_->core()->context();
  if (job.owner.empty() || context.options.share_workers || !context.cut_links.empty()) return;
  for (const Peer& peer : job.placed.peers()) {
    if (context.workers.at(service::WorkerId(peer.worker_id())).jobs.size() > 1) return;
  }
  for (const service::WorkerDevices& offer : context.Offers(/*only_free=*/true)) {
    const service::WorkerId worker(offer.registration->worker_id());
    if (offer.devices < service::DeviceCount(job.placed_mesh) || context.RunsOthersOn(worker, job.owner)) continue;
    for (const service::JobId& other : context.workers.at(worker).jobs) {
      const auto attempt = context.attempts.find(other);
      const bool was_there = attempt != context.attempts.end() && attempt->second.placed_ns < context.now_ns;
      if (!was_there || other == job.id) continue;
      storm_->Violate(absl::StrCat(job.id.str(), " takes an idle worker although ", worker.str(), ", which runs ",
                                   other.str(), " of its owner, had ", offer.devices, " free devices"));
    }
  }
}

// While a job waits only because of other owners, later jobs must leave it enough workers. `placed` are the jobs that
// this batch placed.
void StormWorkers::CheckOvertaking(const std::vector<const service::Job*>& placed) {
  const auto& context = storm_->core()->context();
  const service::Job* oldest = nullptr;
  for (const auto& [owner, id] : context.waiting) {
    const service::Job* const job = context.jobs.Find(id);
    if (job != nullptr && (oldest == nullptr || job->number < oldest->number)) oldest = job;
  }
  Overtaken now;
  for (const auto& [id, worker] : context.workers) {
    if (context.TakesWork(worker)) now.workers.insert(id.str());
  }
  if (oldest != nullptr) now.job = absl::StrCat(oldest->id.str(), " on ", MeshText(oldest->mesh));
  // If workers have come or gone, other workers may be reserved, and later jobs may run there already.
  if (oldest == nullptr || overtaken_.job != now.job || overtaken_.workers != now.workers) {
    overtaken_ = std::move(now);
    return;
  }
  for (const service::Job* job : placed) {
    if (job->number > oldest->number) overtaken_.by.emplace(job->id.str(), job->attempt);
  }
  int64_t devices = 0;
  for (const auto& [id, worker] : context.workers) {
    const bool is_taken = std::any_of(worker.jobs.begin(), worker.jobs.end(), [&](const service::JobId& other) {
      return overtaken_.by.contains({other.str(), context.jobs.Find(other)->attempt});
    });
    if (context.TakesWork(worker) && !is_taken) devices += worker.registration.devices();
  }
  const bool has_room = service::DeviceCount(oldest->mesh) <= static_cast<int64_t>(now.workers.size()) * devices_each_;
  if (!has_room || devices >= service::DeviceCount(oldest->mesh)) return;
  storm_->Violate(absl::StrCat(oldest->id.str(), " waits, and later jobs have left it ", devices, " devices"));
  overtaken_ = Overtaken();
}

}  // namespace xlad::simulation
