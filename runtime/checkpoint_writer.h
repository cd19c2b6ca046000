// Writes the state of this worker's devices as shards of checkpoints while the devices continue with their steps.
//
// At a step to save, each device copies its part of the state to host memory (Save). When the last device of this
// worker has done so, a thread writes the shard. Only one copy of the state is kept in memory. A device may reach the
// next step to save while a shard is still being written; it then waits until the shard is stored. While the shard
// cannot be stored because the coordinator cannot be reached, later steps to save are skipped instead. Training thus
// does not wait for the coordinator.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collectives/exec/abort.h"
#include "proto/checkpoint.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/device_buffers.h"
#include "runtime/entry_layout.h"
#include "storage/checkpoint_shard.h"

namespace xlad::runtime {

// A box of the state that one device of this worker writes.
struct SavedBox {
  std::string tensor;
  const EntryLayout* layout = nullptr;
  Slice slice;     // The box in the device's buffers.
  int device = 0;  // Mesh position.
  int index = 0;   // The index of the device on this worker.
};

// The pause before the next attempt to store a state that must be stored, after `failures` failures in a row.
std::chrono::milliseconds PauseAfterFailures(int failures);

// Thread-safe.
class CheckpointWriter {
 public:
  struct Callbacks {
    // Stores the shard of the state before `step`.
    std::function<absl::StatusOr<CheckpointShard>(int64_t step, const storage::SerializedShard& shard,
                                                  collectives::AbortSignal* abort)>
        write;
    // Called on the writer's thread when the shard is stored.
    std::function<void(int64_t step, const CheckpointShard& shard)> written;
    // Called on the writer's thread after each failed attempt to store a shard, unless the writer is being stopped.
    // Returns false if the shard must be stored because it belongs to the last state or to the state at a stop. The
    // answer can change, because a stop may be requested or replaced at any time. If it returns true, the writer drops
    // the shard, and the devices may save the state before `step` again.
    std::function<bool(int64_t step)> give_up;
    // Called on the writer's thread after each call of `give_up`. `must` is true if the writer tries again.
    std::function<void(int64_t step, const absl::Status& error, bool must)> failed;
    // Returns whether `write` is waiting for a coordinator that cannot be reached.
    std::function<bool()> is_cut_off;
  };
  // `boxes` are the boxes that the devices of this worker write; `origin` names the attempt. The layouts and `abort`
  // must outlive the writer.
  CheckpointWriter(std::vector<SavedBox> boxes, int devices, storage::ShardOrigin origin, Callbacks callbacks,
                   collectives::AbortSignal* abort);
  ~CheckpointWriter();

  // Cancels the write in progress and all waiting calls, which return Cancelled. Called when the task is dropped.
  void End();

  // Copies the device's part of the state before `step`. Every device must make this call, for the same steps in the
  // same order. If the write fails, it is repeated until it succeeds, give_up returns true, `abort` is raised or End is
  // called. Returns false if the step is skipped because the coordinator cannot be reached; then all devices of this
  // worker skip it. If `must` is set (for the last step, or for a stop), the step is not skipped.
  absl::StatusOr<bool> Save(int index, int64_t step, bool must, const DeviceBuffers& buffers);

  // Called when the checkpoint of the state before `step` is committed. Older states then also count as committed.
  void Committed(int64_t step);
  bool IsCommitted(int64_t step) const;
  // Waits until the checkpoint is committed. If `abort` is raised first, returns its status. If End is called first,
  // returns Cancelled.
  absl::Status WaitUntilCommitted(int64_t step);

 private:
  // Waits until the memory is free for the copy of this step. Returns false if the step is skipped.
  absl::StatusOr<bool> Reserve(int64_t step, bool must);
  absl::Status Copy(int index, const DeviceBuffers& buffers);
  void Write(int64_t step);
  void Run();

  const std::vector<SavedBox> boxes_;
  const int devices_;
  const storage::ShardOrigin origin_;
  const Callbacks callbacks_;
  collectives::AbortSignal* const abort_;
  collectives::AbortSignal stop_;  // Raised when abort_ is raised, and by End.
  // For each box, the bytes of the copy. Each device writes the bytes of its own boxes; then the thread reads all of
  // them.
  std::vector<std::vector<std::byte>> bytes_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t step_ = -1;  // The step of the copy, or -1 if the memory is free.
  int copied_ = 0;          // The number of devices that have copied their part.
  int64_t skipped_ = -1;    // The newest skipped step.
  int64_t committed_ = -1;  // The newest committed step.
  int64_t listener_ = 0;
  std::thread thread_;
};

}  // namespace xlad::runtime
