#include "runtime/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "tensor/safetensors.h"

namespace xlad::runtime {
namespace {

// The pause after a failed attempt to write. It doubles with each further failure, up to kMaxRetry.
constexpr std::chrono::milliseconds kMinRetry{1000};
constexpr std::chrono::milliseconds kMaxRetry{30'000};
// How often a device that waits in Save checks whether the coordinator can be reached.
constexpr std::chrono::milliseconds kAskAgain{20};

}  // namespace

std::chrono::milliseconds PauseAfterFailures(int failures) {
  std::chrono::milliseconds pause = kMinRetry;
  for (int i = 1; i < failures && pause < kMaxRetry; ++i) pause *= 2;
  return std::min(pause, kMaxRetry);
}

CheckpointWriter::CheckpointWriter(std::vector<SavedBox> boxes, int devices, storage::ShardOrigin origin,
                                   Callbacks callbacks, collectives::AbortSignal* abort)
    : boxes_(std::move(boxes)),
      devices_(devices),
      origin_(std::move(origin)),
      callbacks_(std::move(callbacks)),
      abort_(abort),
      bytes_(boxes_.size()) {
  listener_ = abort_->AddListener([this](const collectives::Failure& failure) { stop_.Raise(failure); });
  stop_.AddListener([this](const collectives::Failure&) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  thread_ = std::thread([this] { Run(); });
}

CheckpointWriter::~CheckpointWriter() {
  abort_->RemoveListener(listener_);
  End();
  thread_.join();
}

void CheckpointWriter::End() { stop_.Raise({absl::CancelledError("the task has ended"), ""}); }

absl::Status CheckpointWriter::Copy(int index, const DeviceBuffers& buffers) {
  for (size_t i = 0; i < boxes_.size(); ++i) {
    const SavedBox& box = boxes_[i];
    if (box.index != index) continue;
    const EntryLayout& layout = *box.layout;
    bytes_[i].resize(layout.local.bytes());
    XLAD_RETURN_IF_ERROR(buffers.Read(box.slice, absl::MakeSpan(bytes_[i])));
    if (layout.BoxOf(box.device).sizes() != layout.local.dims) {
      const tensor::Array compact = WithoutPadding(layout, box.device, bytes_[i]);
      bytes_[i].assign(compact.bytes().begin(), compact.bytes().end());
    }
    tensor::ToStored(layout.local.type, absl::MakeSpan(bytes_[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CheckpointWriter::Reserve(int64_t step, bool must) {
  std::unique_lock lock(mutex_);
  while (!stop_.raised()) {
    if (!must && skipped_ >= step) return false;
    const bool is_writing = copied_ == devices_;
    if (step_ < 0 || (step_ == step && !is_writing)) {
      step_ = step;
      return true;
    }
    if (!must && is_writing && callbacks_.is_cut_off()) {
      skipped_ = step;
      changed_.notify_all();
      return false;
    }
    changed_.wait_for(lock, kAskAgain);
  }
  return stop_.status();
}

absl::StatusOr<bool> CheckpointWriter::Save(int index, int64_t step, bool must, const DeviceBuffers& buffers) {
  XLAD_ASSIGN_OR_RETURN(const bool reserved, Reserve(step, must));
  if (!reserved) return false;
  const absl::Status copied = Copy(index, buffers);
  if (!copied.ok()) return Annotate(copied, absl::StrCat("state before step ", step));
  const std::lock_guard lock(mutex_);
  ++copied_;
  changed_.notify_all();
  return true;
}

void CheckpointWriter::Write(int64_t step) {
  std::vector<storage::PieceBytes> pieces;
  for (size_t i = 0; i < boxes_.size(); ++i) {
    const EntryLayout& layout = *boxes_[i].layout;
    pieces.push_back({boxes_[i].tensor, layout.global, layout.BoxOf(boxes_[i].device), bytes_[i]});
  }
  storage::ShardOrigin origin = origin_;
  origin.step = step;
  const storage::SerializedShard shard(std::move(pieces), origin);
  for (int failures = 1;; ++failures) {
    const absl::StatusOr<CheckpointShard> written = callbacks_.write(step, shard, &stop_);
    if (written.ok()) return callbacks_.written(step, *written);
    if (stop_.raised()) return;
    const bool must = !callbacks_.give_up(step);
    LogError(
        must ? "the state cannot be stored; trying again" : "a checkpoint cannot be stored; the job continues",
        {{"job", origin_.job_id}, {"step", absl::StrCat(step)}, {"error", std::string(written.status().message())}});
    callbacks_.failed(step, written.status(), must);
    if (!must) return;
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, PauseAfterFailures(failures), [&] { return stop_.raised(); })) return;
  }
}

void CheckpointWriter::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_.raised() || copied_ == devices_; });
    if (stop_.raised()) return;
    const int64_t step = step_;
    lock.unlock();
    Write(step);
    lock.lock();
    copied_ = 0;
    step_ = -1;
    changed_.notify_all();
  }
}

void CheckpointWriter::Committed(int64_t step) {
  const std::lock_guard lock(mutex_);
  committed_ = std::max(committed_, step);
  changed_.notify_all();
}

bool CheckpointWriter::IsCommitted(int64_t step) const {
  const std::lock_guard lock(mutex_);
  return committed_ >= step;
}

absl::Status CheckpointWriter::WaitUntilCommitted(int64_t step) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return committed_ >= step || stop_.raised(); });
  return committed_ >= step ? absl::OkStatus() : stop_.status();
}

}  // namespace xlad::runtime
