// The part of StormWorkers that sends what the coordinator must ignore, and checks what it must have answered: messages
// of workers about attempts that they do not run, and processes with the id of another worker.
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/simulation/storm.h"
#include "tests/simulation/storm_process.h"

namespace xlad::simulation {
namespace {

// The average number of messages between two that a wrong sender repeats.
constexpr uint64_t kRarity = 150, kRarityOfShards = 10;

}  // namespace

// Sometimes repeats a message about an attempt on the connection of a worker that the attempt does not have, and
// sometimes registers a second process with the id of this worker. The coordinator must ignore both.
void StormWorkers::RepeatWithWrongSender(const Process& process, const WorkerMessage& message) {
  if (storm_->is_quiet() || !storm_->Has(StormFault::kWrongSender) || message.has_register_()) return;
  if (storm_->random().Below(message.has_shard_written() ? kRarityOfShards : kRarity) != 0) return;
  if (storm_->random().Below(4) == 0) return RegisterAgain(process);
  const Process& other = *processes_[storm_->random().Below(processes_.size())];
  if (!other.registered || message.has_heartbeat() || message.has_draining()) return;
  for (const auto& [key, task] : process.tasks) {
    for (const Peer& peer : task.launch.peers()) {
      if (peer.worker_id() == other.id) return;
    }
  }
  WorkerMessage repeated = message;
  repeated.set_incarnation(other.incarnation);
  DeliverUp(other.connection, repeated);
}

// A second process registers as a worker that has no faults now. Its connection is not recorded, so answers are lost.
void StormWorkers::RegisterAgain(const Process& process) {
  if (!storm_->is_responsive() || !IsReachable(process.id) || !IsWell(process.id)) return;
  const int64_t connection = next_connection_++;
  WorkerMessage registration = RegistrationOf(process);
  registration.mutable_register_()->set_incarnation(next_incarnation_++);
  storm_->Note(absl::StrCat("a second process registers as ", process.id));
  DeliverUp(connection, registration);
  storm_->After(storm_->Between(0, 100), [this, connection] {
    storm_->Post([connection](Core& c) { c.OnWorkerGone(service::ConnectionId(connection)); });
  });
}

uint64_t StormWorkers::IncarnationOf(const std::string& id) const {
  for (const auto& process : processes_) {
    if (process->id == id && process->up) return process->incarnation;
  }
  return 0;
}

int64_t StormWorkers::FinishedSteps(const std::string& job, int64_t attempt) const {
  const auto gang = gangs_.find({job, attempt});
  return gang == gangs_.end() ? -1 : gang->second->finished;
}

// The coordinator tells workers which checkpoints are committed and which attempts have started, and repeats this if a
// worker connects again and has not received it.
void StormWorkers::CheckNotices() {
  constexpr int kMaxChecks = 6;
  for (const auto& process : processes_) {
    const bool is_reachable = IsReachable(process->id);
    for (auto& [key, task] : process->tasks) {
      const auto job = storm_->model().jobs().find(key.first);
      const bool is_current = is_reachable && job != storm_->model().jobs().end() && job->second.running &&
                              job->second.attempt == key.second;
      const bool is_committed =
          is_current && !task.shards.empty() && task.shards.begin()->first <= job->second.newest_step;
      task.committed_checks = is_committed ? task.committed_checks + 1 : 0;
      if (task.committed_checks == kMaxChecks) {
        storm_->Violate(absl::StrCat(process->id, " still has its shard of the checkpoint of ", key.first,
                                     " before step ", task.shards.begin()->first));
      }
      const bool waits = is_current && job->second.started && task.ready && !task.started && !task.end.has_value();
      task.start_checks = waits ? task.start_checks + 1 : 0;
      if (task.start_checks == kMaxChecks) {
        storm_->Violate(
            absl::StrCat(process->id, " does not know that attempt ", key.second, " of ", key.first, " has started"));
      }
    }
  }
}

}  // namespace xlad::simulation
