// Records the most recent collectives of a device, for error messages and for the watchdog.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/exec/collective_set.h"
#include "collectives/plan/schedule.h"

namespace xlad::collectives {

// Written by the device's thread, read by any thread.
class Recorder {
 public:
  static constexpr int kRecords = 16;

  Recorder(int device, const CollectiveSet* collectives, const Clock* clock)
      : device_(device), collectives_(collectives), clock_(clock) {}

  // The position of a collective in the program.
  struct Place {
    int spec = -1;
    int rank = 0;
    int64_t step = 0;
    uint64_t iteration = 0;
  };
  // `schedule` is what runs; it must stay valid until End.
  void Begin(const Place& place, const Schedule* schedule);
  // Records the start of an operation of the schedule. Lock-free.
  void AtOp(int op) {
    op_.store(op, std::memory_order_relaxed);
    progress_ns_.store(clock_->NowNs(), std::memory_order_relaxed);
  }
  void End();

  struct Waiting {
    bool running = false;
    int64_t since_ns = 0;  // Clock time at which the current operation of the schedule started.
    std::string text;      // "device 1 is in all-reduce.7 of step 12, rank 1, at \"recv <-2 ...\""
  };
  Waiting Now() const;

  // A collective that has ended, on the clock of the recorder.
  struct Ended {
    std::string name;
    int64_t step = 0, begin_ns = 0, end_ns = 0;
  };
  // From now on all collectives that end are kept, up to a number.
  void KeepEnded(size_t most);
  std::vector<Ended> AllEnded() const;

  // Returns the records, newest first, one per line.
  std::string ToString() const;

 private:
  struct Record {
    Place place;
    int64_t begin_ns = 0;
    int64_t end_ns = -1;  // Negative while the collective runs.
  };

  std::string Text(const Record& record) const;

  const int device_;
  const CollectiveSet* const collectives_;
  const Clock* const clock_;
  mutable std::mutex mutex_;
  std::array<Record, kRecords> records_;
  int64_t count_ = 0;
  size_t keep_ended_ = 0;
  std::vector<Ended> ended_;
  const Schedule* schedule_ = nullptr;  // Null unless a collective runs.
  std::atomic<int> op_ = 0;
  std::atomic<int64_t> progress_ns_ = 0;
};

}  // namespace xlad::collectives
