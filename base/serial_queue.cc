#include "base/serial_queue.h"

#include <utility>

namespace xlad {

SerialQueue::SerialQueue() : thread_([this] { Run(); }) {}

SerialQueue::~SerialQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void SerialQueue::Push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_one();
}

void SerialQueue::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::deque<std::function<void()>> batch = std::exchange(queue_, {});
    lock.unlock();
    for (const auto& work : batch) work();
    batch.clear();
    lock.lock();
  }
}

}  // namespace xlad
