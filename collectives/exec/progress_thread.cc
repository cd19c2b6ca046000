#include "collectives/exec/progress_thread.h"

#include "absl/strings/str_cat.h"
#include "collectives/exec/short_slices.h"

namespace xlad::collectives {

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    started_.notify_one();
  }
  thread_.join();
}

int64_t ProgressThread::Start(std::function<absl::Status()> work) {
  const std::lock_guard lock(mutex_);
  pending_.emplace(++count_, std::move(work));
  started_.notify_one();
  return count_;
}

absl::Status ProgressThread::Wait(int64_t number) {
  std::unique_lock lock(mutex_);
  if (number < 1 || number > count_) {
    return absl::InvalidArgumentError(absl::StrCat("found work ", number, ", expected 1 to ", count_));
  }
  ended_.wait(lock, [&] { return number <= ended_count_; });
  const auto found = results_.find(number);
  if (found == results_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found work ", number, ", which has been waited for; expected one Wait for each Start"));
  }
  absl::Status result = std::move(found->second);
  results_.erase(found);
  return result;
}

void ProgressThread::Drain() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return ended_count_ == count_; });
}

void ProgressThread::Run() {
  AskForShortSlices();
  std::unique_lock lock(mutex_);
  while (true) {
    started_.wait(lock, [this] { return ending_ || !pending_.empty(); });
    if (ending_) return;
    const auto [number, work] = std::move(pending_.front());
    pending_.pop();
    lock.unlock();
    absl::Status result = work();
    lock.lock();
    results_[number] = std::move(result);
    ended_count_ = number;
    ended_.notify_one();
  }
}

}  // namespace xlad::collectives
