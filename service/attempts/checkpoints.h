// Checkpoints of running attempts: decides when they are made, and commits the shards of the workers as one record.
#pragma once

#include "service/state/context.h"

namespace xlad::service {

// The coordinator's part of the checkpoints. All devices of an attempt save at the same steps: multiples of the
// policy's every_steps, steps that a CheckpointAt message names, the last step, and the step of a stop. When the shards
// of all workers have arrived, the index is stored, and then one record commits the checkpoint.
class Checkpoints {
 public:
  explicit Checkpoints(Context* context) : context_(*context) {}

  void OnShardWritten(const WorkerId& worker, const ShardWritten& message);
  void OnShardFailed(const WorkerId& worker, const ShardFailed& message);
  void OnAnswer(const WorkerId& worker, const CheckpointAtAnswer& message);
  // Called when the index has been stored, or with the error if it could not be stored. DataLoss means that a part of
  // the checkpoint is lost; the attempt then fails.
  void OnIndexStored(const StoreIndex& request, const absl::StatusOr<Checkpoint>& stored);
  // Repeats the request for a checkpoint to a worker that has registered again, because the request may have been lost
  // with its old connection. `step` is the number of steps that the worker has finished.
  void RepeatRequest(const WorkerId& worker, const Job& job, int64_t step);
  // Called when an attempt is adopted after a restart of the coordinator. The time since its last checkpoint counts
  // from before the restart, so that a coordinator that restarts often requests checkpoints nevertheless.
  void OnAdopted(const Job& job);
  // Requests a checkpoint if the policy's time has passed since the last one. Retries an index that could not be
  // stored. Ends a job if a permanent error keeps the state with which its attempt ends from being stored.
  void OnTick(Job* job);

  // The step of the newest committed checkpoint of this attempt or an earlier one, or -1 if there is none.
  static int64_t NewestStep(const Job& job);
  // "the newest checkpoint is of step 40", or "there is no checkpoint yet".
  static std::string NewestText(const Job& job);

 private:
  struct Failure {
    int64_t step = 0;
    std::string worker;  // Empty if the coordinator failed.
    std::string error;
    int32_t code = 0;
    bool must_be_stored = false;  // See ShardFailed.
  };
  void RecordFailure(const Job* job, const Failure& failure);
  // Ends a job if the state with which its attempt ends has been refused for too long.
  bool EndIfRefused(Job* job);
  void Request(Job* job);
  void StoreIfComplete(Job* job, int64_t step);
  void DropOld(Job* job);
  Context& context_;
};

// Returns whether an error with this absl::StatusCode is a refusal, which persists until a user acts. For example, the
// place of the checkpoints is not a folder or may not be written, or the coordinator does not accept a worker's token.
// An error of a full or unreachable disk is not a refusal, because the disk may recover by itself. Neither is an error
// of the coordinator's data folder (see BlobStore::Upload): the job has not chosen that folder, and all jobs wait until
// it is repaired.
bool IsRefusal(int32_t code);

// The number of steps from the step of the furthest worker to the step at which all workers are told to act. If
// these steps are as long as the last step, which took `step_ms`, they take at least half a second, so the message
// arrives before any worker begins that step. If `step_ms` is not known (0), the number is 16.
int64_t StepMargin(double step_ms);

// The earliest step that all workers of the attempt can still agree on: the step of the furthest worker plus
// StepMargin, and at most the last step.
int64_t NextCommonStep(const Job& job, const Attempt& attempt);

}  // namespace xlad::service
