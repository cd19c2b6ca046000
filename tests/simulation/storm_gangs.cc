// The part of StormWorkers that runs attempts: the tasks of a gang step together, save their state and end together.
#include "tests/simulation/storm.h"
#include "tests/simulation/storm_clients.h"
#include "tests/simulation/storm_process.h"

namespace xlad::simulation {
namespace {

constexpr int64_t kStepMs = 20;
constexpr int64_t kMaxQuickSteps = 100;  // After the storm, a job gets its optimized code within this many steps.
constexpr int64_t kStallMs = 3000;  // Peers abort an attempt if one of its members has stalled for this long.

}  // namespace

void StormWorkers::Drop(Process* process, const TaskKey& key) {
  const auto found = process->tasks.find(key);
  const std::shared_ptr<Gang> gang = found->second.gang;
  gang->members.erase(process->number);
  process->tasks.erase(found);
  EndGang(gang.get(), process->id);
}

// Ends a gang of which a member is lost or has stalled: the members that have not ended report a failure that names
// `suspect`.
void StormWorkers::EndGang(Gang* gang, const std::string& suspect) {
  if (std::exchange(gang->over, true)) return;
  gang->suspect = suspect;
  for (const auto& [number, member] : gang->members) {
    const auto& [process, task] = member;
    if (!task->end.has_value()) FailTask(process, task);
  }
}

void StormWorkers::FailTask(Process* process, Task* task) {
  WorkerMessage message;
  TaskFailed* failed = message.mutable_failed();
  Name(task->launch, failed);
  failed->set_step(task->gang->finished);
  failed->set_error("a peer is gone");
  failed->set_error_code(static_cast<int>(absl::StatusCode::kUnavailable));
  failed->set_suspect_worker(task->gang->suspect);
  task->end = std::move(message);
  if (process->registered) SendUnanswered(process, task);
}

bool StormWorkers::CanStep(Gang* gang) {
  if (std::ssize(gang->members) < gang->launch.peers_size() || IsApart(*gang)) return false;
  const int64_t now_ns = storm_->NowNs();
  bool can = true;
  for (const auto& [number, member] : gang->members) {
    const auto& [process, task] = member;
    const bool stalled = now_ns < process->stopped_until_ns || (process->data_cut && gang->members.size() > 1);
    if (stalled && gang->stalled_since_ns < 0) gang->stalled_since_ns = now_ns;
    if (stalled && now_ns - gang->stalled_since_ns > kStallMs * kNsPerMs) {
      EndGang(gang, process->id);
      return false;
    }
    can = can && !stalled && task->has_read;
  }
  if (!can) return false;
  gang->stalled_since_ns = -1;
  for (const auto& [number, member] : gang->members) {
    const auto& [process, task] = member;
    if (!std::exchange(task->ready, true) && process->registered && !task->end.has_value()) {
      WorkerMessage message;
      Name(task->launch, message.mutable_ready());
      SendUp(process, std::move(message));
    }
  }
  return true;
}

// Writes the state before step `finished` if this is a step to save.
void StormWorkers::WriteShards(Gang* gang) {
  const int64_t step = gang->finished;
  const int64_t every = gang->launch.spec().checkpoint().every_steps();
  for (const auto& [number, member] : gang->members) {
    const auto& [process, task] = member;
    const bool due = (every > 0 && step > 0 && step % every == 0) || task->checkpoint_steps.contains(step) ||
                     task->stop_at == step || step == gang->launch.spec().steps();
    const bool is_end = task->stop_at == step || step == gang->launch.spec().steps();
    const bool is_open = task->saved_step < step && (is_end || task->skipped_step < step);
    if (due && is_open) WriteShard(process, task, is_end);
  }
}

// After the storm, the optimized code of a job is soon built and sent to all of its workers, unless its build fails.
void StormWorkers::CheckCode(Gang* gang) {
  if (!storm_->is_calm() || !storm_->is_responsive()) return;
  const service::Job* const job = storm_->core()->context().jobs.Find(service::JobId(gang->key.first));
  bool is_quick = false, are_connected = true;
  for (const auto& [number, member] : gang->members) {
    is_quick = is_quick || member.second->is_quick;
    are_connected = are_connected && member.first->registered;
  }
  if (!is_quick || !are_connected || job == nullptr || !job->optimizing_error.empty()) return;
  if (++gang->quick_steps != kMaxQuickSteps) return;
  storm_->Violate(absl::StrCat(gang->key.first, " still runs ", gang->launch.executable_digest()));
}

void StormWorkers::FinishStep(Gang* gang) {
  CheckCode(gang);
  const std::string job_key = storm_->KeyOf(gang->key.first);
  StepMetrics metrics;
  metrics.set_step(gang->finished);
  metrics.set_step_ms(static_cast<double>(kStepMs));
  metrics.add_values(LossOf(gang->contents));
  // If the gang has loaded a wrong state (of another step or job), its contents stay wrong in all later steps.
  gang->contents = gang->contents == ContentsAt(job_key, gang->finished) ? ContentsAt(job_key, gang->finished + 1)
                                                                         : gang->contents + 1;
  ++gang->finished;
  for (const auto& [number, member] : gang->members) {
    Task* task = member.second;
    if (!task->is_first) continue;
    metrics.set_quick_code(task->is_quick);
    task->metrics.push_back(metrics);
  }
}

// Whether the task has stored the state with which its attempt ends, if it ends before step `finished`.
bool StormWorkers::HasSaved(const Task& task, const Gang& gang) {
  const bool is_end = gang.finished >= gang.launch.spec().steps() || task.stop_at == gang.finished;
  return !is_end || (task.saved_step >= gang.finished && !task.is_writing);
}

void StormWorkers::Step(const TaskKey& key) {
  const std::shared_ptr<Gang> gang = gangs_[key];
  if (gang->over) return;
  if (CanStep(gang.get()) && gang->finished == storm_->clients().FailsAt(storm_->KeyOf(key.first))) {
    FailProgram(gang.get());
  } else if (!gang->over && CanStep(gang.get())) {
    WriteShards(gang.get());
    bool goes_on = true;
    for (const auto& [number, member] : gang->members) {
      const auto& [process, task] = member;
      WorkerMessage end;
      if (!HasSaved(*task, *gang)) {  // The end is reported after the state.
        goes_on = false;
        continue;
      }
      if (gang->finished >= gang->launch.spec().steps()) {
        Name(task->launch, end.mutable_finished());
      } else if (task->stop_at == gang->finished) {
        Name(task->launch, end.mutable_stopped());
        end.mutable_stopped()->set_step(gang->finished);
      }
      goes_on = goes_on && end.message_case() == WorkerMessage::MESSAGE_NOT_SET && task->lease_until > gang->finished;
      if (end.message_case() == WorkerMessage::MESSAGE_NOT_SET) continue;
      if (task->end.has_value() && task->end->message_case() == end.message_case()) continue;
      task->end = std::move(end);
      if (process->registered) SendUnanswered(process, task);
    }
    if (goes_on) FinishStep(gang.get());
  }
  if (!gang->over) storm_->After(kStepMs, [this, key] { Step(key); });
}

// The program ends with an error at this step, on all devices.
void StormWorkers::FailProgram(Gang* gang) {
  gang->over = true;
  for (const auto& [number, member] : gang->members) {
    const auto& [process, task] = member;
    WorkerMessage message;
    Name(task->launch, message.mutable_failed());
    message.mutable_failed()->set_step(gang->finished);
    message.mutable_failed()->set_error(kProgramError);
    message.mutable_failed()->set_error_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
    task->end = std::move(message);
    if (process->registered) SendUnanswered(process, task);
  }
}

void StormWorkers::SendShard(Process* process, Task* task, int64_t step) {
  WorkerMessage message;
  ShardWritten* written = message.mutable_shard_written();
  Name(task->launch, written);
  written->set_step(step);
  *written->mutable_shard() = task->shards.at(step);
  SendUp(process, std::move(message));
}

void StormWorkers::SendMetrics(Process* process, Task* task) {
  if (task->metrics.empty()) return;
  WorkerMessage message;
  Name(task->launch, message.mutable_steps());
  for (const StepMetrics& row : task->metrics) *message.mutable_steps()->add_metrics() = row;
  SendUp(process, std::move(message));
}

// Sends all messages that the coordinator has not answered, in their original order.
void StormWorkers::SendUnanswered(Process* process, Task* task) {
  SendMetrics(process, task);
  for (const auto& [step, shard] : task->shards) SendShard(process, task, step);
  if (task->end.has_value()) SendUp(process, *task->end);
}

service::Checkpoint StormWorkers::StoreIndex(const CheckpointIndex& index) {
  std::set<std::string> uris;
  StoredIndex stored{index.job_id(), index.attempt(), index.generation(), index.step(), 0};
  for (int s = 0; s < index.shards_size(); ++s) {
    uris.insert(index.shards(s).uri());
    const StoredIndex& shard = shards_.at(index.shards(s).uri());
    const bool fits = shard.job_id == stored.job_id && shard.attempt == stored.attempt &&
                      shard.generation == stored.generation && shard.step == stored.step &&
                      (s == 0 || shard.contents == stored.contents);
    stored.contents = fits ? shard.contents : 0;
  }
  const auto gang = gangs_.find({index.job_id(), index.attempt()});
  const bool complete = gang != gangs_.end() && std::ssize(uris) == gang->second->launch.peers_size();
  if (!complete) stored.contents = 0;
  service::Checkpoint checkpoint;
  checkpoint.step = index.step();
  checkpoint.uri = absl::StrCat("index of ", index.job_id(), " by attempt ", index.attempt(), " before ", index.step());
  checkpoint.digest = "digest";
  storm_->indexes()[checkpoint.uri] = stored;
  return checkpoint;
}

}  // namespace xlad::simulation
