// Work on folders that users name. Their file systems may be remote, so any call may block for as long as a server does
// not answer.
//
// The work of a folder runs one piece at a time, in order, on a thread that no other folder waits for. A folder that
// blocks therefore delays only work on itself, as long as fewer than kMaxThreads folders block.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"

namespace xlad::service {

// Thread-safe.
class FolderWork {
 public:
  static constexpr size_t kMaxThreads = 64;

  // `patience_ms` is how long Run waits.
  explicit FolderWork(int64_t patience_ms) : patience_(patience_ms) {
    threads_.emplace_back([this] { RunThread(); });  // If no other thread can be started, this one does all work.
  }
  ~FolderWork() { Stop(); }

  // Does not wait for `work`. Drops it if this object has been stopped.
  void Push(const std::string& folder, std::function<void()> work);
  // Waits for `work`. Unavailable if it has not ended in time, if earlier work of the folder has run or waited for a
  // thread for that long already, or if this object is stopped. If this call fails, `work` may still run if it has
  // begun, and so must own what it uses; otherwise it is dropped.
  absl::Status Run(const std::string& folder, std::function<void()> work);
  // Drops the work that has not begun, and ends calls of Run. Does not wait.
  void Cancel();
  // Calls Cancel and waits for the work that has begun, even if its file system never answers. Idempotent.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Folder {
    std::deque<std::function<void()>> work;
    Clock::time_point since;  // When the piece of work that runs now began, or when the wait for a thread began.
  };

  void PushLocked(const std::string& folder, std::function<void()> work);  // mutex_ must be held.
  void TryToAddThread();                                                   // The same.
  void RunThread();
  absl::Status DoesNotAnswer(const std::string& folder) const;

  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable ready_changed_, done_changed_;
  std::map<std::string, Folder> folders_;  // Those that have work.
  std::deque<std::string> ready_;          // Those that have work and no thread.
  size_t idle_ = 0;                        // The number of threads without a folder.
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace xlad::service
