#include "runtime/devices/cuda/cuda_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xlad::runtime::cuda {
namespace {

constexpr int64_t kSlotBytes = 512 << 10;

DevicePointer Address(const void* address) { return reinterpret_cast<DevicePointer>(address); }

std::string LastWorkText(const std::string& work) {
  return absl::StrCat(" (the last kernel or library op: ", work, ")");
}

class CudaEvent final : public Event {
 public:
  static absl::StatusOr<std::unique_ptr<CudaEvent>> Make(std::shared_ptr<const Gpu> gpu,
                                                         std::shared_ptr<StreamStatus> status) {
    std::unique_ptr<CudaEvent> event(new CudaEvent(std::move(gpu), std::move(status)));
    XLAD_RETURN_IF_ERROR(event->gpu_->Check(
        event->gpu_->driver().cuEventCreate(&event->event_, kEventDisableTiming | kEventBlockingSync),
        "cuEventCreate"));
    return event;
  }
  ~CudaEvent() override {
    gpu_->Activate().IgnoreError();  // The driver's objects are released even after a failure of the GPU.
    if (event_ != nullptr) gpu_->driver().cuEventDestroy_v2(event_);
  }

  bool IsDone() const override { return !gpu_->Activate().ok() || gpu_->driver().cuEventQuery(event_) != kNotReady; }
  absl::Status Wait() const override {
    XLAD_RETURN_IF_ERROR(gpu_->Activate());
    const absl::Status reached = gpu_->Check(gpu_->driver().cuEventSynchronize(event_), "work before an event");
    return reached.ok() ? status_->Get() : status_->Note(reached);
  }
  EventHandle handle() const { return event_; }

 private:
  CudaEvent(std::shared_ptr<const Gpu> gpu, std::shared_ptr<StreamStatus> status)
      : gpu_(std::move(gpu)), status_(std::move(status)) {}

  const std::shared_ptr<const Gpu> gpu_;
  const std::shared_ptr<StreamStatus> status_;
  EventHandle event_ = nullptr;
};

}  // namespace

absl::Status StreamStatus::Get() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

absl::Status StreamStatus::Note(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (status_.ok()) status_ = status;
  return status_;
}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Make(std::shared_ptr<const Gpu> gpu, int threads) {
  std::unique_ptr<CudaStream> stream(new CudaStream(std::move(gpu), threads));
  XLAD_RETURN_IF_ERROR(stream->gpu().Activate());
  XLAD_RETURN_IF_ERROR(stream->gpu().Check(stream->gpu().driver().cuStreamCreate(&stream->stream_, kStreamNonBlocking),
                                           "cuStreamCreate"));
  return stream;
}

CudaStream::~CudaStream() {
  gpu_->Activate().IgnoreError();
  const Driver& driver = gpu_->driver();
  if (stream_ != nullptr) {
    driver.cuStreamSynchronize(stream_);
    driver.cuStreamDestroy_v2(stream_);
  }
  for (const Slot& slot : slots_) {
    if (slot.free != nullptr) driver.cuEventDestroy_v2(slot.free);
    if (slot.memory != nullptr) gpu_->FreePinned(slot.memory);
  }
}

// Any call of the driver, including the first one, can return the error of earlier work.
absl::Status CudaStream::Begin() {
  const absl::Status status = gpu_->Activate();
  XLAD_RETURN_IF_ERROR(status_->Get());
  if (status.ok()) return status;
  return status_->Note(absl::Status(status.code(), absl::StrCat(status.message(), LastWorkText(last_))));
}

absl::Status CudaStream::Check(Result result, const std::string& what) {
  if (result == kSuccess) return absl::OkStatus();
  return Note(gpu_->Check(result, absl::StrCat(what, LastWorkText(last_))));
}

absl::Status CudaStream::BeginRecording() {
  XLAD_RETURN_IF_ERROR(Begin());
  const Result begun = gpu_->driver().cuStreamBeginCapture_v2(stream_, kCaptureThreadLocal);
  is_recording_ = begun == kSuccess;
  return gpu_->Check(begun, "cuStreamBeginCapture");
}

