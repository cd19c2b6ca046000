#include "runtime/batch_reader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xlad::runtime {
namespace {

using storage::BoxRead;
using tensor::Array;
using tensor::Box;
using tensor::Shape;

// A group has at most this many batches, so that the first step does not wait for many small batches.
constexpr int64_t kMaxBatchesPerGroup = 256;
constexpr int64_t kStreamedAhead = 8;  // The maximum number of batches in memory if each is opened separately.

// `batches` is the number of batches that the source must have.
absl::Status CheckInput(const storage::TensorSource& source, const BatchInput& input, const BatchPlan& plan,
                        int64_t batches) {
  const auto found = source.tensors().find(input.tensor);
  Shape needed = input.global;
  needed.dims[0] = plan.batch_size * batches;
  if (found != source.tensors().end() && !found->second.shape.dims.empty()) {
    needed.dims[0] = std::max(needed.dims[0], found->second.shape.dims[0]);
  }
  return source.CheckShape(input.tensor, needed);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchReader>> BatchReader::Start(std::shared_ptr<storage::TensorSource> source,
                                                                BatchPlan plan, collectives::AbortSignal* abort) {
  if (plan.batch_count < 1) {
    return absl::InvalidArgumentError(absl::StrCat("found ", plan.batch_count, " batches, expected 1 or more"));
  }
  for (const BatchInput& input : plan.inputs) {
    if (source != nullptr) XLAD_RETURN_IF_ERROR(CheckInput(*source, input, plan, plan.batch_count));
  }
  std::unique_ptr<BatchReader> reader(new BatchReader(std::move(source), std::move(plan), abort));
  reader->thread_ = std::thread([r = reader.get()] { r->Run(); });
  return reader;
}

BatchReader::BatchReader(std::shared_ptr<storage::TensorSource> source, BatchPlan plan, collectives::AbortSignal* abort)
    : source_(std::move(source)), plan_(std::move(plan)), abort_(abort), steps_(plan_.devices, plan_.first_step) {
  int64_t batch_bytes = 0;
  for (const BatchInput& input : plan_.inputs) {
    std::vector<Box>& boxes = distinct_.emplace_back();
    std::vector<int>& of_device = box_of_device_.emplace_back();
    for (const Box& box : input.boxes) {
      const auto found = std::find(boxes.begin(), boxes.end(), box);
      of_device.push_back(found - boxes.begin());
      if (found == boxes.end()) boxes.push_back(box);
    }
    batch_bytes += std::ssize(boxes) * input.local.bytes();
  }
  batch_bytes = std::max<int64_t>(batch_bytes, 1);
  const int64_t used = std::min(plan_.batch_count, std::max<int64_t>(plan_.end_step - plan_.first_step, 1));
  batches_per_group_ =
      std::clamp<int64_t>(kGroupBytes / batch_bytes, 1, std::min(plan_.batch_count, kMaxBatchesPerGroup));
  groups_ahead_ = std::max<int64_t>(2, kAheadBytes / (batch_bytes * batches_per_group_));
  keep_ = used <= kKeepBytes / batch_bytes;
  if (plan_.open_batch) {  // One batch per group: a step can use a batch before the next batch has arrived.
    batches_per_group_ = 1;
    groups_ahead_ = kStreamedAhead;
    keep_ = false;
  }
  listener_ = abort_->AddListener([this](const collectives::Failure&) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
}

BatchReader::~BatchReader() {
  abort_->RemoveListener(listener_);
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<BatchReader::Bytes> BatchReader::Get(int device, int input, int64_t step) {
  std::unique_lock lock(mutex_);
  if (steps_[device] != step) {
    steps_[device] = step;
    changed_.notify_all();
  }
  const int64_t group = GroupOf(step);
  changed_.wait(lock, [&] { return groups_.contains(group) || !error_.ok() || abort_->raised(); });
  if (abort_->raised()) return abort_->status();
  const auto found = groups_.find(group);
  if (found == groups_.end()) return error_;
  return found->second[step % plan_.batch_count % batches_per_group_][input][box_of_device_[input][device]];
}

int64_t BatchReader::Next() {
  // At most groups_ahead_ groups are needed: the group of the slowest device's step and the groups of later steps.
  const int64_t first = *std::min_element(steps_.begin(), steps_.end());
  std::set<int64_t> needed;
  int64_t next = -1;
  for (int64_t step = first; step < plan_.end_step;) {
    const int64_t group = GroupOf(step);
    if (!needed.insert(group).second) break;  // The steps use the first group again, so all groups have been visited.
    if (next < 0 && !groups_.contains(group)) next = group;
    if (std::ssize(needed) == groups_ahead_) break;
    const int64_t batch = step % plan_.batch_count;
    step += std::min(plan_.batch_count - batch, batches_per_group_ - batch % batches_per_group_);
  }
  if (!keep_) std::erase_if(groups_, [&](const auto& entry) { return !needed.contains(entry.first); });
  return next;
}

absl::StatusOr<BatchReader::Group> BatchReader::ReadGroup(int64_t group) const {
  const int64_t begin = group * batches_per_group_;
  const int64_t end = std::min(plan_.batch_count, begin + batches_per_group_);
  std::shared_ptr<storage::TensorSource> source = source_;
  if (plan_.open_batch) {
    XLAD_ASSIGN_OR_RETURN(source, plan_.open_batch(group));
    for (const BatchInput& input : plan_.inputs) XLAD_RETURN_IF_ERROR(CheckInput(*source, input, plan_, 1));
  }
  const int64_t first = plan_.open_batch ? group : 0;  // The index of the first batch in `source`.
  // The shards are first read without padding, in the order of the group.
  std::vector<Array> compact;
  std::vector<BoxRead> reads;
  for (int64_t batch = begin; batch < end; ++batch) {
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      for (const Box& box : distinct_[i]) compact.emplace_back(Shape{plan_.inputs[i].local.type, box.sizes()});
    }
  }
  auto next = compact.begin();
  for (int64_t batch = begin; batch < end; ++batch) {
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      for (Box box : distinct_[i]) {
        box.lo[0] += (batch - first) * plan_.batch_size;
        box.hi[0] += (batch - first) * plan_.batch_size;
        if (next->elements() > 0) reads.push_back({plan_.inputs[i].tensor, next->shape().type, box, next->bytes()});
        ++next;
      }
    }
  }
  XLAD_RETURN_IF_ERROR(source->Read(reads));
  Group read(end - begin);
  next = compact.begin();
  for (auto& of_batch : read) {
    of_batch.resize(plan_.inputs.size());
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      for (const Box& box : distinct_[i]) {
        Array shard = *std::move(next++);
        if (!(shard.shape() == plan_.inputs[i].local)) {
          Array padded(plan_.inputs[i].local);
          tensor::InsertBox(shard, tensor::AtOrigin(box), &padded);
          shard = std::move(padded);
        }
        of_batch[i].push_back(std::make_shared<std::vector<std::byte>>(shard.bytes().begin(), shard.bytes().end()));
      }
    }
  }
  return read;
}

void BatchReader::Run() {
  std::unique_lock lock(mutex_);
  while (!ending_ && !abort_->raised()) {
    const int64_t group = Next();
    if (group < 0) {
      changed_.wait(lock);
      continue;
    }
    lock.unlock();
    absl::StatusOr<Group> read = ReadGroup(group);
    lock.lock();
    if (read.ok()) {
      groups_[group] = *std::move(read);
    } else {
      error_ = Annotate(read.status(), "data");
    }
    changed_.notify_all();
    if (!error_.ok()) return;
  }
}

}  // namespace xlad::runtime
