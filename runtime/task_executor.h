// One task on one worker: runs the steps of a job's attempt on the devices that are on this worker.
//
// Each device has a thread; one more loads the executable and reports the end. Nothing here uses gRPC or the system's
// clock: state, data and peers come through interfaces.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/connected_executable.h"
#include "runtime/task_data.h"
#include "runtime/task_gate.h"
#include "runtime/task_io.h"

namespace xlad::runtime {

// All of it must outlive the task.
struct TaskEnvironment : WorkerEnvironment {
  TaskStore* store = nullptr;
  TaskListener* listener = nullptr;
  // If it is set, the time of every step of the program is measured, and the function is called for each device after
  // its last step of the job, by the thread of the device.
  std::function<void(int device, const StepTimes& times)> on_times;
};

// Thread-safe.
class TaskExecutor {
 public:
  // Starts to load on another thread; the listener is told what happens.
  TaskExecutor(const LaunchTask& launch, const TaskEnvironment& environment);
  // Ends the task without reporting a failure, if it has not ended; returns when its threads have ended.
  ~TaskExecutor();

  // Allows the steps below this one; see TaskGate.
  void Lease(int64_t lease_until_step) { gate_.Lease(lease_until_step); }
  // Returns false if a later step has begun.
  bool StopAt(int64_t step) { return gate_.StopAt(step); }
  // Saves the state before `step`. Returns false if the step has begun.
  bool CheckpointAt(int64_t step) { return gate_.CheckpointAt(step); }
  // The checkpoint of the state before `step` is committed: the state of a stop, or the last one, need not be kept.
  void CheckpointIsCommitted(int64_t step);
  // Ends the task with this error, here and on its peers, without waiting for the end.
  void Abort(const collectives::Failure& failure) { abort_.Raise(failure); }

  int64_t finished_steps() const { return gate_.finished_steps(); }
  int64_t begun_steps() const { return gate_.begun_steps(); }

 private:
  void Main();
  absl::Status Load();
  absl::Status LoadExecutables();
  absl::Status RunDevices();
  absl::Status RunDevice(int index);
  absl::Status RunSteps(int index);
  absl::Status RunStep(int index, int64_t step, int64_t save_ns);
  void ReportTrace(int index, StepTracer* tracer);
  // OutOfRange if a loss or metric of the step is not finite and the job is to stop then: names it, and the first such
  // tensor of the state after the step.
  absl::Status CheckFinite(int index, const std::vector<float>& values);
  void MakeWriter();
  // Tells the listener that the task has stopped before `step`, once all devices have and the state is committed.
  void ReportStop(int64_t step);
  // Waits until the last state is committed, if the spec keeps it.
  absl::Status KeepLastState();

  const LaunchTask launch_;
  const TaskEnvironment environment_;
  std::vector<int> devices_;  // Mesh positions, by index on this worker.
  std::vector<std::unique_ptr<StepTracer>> tracers_;  // By index.
  collectives::AbortSignal abort_;
  int64_t gate_listener_ = 0;
  TaskGate gate_;
  std::unique_ptr<AttemptFabric> fabric_;
  std::unique_ptr<ConnectedExecutable> executable_;
  std::unique_ptr<TaskData> data_;
  std::mutex writer_mutex_;  // Guards the pointer and reported_stop_.
  std::unique_ptr<CheckpointWriter> writer_;
  int64_t reported_stop_ = -1;
  std::atomic<bool> program_reported_ = false;
  std::atomic<int> ready_devices_ = 0;
  std::atomic<int> finished_devices_ = 0;
  std::atomic<bool> dropped_ = false;
  std::thread main_;
};

}  // namespace xlad::runtime
