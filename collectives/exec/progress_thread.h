// A thread that runs pieces of work one after the other, beside the thread that starts them.
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

// Start, Wait and Drain are called by one thread at a time.
class ProgressThread {
 public:
  ProgressThread() : thread_([this] { Run(); }) {}
  // Drops work that has not begun, and waits for the end of the piece that runs.
  ~ProgressThread();

  // Runs `work` after all that was started before. Returns a number for Wait, which is never 0.
  int64_t Start(std::function<absl::Status()> work);
  // Waits for the end of a piece of work and returns its status. Call it once for each number.
  absl::Status Wait(int64_t number);
  // Waits for the end of all work.
  void Drain();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable started_, ended_;
  std::queue<std::pair<int64_t, std::function<absl::Status()>>> pending_;
  std::map<int64_t, absl::Status> results_;  // The results of work that has ended, by number.
  int64_t count_ = 0, ended_count_ = 0;
  bool ending_ = false;
  std::thread thread_;  // Starts when all other members exist.
};

}  // namespace xlad::collectives
