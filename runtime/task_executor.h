// One task on one worker: runs the steps of a job's attempt on the devices of this worker.
//
// Each device has a thread. Another thread loads the executable and reports the end. Nothing here uses gRPC or the
// system's clock: state, data and peers are accessed through interfaces.
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

// Every object here must outlive the task.
struct TaskEnvironment : WorkerEnvironment {
  TaskStore* store = nullptr;
  TaskListener* listener = nullptr;
  // If set, the time of every step of the program is measured, and each device's thread calls the function after its
  // last step of the job.
  std::function<void(int device, const StepTimes& times)> on_times;
};

// Thread-safe.
class TaskExecutor {
 public:
  // Starts loading on another thread. The listener receives all later events.
  TaskExecutor(const LaunchTask& launch, const TaskEnvironment& environment);
  // Ends the task if it has not ended, and returns when its threads have ended. If all devices were ready, the listener
  // is not told of a failure; otherwise, OnFailed reports Cancelled.
  ~TaskExecutor();

  // Allows the steps below `lease_until_step`; see TaskGate.
  void Lease(int64_t lease_until_step) { gate_.Lease(lease_until_step); }
  // Requests a stop before `step`. Returns false if a device has begun `step`; see TaskGate.
  bool StopAt(int64_t step) { return gate_.StopAt(step); }
  // Makes the devices save the state before `step`. Returns false if a device has begun `step`; see TaskGate.
  bool CheckpointAt(int64_t step) { return gate_.CheckpointAt(step); }
  // Called when the checkpoint of the state before `step` is committed. If the task has stopped before `step`, the stop
  // is now reported. If the state is the last one, the task can end.
  void CheckpointIsCommitted(int64_t step);
  // Replaces the kernels' code by the code of the executable with this digest, which must be for the same program. The
  // executable is read and loaded while steps run, and each device runs the new code from its next step on. If this
  // fails, the error is logged, the steps continue, and the function may be called again. Calls are ignored while the
  // task is not ready or an earlier call is in progress, after a call has succeeded, and if the task was launched with
  // this executable.
  void ReplaceCode(const std::string& executable_digest);
  // Ends the task with this error, on this worker and on its peers, without waiting for the end.
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
  // Returns OutOfRange if a loss or metric of the step is not finite. The error names the value and the first tensor
  // that is not finite in the state after the step. Called only if the job stops in this case.
  absl::Status CheckFinite(int index, const std::vector<float>& values);
  void MakeWriter();
  // If all devices have stopped before `step` and the state is committed, reports this to the listener once.
  void ReportStop(int64_t step);
  // Ends ReplaceCode, and ignores later calls.
  void StopReplacing();
  // Waits until the last state is committed, if the spec keeps it.
  absl::Status KeepLastState();

  const LaunchTask launch_;
  const TaskEnvironment environment_;
  std::vector<int> devices_;  // Mesh positions, by index on this worker.
  std::vector<std::unique_ptr<StepTracer>> tracers_;  // One per device of this worker.
  collectives::AbortSignal abort_;
  int64_t gate_listener_ = 0;
  TaskGate gate_;
  std::unique_ptr<AttemptFabric> fabric_;
  std::unique_ptr<ConnectedExecutable> executable_;
  std::unique_ptr<TaskData> data_;
  std::mutex writer_mutex_;  // Guards the pointer writer_, and reported_stop_.
  std::unique_ptr<CheckpointWriter> writer_;
  int64_t reported_stop_ = -1;
  std::mutex trace_mutex_;  // Guards program_reported_, and keeps the first trace before the others.
  bool program_reported_ = false;
  std::atomic<int> ready_devices_ = 0;
  std::atomic<int> finished_devices_ = 0;
  std::atomic<bool> dropped_ = false;
  std::mutex replacing_mutex_;  // Guards the two following members.
  bool may_replace_ = true;
  std::thread replacing_;
  collectives::AbortSignal stop_replacing_;
  std::thread main_;
};

}  // namespace xlad::runtime