absl::StatusOr<GraphHandle> CudaStream::EndRecording() {
  is_recording_ = false;
  GraphHandle graph = nullptr;
  XLAD_RETURN_IF_ERROR(gpu_->Check(gpu_->driver().cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture"));
  return graph;
}

absl::Status CudaStream::Launch(FunctionHandle kernel, const Grid& grid, std::vector<void*> parameters) {
  std::vector<void*> addresses;
  for (void*& parameter : parameters) addresses.push_back(&parameter);
  return Check(gpu_->driver().cuLaunchKernel(kernel, grid.blocks, 1, 1, grid.threads, 1, 1, 0, stream_,
                                             addresses.data(), nullptr),
               "launch");
}

absl::StatusOr<CudaStream::Slot*> CudaStream::NextSlot() {
  Slot& slot = slots_[next_slot_++ % slots_.size()];
  const Driver& driver = gpu_->driver();
  if (slot.memory == nullptr) {
    XLAD_ASSIGN_OR_RETURN(void* const memory, gpu_->AllocatePinned(kSlotBytes));
    slot.memory = static_cast<std::byte*>(memory);
    XLAD_RETURN_IF_ERROR(Check(driver.cuEventCreate(&slot.free, kEventDisableTiming), "cuEventCreate"));
  }
  if (slot.is_used) XLAD_RETURN_IF_ERROR(Check(driver.cuEventSynchronize(slot.free), "work of a stream"));
  return &slot;
}

absl::Status CudaStream::Release(Slot* slot) {
  slot->is_used = true;
  return Check(gpu_->driver().cuEventRecord(slot->free, stream_), "cuEventRecord");
}

absl::Status CudaStream::CopyToDevice(void* to, absl::Span<const std::byte> from) {
  XLAD_RETURN_IF_ERROR(Begin());
  for (DevicePointer at = Address(to); !from.empty();) {
    const absl::Span<const std::byte> part = from.first(std::min<size_t>(from.size(), kSlotBytes));
    XLAD_ASSIGN_OR_RETURN(Slot* const slot, NextSlot());
    std::memcpy(slot->memory, part.data(), part.size());
    XLAD_RETURN_IF_ERROR(
        Check(gpu_->driver().cuMemcpyHtoDAsync_v2(at, slot->memory, part.size(), stream_), "copy to the GPU"));
    XLAD_RETURN_IF_ERROR(Release(slot));
    at += part.size();
    from.remove_prefix(part.size());
  }
  return absl::OkStatus();
}

absl::Status CudaStream::CopyToHost(absl::Span<std::byte> to, const void* from) {
  absl::Status status = StartCopyToHost(to, from);
  // After an error the caller may free `to`, so this waits for the parts that are still being copied to it.
  if (!status.ok()) gpu_->driver().cuStreamSynchronize(stream_);
  return status;
}

absl::Status CudaStream::StartCopyToHost(absl::Span<std::byte> to, const void* from) {
  XLAD_RETURN_IF_ERROR(Begin());
  const auto deliver = [](void* argument) {
    const Slot& slot = *static_cast<const Slot*>(argument);
    std::memcpy(slot.target.data(), slot.memory, slot.target.size());
  };
  for (DevicePointer at = Address(from); !to.empty();) {
    XLAD_ASSIGN_OR_RETURN(Slot* const slot, NextSlot());
    slot->target = to.first(std::min<size_t>(to.size(), kSlotBytes));
    const size_t bytes = slot->target.size();
    XLAD_RETURN_IF_ERROR(
        Check(gpu_->driver().cuMemcpyDtoHAsync_v2(slot->memory, at, bytes, stream_), "copy to the host"));
    XLAD_RETURN_IF_ERROR(Check(gpu_->driver().cuLaunchHostFunc(stream_, deliver, slot), "cuLaunchHostFunc"));
    XLAD_RETURN_IF_ERROR(Release(slot));
    at += bytes;
    to.remove_prefix(bytes);
  }
  return absl::OkStatus();
}

absl::Status CudaStream::Copy(void* to, const void* from, int64_t bytes) {
  XLAD_RETURN_IF_ERROR(CheckBytes("cuda", bytes));
  XLAD_RETURN_IF_ERROR(Begin());
  if (bytes == 0 || to == from) return absl::OkStatus();
  const DevicePointer target = Address(to), source = Address(from);
  const size_t size = bytes;
  if (target < source + size && source < target + size) return CopyOverlapping(target, source, size);
  return Check(gpu_->driver().cuMemcpyAsync(target, source, size, stream_), "copy");
}

// Copies through temporary memory, because the driver's copies require ranges that do not overlap.
absl::Status CudaStream::CopyOverlapping(DevicePointer to, DevicePointer from, size_t bytes) {
  if (is_recording_) return absl::UnimplementedError("cuda: a graph cannot copy between ranges that overlap");
  const Driver& driver = gpu_->driver();
  XLAD_ASSIGN_OR_RETURN(const DevicePointer between, gpu_->Allocate(bytes));
  absl::Status copied = Check(driver.cuMemcpyAsync(between, from, bytes, stream_), "copy");
  if (copied.ok()) copied = Check(driver.cuMemcpyAsync(to, between, bytes, stream_), "copy");
  const Result ended = driver.cuStreamSynchronize(stream_);
  if (copied.ok()) copied = Check(ended, "copy");
  gpu_->Free(between);
  return copied;
}

absl::Status CudaStream::FillZero(void* to, int64_t bytes) {
  XLAD_RETURN_IF_ERROR(CheckBytes("cuda", bytes));
  XLAD_RETURN_IF_ERROR(Begin());
  if (bytes == 0) return absl::OkStatus();
  return Check(gpu_->driver().cuMemsetD8Async(Address(to), 0, bytes, stream_), "fill");
}

absl::StatusOr<std::unique_ptr<Event>> CudaStream::Record() {
  XLAD_RETURN_IF_ERROR(Begin());
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<CudaEvent> event, CudaEvent::Make(gpu_, status_));
  XLAD_RETURN_IF_ERROR(Check(gpu_->driver().cuEventRecord(event->handle(), stream_), "cuEventRecord"));
  return event;
}

absl::Status CudaStream::WaitFor(const Event& event) {
  const auto* const own = dynamic_cast<const CudaEvent*>(&event);
  if (own == nullptr) {
    return absl::InvalidArgumentError("cuda: found an event of another kind of device, expected one of this kind");
  }
  XLAD_RETURN_IF_ERROR(Begin());
  return Check(gpu_->driver().cuStreamWaitEvent(stream_, own->handle(), 0), "cuStreamWaitEvent");
}

// After an error, earlier work may still run, and the caller may free the memory that it uses.
absl::Status CudaStream::Synchronize() {
  const absl::Status begun = Begin();
  const Result ended = gpu_->driver().cuStreamSynchronize(stream_);
  return begun.ok() ? Check(ended, "work of a stream") : begun;
}

absl::StatusOr<DevicePointer> AllocateCopy(const std::shared_ptr<const Gpu>& gpu,
                                           absl::Span<const std::byte> contents) {
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<CudaStream> stream, CudaStream::Make(gpu, 1));
  XLAD_ASSIGN_OR_RETURN(const DevicePointer memory, gpu->Allocate(std::ssize(contents)));
  absl::Status copied = stream->CopyToDevice(reinterpret_cast<void*>(memory), contents);
  const absl::Status ended = stream->Synchronize();
  if (copied.ok()) copied = ended;
  if (copied.ok()) return memory;
  gpu->Free(memory);
  return copied;
}

}  // namespace xlad::runtime::cuda
