// A thread that runs queued functions in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace xlad {

// Runs functions one at a time, in order, on a thread of its own. Thread-safe.
class SerialQueue {
 public:
  SerialQueue();
  ~SerialQueue();  // Runs the queued functions, then ends the thread.
  // Does not wait for `work`.
  void Push(std::function<void()> work);

 private:
  void Run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace xlad
