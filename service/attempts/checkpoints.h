// Checkpoints of running attempts: when they are made, and how the shards of the workers become one committed record.
#pragma once

#include "service/state/context.h"

namespace xlad::service {

// The coordinator's part of the checkpoints. The steps to save are known to all devices of an attempt: multiples of the
// policy's every_steps, steps that CheckpointAt names, the last step, and the step of a stop. When the shards of all
// workers have arrived, the index is stored, and then one record commits the checkpoint.
class Checkpoints {
 public:
  explicit Checkpoints(Context* context) : context_(*context) {}

  void OnShardWritten(const WorkerId& worker, const ShardWritten& message);
  void OnShardFailed(const WorkerId& worker, const ShardFailed& message);
  void OnAnswer(const WorkerId& worker, const CheckpointAtAnswer& message);
  // The index of these shards has been stored, or could not be.
  void OnIndexStored(const StoreIndex& request, const absl::StatusOr<Checkpoint>& stored);
  // Requests a checkpoint if the policy's time has passed since the last one, and stores again an index that could not
  // be stored.
  void OnTick(Job* job);

  // The step of the newest committed checkpoint of this attempt or an earlier one; -1: there is none.
  static int64_t NewestStep(const Job& job);
  // "the newest checkpoint is of step 40", or "there is no checkpoint yet".
  static std::string NewestText(const Job& job);

 private:
  struct Failure {
    int64_t step = 0;
    std::string worker;  // Empty: the coordinator.
    std::string error;
  };
  void RecordFailure(const Job* job, const Failure& failure);
  void Request(Job* job);
  void StoreIfComplete(Job* job, int64_t step);
  void DropOld(Job* job);
  Context& context_;
};

// The number of steps between the furthest worker and a step at which all of them are to act: half a second of steps,
// so that the message arrives before any worker begins that step.
int64_t StepMargin(double step_ms);

// The step that all workers of the attempt can still agree on: the furthest one plus the margin, at most the last.
int64_t NextCommonStep(const Job& job, const Attempt& attempt);

}  // namespace xlad::service
