// One task on one worker: some devices of a job's attempt, step after step.
//
// A thread for each device, and one that loads, forms, and reports the end. No gRPC and no clock of the system:
// state, data and peers come through interfaces.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/worker.pb.h"
#include "runtime/placed_program.h"
#include "runtime/task_data.h"
#include "runtime/task_gate.h"
#include "runtime/task_io.h"

namespace xlad::runtime {

// All of it must outlive the task.
struct TaskEnvironment : WorkerEnvironment {
  TaskStore* store = nullptr;
  TaskListener* listener = nullptr;
};

// Thread-safe.
class TaskExecutor {
 public:
  // Begins to load at once, in a thread of its own; the listener hears how it goes.
  TaskExecutor(const LaunchTask& launch, const TaskEnvironment& environment);
  // Ends the task without a failure where it has not ended; returns when all its threads have.
  ~TaskExecutor();

  // Steps below this may run.
  void Lease(int64_t lease_until_step) { gate_.Lease(lease_until_step); }
  // False where a later step has begun.
  bool StopAt(int64_t step) { return gate_.StopAt(step); }
  // Ends the task as failed, with this error, here and at its peers. Does not wait.
  void Abort(const collectives::Failure& failure) { abort_.Raise(failure); }

  int64_t finished_steps() const { return gate_.finished_steps(); }
  int64_t begun_steps() const { return gate_.begun_steps(); }

 private:
  void Main();
  absl::Status Load();
  absl::Status RunDevices();
  absl::Status RunDevice(int index);
  absl::Status PrepareDevice(int index);
  absl::Status RunSteps(int index);
  absl::Status RunStep(int index, int64_t step);
  absl::Status Stop(int index, int64_t step);
  absl::Status Finish(int index);

  const LaunchTask launch_;
  const TaskEnvironment environment_;
  std::vector<int> devices_;  // Mesh positions, by index on this worker.
  collectives::AbortSignal abort_;
  int64_t gate_listener_ = 0;
  TaskGate gate_;
  std::unique_ptr<PlacedProgram> program_;
  std::unique_ptr<TaskData> data_;
  std::atomic<int> ready_devices_ = 0;
  std::atomic<int> finished_devices_ = 0;
  std::atomic<bool> leaving_ = false;
  std::thread main_;
};

}  // namespace xlad::runtime
