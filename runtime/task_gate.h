// Decides when each device of a task may begin a step and when it saves its state. The decisions depend on the lease,
// the slowest device, the checkpoint policy, requested stops and the end of the task.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

namespace xlad::runtime {

// Each device calls Begin before a step and FinishStep after it. Example with two devices, a and b, first_step 0 and
// end_step 100:
//
//   Lease(50)                    Steps 0 to 49 may begin; a device that asks for step 50 blocks until a longer lease.
//   Begin(0) by a and b: kRun    Both run steps 0, 1, ... at their own pace.
//   CheckpointAt(6): true        The next Begin(6) of each device returns kSave; after it, Begin(6) returns kRun.
//   begun_steps() == 7           Some device has begun step 6.
//   StopAt(5): false             Too late: step 5 has begun, and the devices could not stop at the same step.
//   StopAt(9): true              All devices run the steps below 9 and no others.
//   Begin(9) by a: kSave         a saves the state before step 9.
//   Begin(9) by a: kStop
//   ReachStop(9) by a: false     a waits in WaitWhileStopped(9).
//   Begin(9) by b: kSave, then kStop
//   ReachStop(9) by b: true      b is the last one: the worker reports that the task has stopped.
//   End()                        Both return from WaitWhileStopped, and their next Begin returns kEnd.
//
// Thread-safe. Devices are numbered from 0 on this worker.
class TaskGate {
 public:
  struct Options {
    int64_t first_step = 0;
    int64_t end_step = 0;
    // Save before each step whose number is a multiple of this, except the first step; 0 means never.
    int64_t save_every = 0;
    bool save_at_end = false;  // True if the state after the last step is saved.
  };
  TaskGate(const Options& options, int devices);

  enum class Decision {
    kRun,  // Run the step.
    // Save the state before this step, then call Begin again. Returned once per step to each device, or again after
    // SkipSave or GiveUpSave.
    kSave,
    kStop,  // Stop before this step; the state has been saved.
    kDone,  // All steps have been run.
    kEnd,   // The task has been ended.
  };
  // Devices of a program without collectives run at their own pace. No device begins a step that is this many steps or
  // more ahead of the slowest device, because a checkpoint or a stop waits for the slowest one.
  static constexpr int64_t kMaxAhead = 64;
  // Called by a device that has finished all steps below `step`. Blocks while the lease does not include the step, and
  // while the device is too far ahead of another one.
  Decision Begin(int device, int64_t step);
  // Called by a device that has not saved the state before `step` although Begin returned kSave. Afterwards, the
  // devices need not save the state before `step` or an older state, unless IsFinalState is true for it.
  void SkipSave(int device, int64_t step);
  // Called if the state before `step`, which all devices have saved, cannot be stored. Returns false if it must be
  // stored because it is the last state or the state at a stop that has not been replaced. Otherwise, has the effect of
  // SkipSave for each device; if a stop before `step` is requested later, the devices save the state again.
  bool GiveUpSave(int64_t step);
  // Called when a device has finished `step`.
  void FinishStep(int device, int64_t step);
  // Called when a device has stopped. Returns true for the last device of this worker.
  bool ReachStop(int64_t step);
  // Blocks until the task ends, or until a stop before another step is requested.
  void WaitWhileStopped(int64_t step);

  // Steps below `lease_until_step` may begin. Replaces the earlier lease, which may have been longer: a step that has
  // begun continues.
  void Lease(int64_t lease_until_step);
  // Requests a stop before `step`. Returns false if a device has begun this step. A later call replaces an earlier one,
  // and devices that have stopped for the earlier one continue. If a device has saved the state for the earlier one,
  // all devices save it, because one device's part alone is of no use and occupies the memory that the next state
  // needs.
  bool StopAt(int64_t step);
  // Makes the devices save the state before `step`. Returns false if a device has begun this step, except after an
  // earlier call for this step that returned true, if no later call of SkipSave or GiveUpSave has made the save
  // unnecessary: the coordinator repeats its requests when a worker reconnects.
  bool CheckpointAt(int64_t step);
  // Whether all devices of this worker have stopped before `step`.
  bool IsStoppedAt(int64_t step) const;
  // Whether the state before `step` is the last state or the state at a stop. A replaced stop counts if a device had
  // saved its state.
  bool IsFinalState(int64_t step) const;
  // Ends the task: all waiting calls return, and Begin returns kEnd from now on.
  void End();

  int64_t finished_steps() const;  // The number of steps that all devices have finished.
  int64_t begun_steps() const;     // The number of steps that at least one device has begun.

 private:
  bool SavesAt(int64_t step) const;
  bool IsFinal(int64_t step) const;
  int64_t FinishedByAll() const;  // The first step if the task has no devices.

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> finished_;  // For each device, the number of steps that it has finished.
  std::vector<int64_t> saved_;     // For each device, the last step for which Begin returned kSave.
  std::set<int64_t> checkpoints_;  // The steps that CheckpointAt has requested.
  int64_t skipped_ = -1;           // The newest step for which SkipSave or GiveUpSave was called.
  int waiting_for_slowest_ = 0;    // The number of devices that wait although the lease includes their step.
  int64_t begun_;
  int64_t lease_until_ = -1;
  int64_t stop_at_ = -1;
  std::set<int64_t> replaced_stops_;  // The replaced stops for which a device has saved the state.
  int stopped_ = 0;  // The number of devices that have stopped before stop_at_.
  bool ended_ = false;
};

}  // namespace xlad::runtime
