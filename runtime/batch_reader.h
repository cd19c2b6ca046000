// Reads the batches of a task's data ahead of its steps, on a thread of its own, so that no step waits for the store.
//
// Batches are read in groups of consecutive ones, of about kGroupBytes. If all of the data that the devices here need
// is small, it is read once and kept; otherwise a few groups are in memory at a time: that of the slowest device's step
// and those after it.
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

// A parameter that gets the rows of a batch.
struct BatchInput {
  std::string tensor;
  tensor::Shape global;            // The shape of one batch; its rows are dimension 0.
  tensor::Shape local;             // The padded shard; the same shape on all devices.
  std::vector<tensor::Box> boxes;  // The part of a batch that each device here gets.
};

struct BatchPlan {
  std::vector<BatchInput> inputs;
  int64_t batch_size = 0;   // Rows of dimension 0 of the tensors.
  int64_t batch_count = 0;  // Step t reads batch t mod batch_count.
  int64_t first_step = 0;
  int64_t end_step = 0;
  int devices = 0;
  // Opens the tensors of one batch; may wait for it. If null, the source of Start has all batches.
  std::function<absl::StatusOr<std::shared_ptr<storage::TensorSource>>(int64_t batch)> open_batch;
};

// Thread-safe.
class BatchReader {
 public:
  static constexpr int64_t kGroupBytes = 4 << 20;
  static constexpr int64_t kAheadBytes = 64 << 20;
  static constexpr int64_t kKeepBytes = 256 << 20;

  // InvalidArgument if the source does not have the rows that the plan needs; it is null if the plan opens each batch
  // by itself. `abort` must outlive the reader; when it
  // is raised, calls return its status.
  static absl::StatusOr<std::unique_ptr<BatchReader>> Start(std::shared_ptr<storage::TensorSource> source,
                                                            BatchPlan plan, collectives::AbortSignal* abort);
  ~BatchReader();

  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  // The padded shard of an input for `step`. Waits until it has been read. Each device asks for its steps in order;
  // `device` and `input` index the plan.
  absl::StatusOr<Bytes> Get(int device, int input, int64_t step);

 private:
  // The shards of some consecutive batches: by batch in the group, then by input, then by distinct box.
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
  std::vector<std::vector<tensor::Box>> distinct_;  // By input: the boxes without repetitions.
  std::vector<std::vector<int>> box_of_device_;     // By input, then device: an index of distinct_.
  int64_t batches_per_group_ = 1;
  int64_t groups_ahead_ = 1;  // How many groups are in memory at most.
  bool keep_ = false;         // Groups stay in memory.

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Group> groups_;
  std::vector<int64_t> steps_;  // By device: the step that it needs.
  absl::Status error_;
  bool ending_ = false;
  int64_t listener_ = 0;
  std::thread thread_;
};

}  // namespace xlad::runtime
