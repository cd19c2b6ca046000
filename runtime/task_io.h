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

// The source of blobs, state and data, and the destination of state. Thread-safe. Calls block, and retry while the
// coordinator cannot be reached. When `abort` is raised, they return its status.
class TaskStore {
 public:
  virtual ~TaskStore() = default;
  // Returns the contents of a blob, whose SHA-256 is `digest`.
  virtual absl::StatusOr<std::string> ReadBlob(const std::string& digest, collectives::AbortSignal* abort) = 0;
  // Opens the tensors that a URI names (storage/store.h). `abort` also ends reads of the source, and must outlive it.
  virtual absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenTensors(const std::string& uri,
                                                                             collectives::AbortSignal* abort) = 0;
  // Stores a shard of the checkpoint of the state before `step`, in the place that the job's policy defines. The name
  // of the shard must be unique in the checkpoint. Returns when the shard is on disk.
  virtual absl::StatusOr<CheckpointShard> WriteShard(int64_t step, const std::string& name,
                                                     const storage::SerializedShard& shard,
                                                     collectives::AbortSignal* abort) = 0;
  // Whether a call is currently being retried because the coordinator cannot be reached.
  virtual bool IsCutOff() const { return false; }
};

// Called from the task's threads. Implementations return quickly and do not call the task.
class TaskListener {
 public:
  virtual ~TaskListener() = default;
  virtual void OnReady() = 0;  // All devices of this worker are connected and have their state.
  virtual void OnStep(const StepMetrics& metrics) = 0;  // Called after each step, on the worker that has device 0.
  // Called for each device of this worker after each step for which IsTraced is true, by one thread at a time. The
  // first call also has the program.
  virtual void OnTrace(TaskTrace trace) {}
  // This worker's part of the checkpoint of the state before `step` has been stored.
  virtual void OnShardWritten(int64_t step, const CheckpointShard& shard) {}
  // This worker's part could not be stored. The task continues. If the part must be stored, the write is repeated.
  virtual void OnShardFailed(int64_t step, const absl::Status& error, bool must_be_stored) {}
  // All devices of this worker have stopped before `step`, and the checkpoint of the state before it is committed.
  virtual void OnStopped(int64_t step) = 0;
  // All steps have been run, and the checkpoint of the last state is committed if the spec keeps it.
  virtual void OnFinished(const RunReport& report) = 0;
  // Called at most once, as the last call. `step` is the number of steps that all devices of this worker have finished.
  virtual void OnFailed(int64_t step, const collectives::Failure& failure) = 0;
};

}  // namespace xlad::runtime
