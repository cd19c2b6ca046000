// For tests: a device whose kernels are functions of the test, and functions to build executables.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "tensor/element_type.h"

namespace xlad::runtime {

// The number of devices of a complete task or session, and ways to place them: each lists the devices of each worker.
constexpr int kDevices = 4;
inline const std::vector<std::vector<std::vector<int>>> kPlacements = {
    {{0, 1, 2, 3}}, {{0, 1}, {2, 3}}, {{3}, {1, 0}, {2}}};

using TestKernel = std::function<absl::Status(absl::Span<void* const> buffers, int partition)>;
using TestKernels = std::map<std::string, TestKernel>;

class TestLauncher final : public Launcher {
 public:
  TestLauncher(const std::vector<TestKernel>* kernels, int partition) : kernels_(*kernels), partition_(partition) {}
  absl::Status RunKernel(int kernel, absl::Span<void* const> buffers, void*, int64_t) override {
    return kernels_[kernel](buffers, partition_);
  }
  absl::Status RunLibraryOp(int op, absl::Span<void* const> buffers) override {
    return absl::UnimplementedError(absl::StrCat("library op ", op, " on ", buffers.size(), " buffers"));
  }

 private:
  const std::vector<TestKernel>& kernels_;
  const int partition_;
};

class TestLoaded final : public LoadedExecutable {
 public:
  TestLoaded(Executable executable, const TestKernels& kernels) : executable_(std::move(executable)) {
    for (const auto& [name, kernel] : kernels) {
      names_[name] = static_cast<int>(kernels_.size());
      kernels_.push_back(kernel);
    }
  }
  const Executable& executable() const override { return executable_; }
  absl::StatusOr<int> FindKernel(absl::string_view symbol) const override {
    const auto found = names_.find(std::string(symbol));
    if (found != names_.end()) return found->second;
    return absl::NotFoundError(absl::StrCat("no kernel ", symbol));
  }
  absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(int32_t partition, Stream*) const override {
    return std::make_unique<TestLauncher>(&kernels_, partition);
  }

 private:
  const Executable executable_;
  std::map<std::string, int> names_;
  std::vector<TestKernel> kernels_;
};

// If true, copies from the host fail on the streams that TestDevice makes.
inline std::atomic<bool> copies_fail = false;

// A stream whose copies from the host fail.
class UnwritableStream final : public Stream {
 public:
  explicit UnwritableStream(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
  bool host_can_access() const override { return stream_->host_can_access(); }
  absl::Status CopyToDevice(void*, absl::Span<const std::byte>) override {
    return absl::InternalError("the device cannot be written");
  }
  absl::Status CopyToHost(absl::Span<std::byte> to, const void* from) override { return stream_->CopyToHost(to, from); }
  absl::Status Copy(void* to, const void* from, int64_t bytes) override { return stream_->Copy(to, from, bytes); }
  absl::Status FillZero(void* to, int64_t bytes) override { return stream_->FillZero(to, bytes); }
  absl::StatusOr<std::unique_ptr<Event>> Record() override { return stream_->Record(); }
  absl::Status WaitFor(const Event& event) override { return stream_->WaitFor(event); }
  absl::Status Synchronize() override { return stream_->Synchronize(); }

 private:
  const std::unique_ptr<Stream> stream_;
};

// A device that runs the kernels of the test on the CPU.
class TestDevice final : public Device {
 public:
  explicit TestDevice(TestKernels kernels, std::string name = "test")
      : kernels_(std::move(kernels)), name_(std::move(name)) {}
  std::string Name() const override { return name_; }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes, MemoryKind kind) override {
    return cpu_->Allocate(bytes, kind);
  }
  using Device::MakeStream;
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(int threads) override {
    XLAD_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, cpu_->MakeStream(threads));
    if (copies_fail) stream = std::make_unique<UnwritableStream>(std::move(stream));
    return stream;
  }
  absl::StatusOr<std::unique_ptr<LoadedExecutable>> Load(Executable executable) override {
    return std::make_unique<TestLoaded>(std::move(executable), kernels_);
  }

 private:
  const TestKernels kernels_;
  const std::string name_;
  const std::unique_ptr<Device> cpu_ = MakeCpuDevice();
};

inline int AddAllocation(Executable* executable, Allocation::Kind kind, int64_t bytes) {
  Allocation* allocation = executable->add_allocations();
  allocation->set_kind(kind);
  allocation->set_bytes(bytes);
  return executable->allocations_size() - 1;
}

inline void SetSlice(BufferSlice* slice, int allocation, int64_t offset, int64_t bytes) {
  slice->set_allocation(allocation);
  slice->set_offset(offset);
  slice->set_bytes(bytes);
}

inline BufferSlice Whole(const Executable& executable, int allocation) {
  BufferSlice slice;
  SetSlice(&slice, allocation, 0, executable.allocations(allocation).bytes());
  return slice;
}

inline void SetShape(ArrayShape* shape, tensor::ElementType type, const std::vector<int64_t>& dims) {
  shape->set_element_type(static_cast<int>(type));
  shape->mutable_dims()->Assign(dims.begin(), dims.end());
}

inline Step KernelOn(const Executable& executable, const std::string& symbol, const std::vector<int>& allocations) {
  Step step;
  step.set_name(symbol);
  step.mutable_kernel()->set_symbol(symbol);
  for (int allocation : allocations) *step.mutable_kernel()->add_buffers() = Whole(executable, allocation);
  return step;
}

// Adds a sum of `count` floats over all `devices`, and returns the step that computes it in place in `allocation`.
inline Step AllReduceOn(Executable* executable, int devices, int64_t count, int allocation) {
  Step step;
  step.set_name("all-reduce.1");
  step.mutable_collective()->set_spec(executable->collectives_size());
  *step.mutable_collective()->add_inputs() = Whole(*executable, allocation);
  *step.mutable_collective()->add_outputs() = Whole(*executable, allocation);
  CollectiveSpec* spec = executable->add_collectives();
  spec->set_op(step.name());
  spec->set_kind(CollectiveSpec::ALL_REDUCE);
  spec->set_reduction(CollectiveSpec::SUM);
  spec->set_element_type(static_cast<int>(tensor::ElementType::kF32));
  spec->add_counts(count);
  spec->add_groups();
  for (int device = 0; device < devices; ++device) spec->mutable_groups(0)->add_devices(device);
  return step;
}

}  // namespace xlad::runtime
