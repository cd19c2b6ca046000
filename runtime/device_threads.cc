#include "runtime/device_threads.h"

namespace xlad::runtime {

DeviceThreads::DeviceThreads(int count) {
  for (int index = 0; index < count; ++index) {
    threads_.emplace_back([this, index] { Loop(index); });
  }
}

DeviceThreads::~DeviceThreads() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void DeviceThreads::RunOnAll(const std::function<void(int index)>& work) {
  std::unique_lock<std::mutex> lock(mutex_);
  work_ = &work;
  running_ = std::ssize(threads_);
  ++calls_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return running_ == 0; });
}

void DeviceThreads::Loop(int index) {
  int64_t seen_calls = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return calls_ != seen_calls || ending_; });
    if (calls_ == seen_calls) return;
    seen_calls = calls_;
    const std::function<void(int index)>* const work = work_;
    lock.unlock();
    (*work)(index);
    lock.lock();
    if (--running_ == 0) changed_.notify_all();
  }
}

}  // namespace xlad::runtime
