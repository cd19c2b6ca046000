// Streams and events of a GPU.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/devices/cuda/cuda_module.h"
#include "runtime/devices/cuda/gpu.h"

namespace xlad::runtime::cuda {

// The first error of a stream. Shared with its events, which may outlive it and be used by other threads.
class StreamStatus {
 public:
  absl::Status Get() const;
  // Records `status` if it is the first error, and returns the first error.
  absl::Status Note(const absl::Status& status);

 private:
  mutable std::mutex mutex_;
  absl::Status status_;
};

// Copies between the host and the GPU use slots of pinned memory of the stream, so that the host does not wait for
// them:
//
//   to the GPU     memcpy into a slot, then a copy by the GPU
//   to the host    a copy by the GPU into a slot, then a memcpy by the driver's thread, in the order of the stream
//
// A slot is used again when the event after its last use has been reached. If all slots are in use, the host waits.
// The class has more than 25 methods, because each operation of a device and each step of recording a graph has one.
class CudaStream final : public Stream {
 public:
  // `threads` is the number of threads for library ops that the host computes.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Make(std::shared_ptr<const Gpu> gpu, int threads);
  ~CudaStream() override;

  bool host_can_access() const override { return false; }
  absl::Status CopyToDevice(void* to, absl::Span<const std::byte> from) override;
  absl::Status CopyToHost(absl::Span<std::byte> to, const void* from) override;
  absl::Status Copy(void* to, const void* from, int64_t bytes) override;
  absl::Status FillZero(void* to, int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<Event>> Record() override;
  absl::Status WaitFor(const Event& event) override;
  absl::Status Synchronize() override;
  absl::StatusOr<std::unique_ptr<collectives::SideStream>> MakeSideStream() override;
  std::string memory_name() const override;
  absl::StatusOr<std::shared_ptr<std::byte>> AllocateDevice(int64_t bytes) override;
  std::string shared_memory_name() const override;
  absl::StatusOr<SharedMemory> AllocateShared(int64_t bytes) override;
  absl::StatusOr<std::shared_ptr<std::byte>> OpenShared(const std::string& handle) override;
  bool CanReduce(const collectives::DeviceReduction& reduction) const override;
  absl::Status Reduce(const collectives::DeviceReduction& reduction, void* to, absl::Span<const void* const> sources,
                      int64_t count) override;

  const Gpu& gpu() const { return *gpu_; }
  StreamHandle handle() const { return stream_; }
  int threads() const { return threads_; }
  // Makes the stream's GPU current, even after an error. Returns the first error of the stream, if there is one.
  absl::Status Begin();
  // Records the error, if any, of a call of the driver or of work that the host did for the stream.
  absl::Status Check(Result result, const std::string& what);
  absl::Status Note(const absl::Status& status) {
    return status.ok() || is_recording_ ? status : status_->Note(status);
  }
  struct Grid {
    unsigned blocks = 1, threads = 1;  // The number of blocks, and of threads per block.
  };
  // Enqueues a kernel whose parameters are addresses. Call Begin first.
  absl::Status Launch(FunctionHandle kernel, const Grid& grid, std::vector<void*> parameters);
  // Work that is enqueued between these calls is not run, but becomes the nodes of a graph, which the caller destroys
  // (cuGraphDestroy). Only kernels, fills, and copies of ranges that do not overlap can be recorded. Errors in between
  // are not errors of the stream.
  absl::Status BeginRecording();
  absl::StatusOr<GraphHandle> EndRecording();
  // The kernel or library op that was enqueued last, for the message if the GPU reports an error later.
  void SetLast(const std::string& work) { last_ = work; }
  const std::string& last() const { return last_; }

 private:
  struct Slot {
    std::byte* memory = nullptr;
    EventHandle free = nullptr;
    bool is_used = false;
    absl::Span<std::byte> target;  // The memory that a copy to the host writes.
  };

  CudaStream(std::shared_ptr<const Gpu> gpu, int threads) : gpu_(std::move(gpu)), threads_(threads) {}
  absl::StatusOr<Slot*> NextSlot();
  absl::Status Release(Slot* slot);
  absl::Status StartCopyToHost(absl::Span<std::byte> to, const void* from);
  absl::Status CopyOverlapping(DevicePointer to, DevicePointer from, size_t bytes);

  const std::shared_ptr<const Gpu> gpu_;
  const int threads_;
  const std::shared_ptr<StreamStatus> status_ = std::make_shared<StreamStatus>();
  StreamHandle stream_ = nullptr;
  std::shared_ptr<const CudaModule> reduce_kernels_;  // Null before the first reduction.
  std::array<Slot, 4> slots_;
  size_t next_slot_ = 0;
  std::string last_ = "none";
  bool is_recording_ = false;
};

// Returns new memory of the GPU with these contents. The caller frees it with Gpu::Free.
absl::StatusOr<DevicePointer> AllocateCopy(const std::shared_ptr<const Gpu>& gpu, absl::Span<const std::byte> contents);

}  // namespace xlad::runtime::cuda
