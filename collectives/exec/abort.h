// How an error of one device or peer reaches everyone who takes part in a task on this worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/status.h"

namespace xlad::collectives {

// Why a task cannot go on. `suspect_worker` is the id of the peer that was lost, where one was.
struct Failure {
  absl::Status status;
  std::string suspect_worker;
};

// Raised once, by whoever finds the first error; wakes all that wait. Thread-safe.
class AbortSignal {
 public:
  // False where it was raised before: the first failure stays.
  bool Raise(Failure failure);

  bool raised() const { return raised_.load(std::memory_order_acquire); }
  // OK until raised.
  absl::Status status() const;
  Failure failure() const;

  // Calls `listener` once, in the thread that raises, or at once where that has happened. A listener must not block
  // and must not add or remove listeners.
  int64_t AddListener(std::function<void(const Failure&)> listener);
  // After this the listener neither runs nor will.
  void RemoveListener(int64_t id);

 private:
  std::atomic<bool> raised_ = false;
  mutable std::mutex mutex_;
  Failure failure_;
  std::mutex listeners_mutex_;  // Held while listeners run.
  bool told_ = false;
  int64_t next_id_ = 0;
  std::map<int64_t, std::function<void(const Failure&)>> listeners_;
};

}  // namespace xlad::collectives
