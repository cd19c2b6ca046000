#include "runtime/task_gate.h"

#include <algorithm>

namespace xlad::runtime {

TaskGate::TaskGate(int64_t first_step, int64_t end_step, int devices)
    : end_step_(end_step), finished_(devices, first_step), begun_(first_step) {}

TaskGate::Decision TaskGate::Begin(int64_t step) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (ended_) return Decision::kEnd;
    if (step >= end_step_) return Decision::kDone;
    if (step == stop_at_) return Decision::kStop;
    if (step < lease_until_) break;
    changed_.wait(lock);
  }
  begun_ = std::max(begun_, step + 1);
  return Decision::kRun;
}

void TaskGate::FinishStep(int device, int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  finished_[device] = step + 1;
}

bool TaskGate::ReachStop(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  return step == stop_at_ && ++stopped_ == static_cast<int>(finished_.size());
}

void TaskGate::WaitWhileStopped(int64_t step) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || stop_at_ != step; });
}

void TaskGate::Lease(int64_t lease_until_step) {
  std::lock_guard<std::mutex> lock(mutex_);
  lease_until_ = std::max(lease_until_, lease_until_step);
  changed_.notify_all();
}

bool TaskGate::StopAt(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (begun_ > step) return false;
  if (step != stop_at_) stopped_ = 0;
  stop_at_ = step;
  changed_.notify_all();
  return true;
}

void TaskGate::End() {
  std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

int64_t TaskGate::finished_steps() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return *std::min_element(finished_.begin(), finished_.end());
}

int64_t TaskGate::begun_steps() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return begun_;
}

}  // namespace xlad::runtime
