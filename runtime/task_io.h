// The interfaces through which a task reads its inputs and reports progress. The worker daemon, tests and tools
// implement them.
#pragma once

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "collectives/exec/abort.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/trace.pb.h"
#include "proto/xlad_v1.h"
#include "storage/checkpoint_shard.h"
#include "storage/tensor_source.h"
#include "tensor/box.h"

namespace xlad::runtime {

// The source of blobs, state and data, and the destination of state. Thread-safe. Calls block; they retry while the
// coordinator cannot be reached. When `abort` is raised, they return its status.
class TaskStore {
 public:
  virtual ~TaskStore() = default;
  virtual absl::StatusOr<std::string> ReadBlob(const std::string& digest, collectives::AbortSignal* abort) = 0;
  // Opens the tensors that a URI names (storage/store.h). `abort` must outlive the source, whose reads it ends, too.
  virtual absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenTensors(const std::string& uri,
                                                                             collectives::AbortSignal* abort) = 0;
  // Stores a shard of the checkpoint of the state before `step`, where the job's policy says. No other shard of the
  // checkpoint has this name. Returns when it is on disk.
  virtual absl::StatusOr<CheckpointShard> WriteShard(int64_t step, const std::string& name,
                                                     const storage::SerializedShard& shard,
                                                     collectives::AbortSignal* abort) = 0;
  // Whether a call is being retried at the moment because the coordinator cannot be reached.
  virtual bool IsCutOff() const { return false; }
};

// Called from the task's threads. Implementations return quickly and do not call the task.
class TaskListener {
 public:
  virtual ~TaskListener() = default;
  virtual void OnReady() = 0;  // All devices here are connected and have their state.
  virtual void OnStep(const StepMetrics& metrics) = 0;  // After each step, on the worker that has device 0.
  // After each step that IsTraced names, for each device here; the first call also has the program.
  virtual void OnTrace(TaskTrace trace) {}
  // The part of the checkpoint of the state before `step` that this worker has is stored. Not called if the coordinator
  // commits no checkpoints (LaunchTask.checkpoints).
  virtual void OnShardWritten(int64_t step, const CheckpointShard& shard) {}
  // This part could not be stored. The task continues; a part that must be stored is tried again.
  virtual void OnShardFailed(int64_t step, const absl::Status& error) {}
  // All devices here have stopped before the step, and the checkpoint of the state before it is committed.
  virtual void OnStopped(int64_t step) = 0;
  // All steps have been run, and the checkpoint of the last state is committed if the spec keeps it.
  virtual void OnFinished(const RunReport& report) = 0;
  // Called at most once, as the last call. `step` is the number of steps that all devices here had finished.
  virtual void OnFailed(int64_t step, const collectives::Failure& failure) = 0;
};

}  // namespace xlad::runtime
