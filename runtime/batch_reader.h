// Reads the batches of a task's data ahead of its steps, on a separate thread, so that steps rarely wait for the store.
//
// Consecutive batches are read in groups of at most 256. A group has at most kGroupBytes unless a single batch is
// larger. If the devices of this worker need at most kKeepBytes in all, each group is read once and kept. Otherwise,
// groups of at most kAheadBytes in total, but at least two groups, are in memory at a time: the group of the slowest
// device's step and the following groups. If each batch is opened separately (BatchPlan::open_batch), a group is one
// batch, at most 8 groups are in memory at a time, and groups are not kept.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collectives/exec/abort.h"
#include "storage/tensor_source.h"
#include "tensor/box.h"

namespace xlad::runtime {

// A parameter that receives the rows of each batch.
struct BatchInput {
  std::string tensor;
  tensor::Shape global;            // The shape of one batch; its rows are dimension 0.
  tensor::Shape local;             // The shape of the padded shard, the same on all devices.
  std::vector<tensor::Box> boxes;  // For each device of this worker, its part of a batch.
};

struct BatchPlan {
  std::vector<BatchInput> inputs;
  int64_t batch_size = 0;   // The number of rows of a batch.
  int64_t batch_count = 0;  // Step t reads batch t mod batch_count.
  int64_t first_step = 0;   // The steps are [first_step, end_step).
  int64_t end_step = 0;
  int devices = 0;          // The number of devices of this worker.
  // Opens the tensors of one batch, and may wait until the batch has arrived. If null, the source passed to Start has
  // the tensors of all batches.
  std::function<absl::StatusOr<std::shared_ptr<storage::TensorSource>>(int64_t batch)> open_batch;
};

// Thread-safe.
class BatchReader {
 public:
  static constexpr int64_t kGroupBytes = 4 << 20;
  static constexpr int64_t kAheadBytes = 64 << 20;
  static constexpr int64_t kKeepBytes = 256 << 20;

  // InvalidArgument if the plan has no batches, or if a tensor of the source has another type, other dimensions or
  // fewer rows than the plan needs. NotFound if the source does not have a tensor. `source` is null if the plan has
  // `open_batch`. `abort` must outlive the reader; after it has been raised, calls return its status.
  static absl::StatusOr<std::unique_ptr<BatchReader>> Start(std::shared_ptr<storage::TensorSource> source,
                                                            BatchPlan plan, collectives::AbortSignal* abort);
  ~BatchReader();

  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  // Waits until the padded shard of an input for `step` has been read, and returns it. Each device must ask for its
  // steps in order. `device` and `input` index the plan.
  absl::StatusOr<Bytes> Get(int device, int input, int64_t step);

 private:
  // The shards of consecutive batches, indexed by batch in the group, then by input, then by distinct box.
  using Group = std::vector<std::vector<std::vector<Bytes>>>;

  BatchReader(std::shared_ptr<storage::TensorSource> source, BatchPlan plan, collectives::AbortSignal* abort);
  int64_t GroupOf(int64_t step) const { return step % plan_.batch_count / batches_per_group_; }
  // The group to read next, or -1 if there is none now. Drops groups that are not needed. Called with the lock held.
  int64_t Next();
  absl::StatusOr<Group> ReadGroup(int64_t group) const;
  void Run();

  const std::shared_ptr<storage::TensorSource> source_;
  const BatchPlan plan_;
  collectives::AbortSignal* const abort_;
  std::vector<std::vector<tensor::Box>> distinct_;  // For each input, its distinct boxes.
  std::vector<std::vector<int>> box_of_device_;     // Indexed by input, then by device: an index in distinct_[input].
  int64_t batches_per_group_ = 1;
  int64_t groups_ahead_ = 1;  // The maximum number of groups in memory, unless keep_.
  bool keep_ = false;         // True if all groups are kept in memory.

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Group> groups_;
  std::vector<int64_t> steps_;  // For each device, the step whose data it needs.
  absl::Status error_;
  bool ending_ = false;
  int64_t listener_ = 0;
  std::thread thread_;
};

}  // namespace xlad::runtime
