// Propagates the first error of a device or peer to all threads of a task on this worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/status.h"

namespace xlad::collectives {

// Why a task failed. `suspect_worker` is the id of the worker whose loss caused the failure, or empty if no worker was
// lost.
struct Failure {
  absl::Status status;
  std::string suspect_worker;
};

// Keeps the first error of a task and calls listeners, which wake the waiting threads. The first thread that has an
// error raises the signal; later errors are ignored. Thread-safe.
class AbortSignal {
 public:
  // Returns false if the signal was raised before. The first failure is kept.
  bool Raise(Failure failure);

  bool raised() const { return raised_.load(std::memory_order_acquire); }
  // Returns OK until the signal is raised.
  absl::Status status() const;
  Failure failure() const;

  // Calls `listener` once: in the thread that raises the signal, or immediately if it is raised already. A listener
  // must not block and must not add or remove listeners. Returns an id for RemoveListener.
  int64_t AddListener(std::function<void(const Failure&)> listener);
  // When this returns, the listener is not running and will not run.
  void RemoveListener(int64_t id);

 private:
  std::atomic<bool> raised_ = false;
  mutable std::mutex mutex_;
  Failure failure_;
  std::mutex listeners_mutex_;  // Locked while listeners run.
  bool notified_ = false;
  int64_t next_id_ = 0;
  std::map<int64_t, std::function<void(const Failure&)>> listeners_;
};

}  // namespace xlad::collectives
