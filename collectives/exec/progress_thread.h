// A thread that runs pieces of work one after the other, concurrently with the thread that starts them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>

#include "base/status.h"

namespace xlad::collectives {

// Start, Wait and Drain must not be called by two threads at the same time.
class ProgressThread {
 public:
  ProgressThread() : thread_([this] { Run(); }) {}
  // Drops work that has not begun, and waits until the running piece of work has finished.
  ~ProgressThread();

  // Runs `work` after all work that was started before. Returns a number for Wait, which is never 0.
  int64_t Start(std::function<absl::Status()> work);
  // Waits until a piece of work has finished and returns its status. Must be called once for each number.
  absl::Status Wait(int64_t number);
  // Waits until all work has finished.
  void Drain();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable started_, ended_;
  std::queue<std::pair<int64_t, std::function<absl::Status()>>> pending_;
  std::map<int64_t, absl::Status> results_;  // The results of finished work, by number.
  int64_t count_ = 0, ended_count_ = 0;
  bool ending_ = false;
  std::thread thread_;  // Declared last, because the thread uses all other members.
};

}  // namespace xlad::collectives
