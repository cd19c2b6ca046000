// Commits checkpoints in place of a coordinator, for tests of tasks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace xlad::runtime {

// Calls `commit`, on a separate thread, for each step whose shards all workers have written.
class Committer {
 public:
  Committer(size_t workers, std::function<void(int64_t)> commit)
      : workers_(workers), commit_(std::move(commit)), thread_([this] { Run(); }) {}
  ~Committer() { Stop(); }
  void Stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }
  void OnShard(int64_t step) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (++shards_[step] == workers_) ready_.push_back(step);
    changed_.notify_all();
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || !ready_.empty(); });
      if (ending_) return;
      const int64_t step = ready_.front();
      ready_.erase(ready_.begin());
      lock.unlock();
      commit_(step);
      lock.lock();
    }
  }

  const size_t workers_;
  const std::function<void(int64_t)> commit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, size_t> shards_;
  std::vector<int64_t> ready_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace xlad::runtime
