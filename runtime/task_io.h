// What a task needs from outside, and what it tells: implemented by the worker daemon, by tests and by tools.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "collectives/exec/abort.h"
#include "proto/job.pb.h"
#include "tensor/box.h"

namespace xlad::runtime {

// Where blobs, state and data come from and state goes to. Thread-safe. Calls block; they try again while the other
// side is away, and end with the signal's status when it is raised.
class TaskStore {
 public:
  virtual ~TaskStore() = default;
  virtual absl::StatusOr<std::string> ReadBlob(const std::string& digest, collectives::AbortSignal* abort) = 0;
  // The box of a tensor in a safetensors blob, row-major, without padding; `out` has exactly its bytes.
  virtual absl::Status ReadShard(const std::string& digest, const std::string& tensor, const tensor::Box& box,
                                 absl::Span<std::byte> out, collectives::AbortSignal* abort) = 0;
  virtual absl::Status WriteStateShard(int64_t step, const std::string& tensor, const tensor::Box& box,
                                       absl::Span<const std::byte> bytes, collectives::AbortSignal* abort) = 0;
};

// Called from the task's threads; must not block for long nor call back into the task.
class TaskListener {
 public:
  virtual ~TaskListener() = default;
  virtual void OnReady() = 0;                           // All devices here are loaded, connected, and have state.
  virtual void OnStep(const StepMetrics& metrics) = 0;  // Of the worker with device 0, each step.
  virtual void OnStopped(int64_t step) = 0;             // Stands at the step; state shards are uploaded.
  virtual void OnFinished() = 0;                        // All steps done; state is uploaded where the spec keeps it.
  // Once, the last call. `step`: steps that all devices here had finished.
  virtual void OnFailed(int64_t step, const collectives::Failure& failure) = 0;
};

}  // namespace xlad::runtime
