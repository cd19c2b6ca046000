// The part of StormWorkers that reads and writes checkpoints: damaged ones, and disks that are full or slow.
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/job_uris.h"
#include "tests/simulation/storm.h"
#include "tests/simulation/storm_process.h"

namespace xlad::simulation {
namespace {

constexpr int64_t kMaxMisreadMs = 10'000;  // The coordinator drops a checkpoint that one worker misreads for 15 s.
constexpr int64_t kMisreadPauseMs = 30'000;  // Between two misreads, so that the findings of two never add up.
constexpr int64_t kRetryMs = 300;

}  // namespace

// --- Reading.

void StormWorkers::ReadState(const std::string& id, const TaskKey& key, int64_t generation) {
  Process* const process = FindProcess(id);
  Task* const task = process == nullptr ? nullptr : Find(process, key, generation);
  if (task == nullptr || task->end.has_value()) return;
  if (storm_->NowNs() < process->stopped_until_ns) {
    const int64_t wait_ms = (process->stopped_until_ns - storm_->NowNs()) / kNsPerMs + 1;
    return storm_->After(wait_ms, [this, id, key, generation] { ReadState(id, key, generation); });
  }
  if (FindsDamage(*process, *task)) return FailToRead(process, task);
  task->has_read = true;
}

bool StormWorkers::FindsDamage(const Process& process, const Task& task) {
  const auto index = storm_->indexes().find(task.launch.checkpoint_uri());
  if (index == storm_->indexes().end()) return false;
  const bool misreads = storm_->NowNs() < process.misreads_until_ns;
  const int peers = task.launch.peers_size();
  bool is_there = index->second.is_damaged && index->second.damaged_peer < 0;
  if (index->second.is_damaged && index->second.damaged_peer >= 0) {
    is_there = task.launch.peers(index->second.damaged_peer % peers).worker_id() == process.id;
  }
  misreads_ += misreads && !is_there ? 1 : 0;
  return misreads || is_there;
}

void StormWorkers::FailToRead(Process* process, Task* task) {
  storm_->Note(absl::StrCat(process->id, " finds damage in ", task->launch.checkpoint_uri()));
  WorkerMessage message;
  TaskFailed* failed = message.mutable_failed();
  Name(task->launch, failed);
  failed->set_step(task->gang->finished);
  const std::string context = storage::StateContext(task->launch.checkpoint_uri());
  failed->set_error(absl::StrCat(context, ": found checksum 1, expected 2"));
  failed->set_error_code(static_cast<int>(absl::StatusCode::kDataLoss));
  task->end = std::move(message);
  if (process->registered) SendUnanswered(process, task);
  EndGang(task->gang.get(), process->id);
}

// --- Writing.

// Writes the state before step `finished`. A state with which the attempt ends is written again until it is stored;
// others are skipped if the disk is full or still writes.
void StormWorkers::WriteShard(Process* process, Task* task, bool is_end) {
  const int64_t now_ns = storm_->NowNs(), step = task->gang->finished;
  if (is_end && (task->is_writing || now_ns < task->next_write_ns)) return;
  const bool is_full = now_ns < process->disk_full_until_ns;
  if (is_full || task->is_writing) task->skipped_step = step;
  if (is_full) return ReportUnstored(process, task, is_end);
  if (task->is_writing) return;
  task->saved_step = step;
  CheckpointShard shard;
  const TaskKey& key = task->gang->key;
  shard.set_uri(absl::StrCat("shard of ", key.first, " by attempt ", key.second, " of ", process->id, "/",
                             process->incarnation, " before ", step));
  shards_[shard.uri()] = {key.first, key.second, task->launch.generation(), step, task->gang->contents};
  if (now_ns >= process->disk_slow_until_ns) {
    task->shards[step] = shard;
    return OnWritten(process, task, step);
  }
  task->is_writing = true;
  const int64_t generation = task->launch.generation();
  storm_->After(storm_->Between(50, 2000), [this, id = process->id, key, generation, step, shard] {
    Process* const writer = FindProcess(id);
    Task* const written = writer == nullptr ? nullptr : Find(writer, key, generation);
    if (written == nullptr || !written->is_writing || written->saved_step != step) return;
    written->is_writing = false;
    written->shards[step] = shard;
    OnWritten(writer, written, step);
  });
}

void StormWorkers::OnWritten(Process* process, Task* task, int64_t step) {
  if (!process->registered) return;
  SendMetrics(process, task);
  SendShard(process, task, step);
}

void StormWorkers::ReportUnstored(Process* process, Task* task, bool is_end) {
  task->next_write_ns = storm_->NowNs() + kRetryMs * kNsPerMs;
  if (!process->registered) return;
  WorkerMessage message;
  ShardFailed* failed = message.mutable_shard_failed();
  Name(task->launch, failed);
  failed->set_step(task->gang->finished);
  failed->set_error("no space on the disk of the worker");
  failed->set_error_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  failed->set_must_be_stored(is_end);
  SendUp(process, std::move(message));
}

// --- Faults.

// Damages the newest checkpoint of a job. Most jobs have an older one. Often a task dies soon after, so that the next
// attempt reads the checkpoint.
void StormWorkers::DamageNewestCheckpoint() {
  std::vector<const LogModel::Job*> jobs;
  std::vector<TaskKey> keys;
  for (const auto& [id, job] : storm_->model().jobs()) {
    const bool may_lose_all = storm_->random().Below(8) == 0;
    if (job.ended || job.checkpoints.empty() || (job.checkpoints.size() == 1 && !may_lose_all)) continue;
    jobs.push_back(&job);
    keys.emplace_back(id, job.attempt);
  }
  if (jobs.empty()) return;
  const size_t chosen = storm_->random().Below(jobs.size());
  const std::string& uri = jobs[chosen]->checkpoints.rbegin()->second;
  StoredIndex& index = storm_->indexes().at(uri);
  index.is_damaged = true;
  index.damaged_peer = static_cast<int>(storm_->Between(-1, 3));
  storm_->Note(absl::StrCat("damages ", uri));
  if (storm_->random().Below(4) != 0) ExitTaskSoon(keys[chosen]);
}

// One worker misreads for some time, or all workers of its host do. Often one of its tasks dies soon after it has
// begun. Workers of two hosts never misread, because the coordinator would drop an intact checkpoint.
void StormWorkers::Misread() {
  std::vector<Process*> may;
  for (const auto& process : processes_) {
    if (process->host == misreading_host_ && !process->tasks.empty()) may.push_back(process.get());
  }
  if (may.empty() || storm_->NowNs() < next_misreads_ns_) return;
  Process* const process = may[storm_->random().Below(may.size())];
  const int64_t ms = storm_->Between(1000, kMaxMisreadMs);
  process->misreads_until_ns = storm_->NowNs() + ms * kNsPerMs;
  const bool all_do = hosts_ > 1 && storm_->random().Below(2) == 0;
  for (const auto& other : processes_) {
    if (all_do && other->host == process->host) other->misreads_until_ns = process->misreads_until_ns;
  }
  next_misreads_ns_ = process->misreads_until_ns + kMisreadPauseMs * kNsPerMs;
  storm_->Note(absl::StrCat(process->id, " misreads for ", ms, " ms"));
  if (storm_->random().Below(4) != 0) ExitTaskSoon(process->tasks.begin()->first);
}

// Ends the process of one task of an attempt, if the attempt still runs then.
void StormWorkers::ExitTaskSoon(const TaskKey& key) {
  storm_->After(storm_->Between(0, 300), [this, key] {
    const auto gang = gangs_.find(key);
    if (storm_->is_calm() || gang == gangs_.end() || gang->second->over || gang->second->members.empty()) return;
    const auto& [process, task] = gang->second->members.begin()->second;
    ExitTask(process, task);
  });
}

void StormWorkers::InjectDiskFault() {
  if (storm_->is_calm()) return;
  storm_->After(storm_->Between(300, 2500), [this] { InjectDiskFault(); });
  if (storm_->is_quiet()) return;
  Process* const process = processes_[storm_->random().Below(processes_.size())].get();
  const int64_t now_ns = storm_->NowNs();
  constexpr StormFault kFaults[] = {StormFault::kDamage, StormFault::kDamage, StormFault::kMisread,
                                    StormFault::kWorkerDisk, StormFault::kIndexDisk};
  const StormFault fault = kFaults[storm_->random().Below(std::size(kFaults))];
  if (!storm_->Has(fault)) return;
  switch (fault) {
    case StormFault::kDamage:
      return DamageNewestCheckpoint();
    case StormFault::kMisread:
      return Misread();
    case StormFault::kWorkerDisk: {
      const bool is_full = storm_->random().Below(2) == 0;
      (is_full ? process->disk_full_until_ns : process->disk_slow_until_ns) =
          now_ns + storm_->Between(200, 6000) * kNsPerMs;
      return storm_->Note(absl::StrCat("the disk of ", process->id, is_full ? " is full" : " is slow"));
    }
    default:
      return storm_->FillIndexDisk();
  }
}

}  // namespace xlad::simulation
