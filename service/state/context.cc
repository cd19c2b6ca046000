#include "service/state/context.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/log.h"
#include "proto/device_name.h"

namespace xlad::service {

std::string StateName(const Worker& worker, bool drained) {
  switch (worker.state) {
    case WorkerState::kSuspect:
      return "suspect";
    case WorkerState::kLost:
      return "lost";
    case WorkerState::kMayExit:
      return "drained";
    case WorkerState::kAlive:
      break;
  }
  if (!worker.leaving && !drained) return "alive";
  return worker.leaving || !worker.jobs.empty() ? "draining" : "drained";
}

JobEvent Context::NewEvent(const JobId& job) const {
  JobEvent event;
  event.set_job_id(job.str());
  event.set_unix_ns(wall_ns);
  event.set_term(jobs.term().value());
  event.set_actor(actor);
  return event;
}

void Context::Record(JobEvent event) {
  jobs.Apply(event);
  if (event.has_ended()) ended.emplace_back(event.job_id());
  const bool is_new_program = event.has_built() && !event.built().only_code();
  if (is_new_program || event.has_attempt_ended() || event.has_resized()) {
    runnable.emplace_back(event.job_id());
    reschedule = true;
  }
  LogInfo(Describe(event), {{"job", event.job_id()}});
  effects.batch.events.push_back(std::move(event));
}

void Context::Send(const WorkerId& worker, CoordinatorMessage message, std::shared_ptr<const std::string> common) {
  const Worker* to = FindWorker(worker);
  if (to == nullptr || to->connection == ConnectionId()) return;
  message.set_term(jobs.term().value());
  effects.actions.push_back(SendMessage{to->connection, std::move(message), std::move(common)});
}

void Context::SendToAll(const Job& job, const CoordinatorMessage& message) {
  for (const Peer& peer : job.placed.peers()) Send(WorkerId(peer.worker_id()), message);
}

void Context::NoteMessage(Worker* worker) const {
  const int64_t gap_ns = worker->last_message_ns == 0 ? 0 : now_ns - worker->last_message_ns;
  if (worker->last_message_ns == 0) worker->links_count_from_ns = now_ns;
  if (gap_ns >= options.recent_message_ms * kNsPerMs) worker->links_count_from_ns = now_ns + gap_ns;
  worker->last_message_ns = now_ns;
}

Worker* Context::FindWorker(const WorkerId& id) {
  const auto found = workers.find(id);
  return found == workers.end() ? nullptr : &found->second;
}

Job* Context::FindRunning(const std::string& job_id, int64_t attempt, int64_t generation) {
  Job* job = jobs.Find(JobId(job_id));
  if (job == nullptr || !job->attempt_running || job->attempt != attempt) return nullptr;
  return generation == job->placed.generation() ? job : nullptr;
}

std::string Context::ReasonOf(const Job& job) const {
  const auto is_behind = [&](const Job* first) {
    return first != nullptr && first->state == PENDING && job.state == PENDING && !job.attempt_running &&
           job.number > first->number;
  };
  const auto of_owner = waiting.find(job.owner);
  const Job* first = of_owner == waiting.end() ? nullptr : jobs.Find(of_owner->second);
  if (!is_behind(first)) first = blocking.empty() ? nullptr : jobs.Find(blocking);
  if (!is_behind(first)) return job.state == RUNNING && job.reason.empty() ? CodeText(job) : job.reason;
  // The reason is shown to the job's owner, who may not know of other users' jobs.
  if (first->owner != job.owner) return "waits behind a pending job of another user";
  return absl::StrCat("waits behind job ", first->id.str(), ", which is pending: ", first->reason);
}

bool Context::IsOn(const WorkerId& worker, const Job& job) const {
  const auto found = workers.find(worker);
  return found != workers.end() && found->second.jobs.contains(job.id);
}

Attempt& Context::AddAttempt(const Job& job) {
  for (const Peer& peer : job.placed.peers()) {
    if (Worker* worker = FindWorker(WorkerId(peer.worker_id())); worker != nullptr) Occupy(job, peer, worker);
  }
  const auto [added, is_new] = attempts.try_emplace(job.id);
  if (is_new) ++owners[job.owner];
  Attempt& attempt = added->second;
  if (attempt.placed_ns == 0) attempt.placed_ns = attempt.last_checkpoint_ns = now_ns;
  return attempt;
}

namespace {

// Adds `sign` times the number of the peer's devices to the worker's used devices.
void CountUsed(const Peer& peer, int64_t sign, Worker* worker) {
  if (peer.kinds().empty()) worker->used[peer.device_name()] += sign * DevicesOf(peer);
  for (const PeerDevices& kind : peer.kinds()) {
    worker->used[kind.device_name()] += sign * kind.devices_size() / ShardsPerDevice(peer);
  }
}

}  // namespace

void Context::Occupy(const Job& job, const Peer& peer, Worker* worker) {
  if (worker->jobs.insert(job.id).second) CountUsed(peer, 1, worker);
}

void Context::RemoveAttempt(const Job& job) {
  if (attempts.erase(job.id) == 0) return;
  if (--owners[job.owner] == 0) owners.erase(job.owner);
  for (const Peer& peer : job.placed.peers()) {
    Worker* worker = FindWorker(WorkerId(peer.worker_id()));
    if (worker == nullptr || worker->jobs.erase(job.id) == 0) continue;
    CountUsed(peer, -1, worker);
  }
  reschedule = true;
}

bool Context::AllSpeak(int32_t protocol, const std::vector<Peer>& peers) const {
  return std::all_of(peers.begin(), peers.end(), [&](const Peer& peer) {
    const auto worker = workers.find(WorkerId(peer.worker_id()));
    return worker != workers.end() && worker->second.registration.protocol() >= protocol;
  });
}

bool Context::AllSendPartialsInF32(const std::vector<Peer>& peers) const {
  return std::all_of(peers.begin(), peers.end(), [&](const Peer& peer) {
    const auto worker = workers.find(WorkerId(peer.worker_id()));
    return worker != workers.end() && worker->second.registration.sends_partials_in_f32();
  });
}

bool Context::TakesWork(const Worker& worker) const {
  return worker.state == WorkerState::kAlive && worker.connection != ConnectionId() && !worker.leaving &&
         !jobs.drained().contains(worker.id);
}

bool Context::RunsOthersOn(const WorkerId& worker, const std::string& owner) const {
  const auto found = workers.find(worker);
  if (found == workers.end()) return false;
  return std::any_of(found->second.jobs.begin(), found->second.jobs.end(),
                     [&](const JobId& job) { return jobs.Find(job)->owner != owner; });
}

std::vector<WorkerDevices> Context::Offers(bool only_free) const {
  std::vector<WorkerDevices> offers;
  for (const auto& [id, worker] : workers) {
    if (!TakesWork(worker)) continue;
    bool is_first = true;
    for (const DeviceOffer& offer : OffersOf(worker.registration)) {
      int64_t used = 0;
      if (only_free) {
        if (const auto found = worker.used.find(DeviceName(offer.target())); found != worker.used.end()) {
          used = found->second;
        }
        // Logs of older versions do not name the kind of an attempt's devices, which is that of the first offer.
        if (const auto found = worker.used.find(""); is_first && found != worker.used.end()) used += found->second;
      }
      is_first = false;
      if (offer.count() > used) offers.push_back({&worker.registration, offer, offer.count() - used});
    }
  }
  return offers;
}

uint64_t Context::OffersHash() const {
  uint64_t hash = 1;
  for (const auto& [id, worker] : workers) {
    if (!TakesWork(worker)) continue;
    const uint64_t offer[] = {hash, worker.registration.incarnation(),
                              static_cast<uint64_t>(worker.registration.devices())};
    hash = Hash64(id.str(), Hash64({reinterpret_cast<const char*>(offer), sizeof offer}));
  }
  return hash;
}

namespace {

// "rank 3", "ranks 0, 1, 4-7"
std::string RanksText(const Peer& peer) {
  std::vector<std::string> parts;
  const auto& ranks = peer.devices();
  for (int first = 0; first < ranks.size();) {
    int end = first + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - first < 3) end = first + 1;
    parts.push_back(end - first == 1 ? absl::StrCat(ranks[first]) : absl::StrCat(ranks[first], "-", ranks[end - 1]));
    first = end;
  }
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(parts, ", "));
}

}  // namespace

std::string Context::WorkerText(const Job& job, const std::string& worker_id) {
  for (const Peer& peer : job.placed.peers()) {
    if (peer.worker_id() == worker_id) {
      return absl::StrCat("worker ", worker_id, " (", RanksText(peer), "; host ", peer.host(), ", pid ", peer.pid(),
                          ")");
    }
  }
  return absl::StrCat("worker ", worker_id);
}

}  // namespace xlad::service
