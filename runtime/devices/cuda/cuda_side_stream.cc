// The second stream of a GPU, on which NCCL enqueues its work.
#include <utility>

#include "runtime/devices/cuda/cuda_stream.h"

namespace xlad::runtime::cuda {
namespace {

class SideMark final : public collectives::SideStream::Mark {
 public:
  explicit SideMark(std::unique_ptr<Event> event) : event_(std::move(event)) {}
  absl::StatusOr<bool> IsReached() const override {
    if (!event_->IsDone()) return false;
    XLAD_RETURN_IF_ERROR(event_->Wait());
    return true;
  }

 private:
  const std::unique_ptr<Event> event_;
};

class CudaSideStream final : public collectives::SideStream {
 public:
  CudaSideStream(CudaStream* device, std::shared_ptr<const Gpu> gpu, std::unique_ptr<CudaStream> stream,
                 std::string address)
      : device_(*device), gpu_(std::move(gpu)), stream_(std::move(stream)), address_(std::move(address)) {}

  void* handle() const override { return stream_->handle(); }
  const std::string& gpu() const override { return address_; }
  absl::Status Activate() override { return gpu_->Activate(); }
  absl::Status WaitForDevice() override {
    XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<Event> event, device_.Record());
    return stream_->WaitFor(*event);
  }
  absl::Status FillZero(void* to, int64_t bytes) override { return stream_->FillZero(to, bytes); }
  absl::StatusOr<std::shared_ptr<const std::byte>> CopyAside(const void* from, int64_t bytes) override {
    XLAD_ASSIGN_OR_RETURN(const DevicePointer address, gpu_->Allocate(bytes));
    const std::shared_ptr<const std::byte> copy(reinterpret_cast<const std::byte*>(address),
                                                [gpu = gpu_, address](const std::byte*) { gpu->Free(address); });
    XLAD_RETURN_IF_ERROR(stream_->Copy(reinterpret_cast<void*>(address), from, bytes));
    return copy;
  }
  absl::StatusOr<std::unique_ptr<Mark>> Record() override {
    XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Event> event, stream_->Record());
    return std::make_unique<SideMark>(std::move(event));
  }

 private:
  CudaStream& device_;
  const std::shared_ptr<const Gpu> gpu_;
  const std::unique_ptr<CudaStream> stream_;
  const std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<collectives::SideStream>> CudaStream::MakeSideStream() {
  XLAD_RETURN_IF_ERROR(Begin());
  XLAD_ASSIGN_OR_RETURN(std::string address, gpu_->PciAddress());
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<CudaStream> stream, CudaStream::Make(gpu_, /*threads=*/1));
  return std::make_unique<CudaSideStream>(this, gpu_, std::move(stream), std::move(address));
}

}  // namespace xlad::runtime::cuda
