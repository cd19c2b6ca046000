// Writes the state of the devices here as shards of checkpoints, while the devices continue with their steps.
//
// At a step to save, each device copies its part of the state to host memory (Save). When the last device here has
// done so, a thread writes the shard. One copy of the state is kept in memory: a device that comes to the next step to
// save while a shard is still being written waits for it. If that shard cannot be written because the coordinator
// cannot be reached, the step is not saved, so that training does not wait for the coordinator.
#pragma once

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

// A box of the state that one device here writes.
struct SavedBox {
  std::string tensor;
  const EntryLayout* layout = nullptr;
  Slice slice;     // Where the device has it.
  int device = 0;  // Mesh position.
  int index = 0;   // The number of the device on this worker.
};

// Thread-safe.
class CheckpointWriter {
 public:
  struct Callbacks {
    // Stores the shard of the state before `step`.
    std::function<absl::StatusOr<CheckpointShard>(int64_t step, const storage::SerializedShard& shard,
                                                  collectives::AbortSignal* abort)>
        write;
    // The shard is stored. Called on the writer's thread.
    std::function<void(int64_t step, const CheckpointShard& shard)> written;
    // The shard could not be stored. Called on the writer's thread, for each try.
    std::function<void(int64_t step, const absl::Status& error)> failed;
    // Whether `write` waits for a coordinator that cannot be reached.
    std::function<bool()> is_cut_off;
  };
  // `boxes` are the boxes that the devices of this worker write; `origin` says which attempt they are of. The layouts
  // and `abort` must outlive the writer.
  CheckpointWriter(std::vector<SavedBox> boxes, int devices, storage::ShardOrigin origin, Callbacks callbacks,
                   collectives::AbortSignal* abort);
  ~CheckpointWriter();

  // Ends what the thread is writing, and all waiting calls: they return Cancelled. Called when the task is dropped.
  void End();

  // Copies the device's part of the state before `step`. Called by every device for the same steps in the same order. A
  // shard that cannot be stored is tried again until the signal is raised if it `must` be stored (the last state, and
  // that of a stop); otherwise the error is logged, and the step is not saved. Returns false if the step is skipped
  // because the coordinator cannot be reached; then it is skipped by all devices here for which it is no `must`.
  absl::StatusOr<bool> Save(int index, int64_t step, bool must, const DeviceBuffers& buffers);

  // The checkpoint of the state before `step`, and all of those before it, are no longer needed here.
  void Committed(int64_t step);
  bool IsCommitted(int64_t step) const;
  // Waits for it, or returns the status of the signal.
  absl::Status WaitUntilCommitted(int64_t step);

 private:
  // Waits until the memory is free for the copy of this step. Returns false if the step is skipped.
  absl::StatusOr<bool> Reserve(int64_t step, bool must);
  absl::Status Copy(int index, const DeviceBuffers& buffers);
  void Write(int64_t step, bool must);
  void Run();

  const std::vector<SavedBox> boxes_;
  const int devices_;
  const storage::ShardOrigin origin_;
  const Callbacks callbacks_;
  collectives::AbortSignal* const abort_;
  collectives::AbortSignal stop_;  // Raised with `abort_`, and by End.
  // By box: the bytes of the copy. A device writes those of its own boxes, and then the thread reads all of them.
  std::vector<std::vector<std::byte>> bytes_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t step_ = -1;  // The step of the copy; -1: the memory is free.
  bool must_ = false;
  int copied_ = 0;          // Devices that have copied their part.
  int64_t skipped_ = -1;    // The newest skipped step.
  int64_t committed_ = -1;  // The newest committed step.
  int64_t listener_ = 0;
  std::thread thread_;
};

}  // namespace xlad::runtime
