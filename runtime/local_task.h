// Implements the interfaces of a task (task_io.h) for a task without a coordinator, whose inputs are in this process's
// memory.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/task_io.h"

namespace xlad::runtime {

// An executable, state and data in memory. Nothing can be saved.
class MemoryStore final : public TaskStore {
 public:
  explicit MemoryStore(std::string executable) : executable_(std::move(executable)) {}

  // Adds the safetensors `bytes` under the URI of the blob `digest`. Empty bytes are ignored. Must be called before the
  // store is used.
  absl::Status Add(const std::string& digest, const std::string& bytes);

  absl::StatusOr<std::string> ReadBlob(const std::string& digest, collectives::AbortSignal* abort) override;
  absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenTensors(const std::string& uri,
                                                                     collectives::AbortSignal* abort) override;
  absl::StatusOr<CheckpointShard> WriteShard(int64_t step, const std::string& name,
                                             const storage::SerializedShard& shard,
                                             collectives::AbortSignal* abort) override;

 private:
  const std::string executable_;
  std::map<std::string, std::shared_ptr<storage::TensorSource>> sources_;
};

// Lets another thread wait for the steps of a task. Thread-safe.
class StepWaiter final : public TaskListener {
 public:
  void OnReady() override {}
  void OnStep(const StepMetrics& metrics) override;
  void OnStopped(int64_t step) override {}
  void OnFinished(const RunReport& report) override;
  void OnFailed(int64_t step, const collectives::Failure& failure) override;

  // Waits until this number of steps has been reported or the task has failed. Returns the error if it has failed.
  absl::Status WaitForSteps(int64_t steps);
  // Waits until the task has run all its steps or has failed. Returns the error if it has failed.
  absl::Status WaitForEnd();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t reported_ = 0;
  bool finished_ = false;
  absl::Status status_;
};

}  // namespace xlad::runtime
