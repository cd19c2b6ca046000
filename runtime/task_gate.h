// When the devices of a task on one worker may begin a step: the lease, stops and the end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace xlad::runtime {

// Thread-safe. Devices are numbered from 0 on this worker.
class TaskGate {
 public:
  TaskGate(int64_t first_step, int64_t end_step, int devices);

  enum class Decision {
    kRun,   // Begin the step.
    kStop,  // Stand here: the state before this step is wanted.
    kDone,  // There is no such step any more.
    kEnd,   // The task is over.
  };
  // For a device that has finished all steps below `step`. Blocks while there is no lease for it.
  Decision Enter(int64_t step);
  // A device has finished `step`.
  void Finish(int device, int64_t step);
  // A device stands at a stop. True for the last one of this worker.
  bool Stand(int64_t step);
  // Blocks while devices are to stand at `step`.
  void WaitWhileStopped(int64_t step);

  // Steps below `lease_until_step` may begin. Leases only grow.
  void Lease(int64_t lease_until_step);
  // Asks to stop before `step`. False where a device has begun it, or a later one. A later call replaces an earlier
  // one, and who stands goes on.
  bool StopAt(int64_t step);
  // Everyone leaves.
  void End();

  int64_t finished_steps() const;  // By all devices.
  int64_t begun_steps() const;     // By any device.

 private:
  const int64_t end_step_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> finished_;
  int64_t begun_;
  int64_t lease_until_ = -1;
  int64_t stop_at_ = -1;
  int standing_ = 0;
  bool ended_ = false;
};

}  // namespace xlad::runtime
