#include "runtime/task_gate.h"

#include <algorithm>

#include "base/containers.h"

namespace xlad::runtime {

TaskGate::TaskGate(const Options& options, int devices)
    : options_(options), finished_(devices, options.first_step), saved_(devices, -1), begun_(options.first_step) {}

bool TaskGate::IsFinal(int64_t step) const {
  return step >= options_.end_step || step == stop_at_ || replaced_stops_.contains(step);
}

bool TaskGate::SavesAt(int64_t step) const {
  if (step >= options_.end_step) return options_.save_at_end;
  if (IsFinal(step)) return true;
  if (step <= skipped_) return false;
  if (checkpoints_.contains(step)) return true;
  return options_.save_every > 0 && step > options_.first_step && step % options_.save_every == 0;
}

TaskGate::Decision TaskGate::Begin(int device, int64_t step) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (ended_) return Decision::kEnd;
    // The lock is held until the step has begun, so that every device saves a checkpoint that was accepted.
    if (SavesAt(step) && saved_[device] != step) {
      saved_[device] = step;
      return Decision::kSave;
    }
    if (step >= options_.end_step) return Decision::kDone;
    if (step == stop_at_) return Decision::kStop;
    if (step < lease_until_ && step < FinishedByAll() + kMaxAhead) break;
    const bool waits_for_slowest = step < lease_until_;
    waiting_for_slowest_ += waits_for_slowest;
    changed_.wait(lock);
    waiting_for_slowest_ -= waits_for_slowest;
  }
  begun_ = std::max(begun_, step + 1);
  return Decision::kRun;
}

void TaskGate::SkipSave(int device, int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  skipped_ = std::max(skipped_, step);
  saved_[device] = -1;
}

bool TaskGate::GiveUpSave(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (step >= options_.end_step || step == stop_at_) return false;
  replaced_stops_.erase(step);
  skipped_ = std::max(skipped_, step);
  for (int64_t& saved : saved_) {
    if (saved == step) saved = -1;
  }
  return true;
}

void TaskGate::FinishStep(int device, int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t before = FinishedByAll();
  finished_[device] = step + 1;
  if (waiting_for_slowest_ > 0 && FinishedByAll() != before) changed_.notify_all();
}

bool TaskGate::ReachStop(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  return step == stop_at_ && ++stopped_ == std::ssize(finished_);
}

void TaskGate::WaitWhileStopped(int64_t step) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || stop_at_ != step; });
}

void TaskGate::Lease(int64_t lease_until_step) {
  std::lock_guard<std::mutex> lock(mutex_);
  lease_until_ = lease_until_step;
  changed_.notify_all();
}

bool TaskGate::StopAt(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (begun_ > step) return false;
  if (step != stop_at_) {
    stopped_ = 0;
    const bool is_saved = Contains(saved_, stop_at_);
    if (stop_at_ >= 0 && is_saved) replaced_stops_.insert(stop_at_);
  }
  stop_at_ = step;
  changed_.notify_all();
  return true;
}

bool TaskGate::CheckpointAt(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (begun_ > step) return step > skipped_ && checkpoints_.contains(step);
  // Checkpoints before the slowest device's step have been saved.
  checkpoints_.erase(checkpoints_.begin(), checkpoints_.lower_bound(FinishedByAll()));
  checkpoints_.insert(step);
  changed_.notify_all();
  return true;
}

bool TaskGate::IsStoppedAt(int64_t step) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return step == stop_at_ && stopped_ == std::ssize(finished_);
}

bool TaskGate::IsFinalState(int64_t step) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return IsFinal(step);
}

void TaskGate::End() {
  std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

int64_t TaskGate::finished_steps() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return FinishedByAll();
}

int64_t TaskGate::FinishedByAll() const {
  const auto slowest = std::min_element(finished_.begin(), finished_.end());
  return slowest == finished_.end() ? options_.first_step : *slowest;
}

int64_t TaskGate::begun_steps() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return begun_;
}

}  // namespace xlad::runtime
