#include "collectives/exec/abort.h"

namespace xlad::collectives {

bool AbortSignal::Raise(Failure failure) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return false;
    failure_ = failure;
    raised_.store(true, std::memory_order_release);
  }
  std::lock_guard<std::mutex> lock(listeners_mutex_);
  notified_ = true;
  for (const auto& [id, listener] : listeners_) listener(failure);
  return true;
}

absl::Status AbortSignal::status() const { return failure().status; }

Failure AbortSignal::failure() const {
  if (!raised()) return {};
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

int64_t AbortSignal::AddListener(std::function<void(const Failure&)> listener) {
  std::lock_guard<std::mutex> lock(listeners_mutex_);
  if (notified_) listener(failure());
  listeners_.emplace(next_id_, std::move(listener));
  return next_id_++;
}

void AbortSignal::RemoveListener(int64_t id) {
  std::lock_guard<std::mutex> lock(listeners_mutex_);
  listeners_.erase(id);
}

}  // namespace xlad::collectives
