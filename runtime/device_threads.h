// One thread for each shard on a worker. In each call, all threads run the same function concurrently.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace xlad::runtime {

// Only one thread at a time may call RunOnAll, and none during or after destruction.
class DeviceThreads {
 public:
  explicit DeviceThreads(int count);
  ~DeviceThreads();

  // Calls work(0) to work(count - 1), each on its own thread (the same one in every call), and returns when all have
  // returned.
  void RunOnAll(const std::function<void(int index)>& work);

 private:
  void Loop(int index);

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(int index)>* work_ = nullptr;
  int64_t calls_ = 0;
  int running_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace xlad::runtime
