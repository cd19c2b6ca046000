// Decides when each device of a task may begin a step: by the lease, by stops and by the end of the task.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace xlad::runtime {

// Each device calls Begin before a step and FinishStep after it. Example with two devices, a and b, first_step 0 and
// end_step 100:
//
//   Lease(50)                    Steps 0 to 49 may begin; a device that asks for step 50 blocks until a longer lease.
//   Begin(0) by a and b: kRun    Both run steps 0, 1, ... at their own pace.
//   begun_steps() == 7           Some device has begun step 6.
//   StopAt(5): false             Too late: step 5 has begun, and the devices could not stop at the same step.
//   StopAt(9): true              All devices run the steps below 9 and no others.
//   Begin(9) by a: kStop         a uploads its state, which is that before step 9, and then
//   ReachStop(9) by a: false     waits in WaitWhileStopped(9).
//   Begin(9) by b: kStop
//   ReachStop(9) by b: true      b is the last one: the worker reports that the task has stopped.
//   End()                        Both return from WaitWhileStopped, and their next Begin returns kEnd.
//
// Thread-safe. Devices are numbered from 0 on this worker.
class TaskGate {
 public:
  TaskGate(int64_t first_step, int64_t end_step, int devices);

  enum class Decision {
    kRun,   // Run the step.
    kStop,  // Stop here: the state before this step has been requested.
    kDone,  // All steps have been run.
    kEnd,   // The task has been ended.
  };
  // Called by a device that has finished all steps below `step`. Blocks while the lease does not include the step.
  Decision Begin(int64_t step);
  // Called when a device has finished `step`.
  void FinishStep(int device, int64_t step);
  // Called when a device has uploaded its state at a stop. Returns true for the last device of this worker.
  bool ReachStop(int64_t step);
  // Blocks while devices are stopped before `step`.
  void WaitWhileStopped(int64_t step);

  // Steps below `lease_until_step` may begin. A lease never gets shorter.
  void Lease(int64_t lease_until_step);
  // Requests a stop before `step`. Returns false if a device has begun it. A later call replaces an earlier one, and
  // devices that have stopped for the earlier one continue.
  bool StopAt(int64_t step);
  // All calls return, and Begin returns kEnd from now on.
  void End();

  int64_t finished_steps() const;  // Steps that all devices have finished.
  int64_t begun_steps() const;     // Steps that some device has begun.

 private:
  const int64_t end_step_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> finished_;  // By device.
  int64_t begun_;
  int64_t lease_until_ = -1;
  int64_t stop_at_ = -1;
  int stopped_ = 0;  // Devices that have stopped before stop_at_.
  bool ended_ = false;
};

}  // namespace xlad::runtime
