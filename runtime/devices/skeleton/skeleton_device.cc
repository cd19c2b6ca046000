#include "runtime/devices/skeleton/skeleton_device.h"

#include <string>

#include "runtime/devices/cpu/host_target.h"

namespace xlad::runtime {
namespace {

constexpr char kName[] = "skeleton";

absl::Status Unimplemented(const char* method) {
  return absl::UnimplementedError(std::string(kName) + ": found a call of " + method + ", expected its implementation");
}

// Device memory. Only code of this folder may access it by its address.
class SkeletonMemory final : public DeviceMemory {
 public:
  void* address() const override { return nullptr; }
  int64_t bytes() const override { return 0; }
};

// A queue of work. host_can_access must return true if the host can access device memory by its addresses.
class SkeletonStream final : public Stream {
 public:
  bool host_can_access() const override { return false; }
  absl::Status CopyToDevice(void*, absl::Span<const std::byte>) override { return Unimplemented("CopyToDevice"); }
  absl::Status CopyToHost(absl::Span<std::byte>, const void*) override { return Unimplemented("CopyToHost"); }
  absl::Status Copy(void*, const void*, int64_t) override { return Unimplemented("Copy"); }
  absl::Status FillZero(void*, int64_t) override { return Unimplemented("FillZero"); }
  absl::StatusOr<std::unique_ptr<Event>> Record() override { return Unimplemented("Record"); }
  absl::Status WaitFor(const Event&) override { return Unimplemented("WaitFor"); }
  absl::Status Synchronize() override { return Unimplemented("Synchronize"); }
};

class SkeletonLauncher final : public Launcher {
 public:
  absl::Status RunKernel(int, absl::Span<void* const>, void*, int64_t) override {
    return Unimplemented("RunKernel");
  }
  absl::Status RunLibraryOp(int, absl::Span<void* const>) override { return Unimplemented("RunLibraryOp"); }
};

class SkeletonExecutable final : public LoadedExecutable {
 public:
  explicit SkeletonExecutable(Executable executable) : executable_(std::move(executable)) {}
  const Executable& executable() const override { return executable_; }
  absl::StatusOr<int> FindKernel(absl::string_view) const override { return Unimplemented("FindKernel"); }
  absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(int32_t, Stream*) const override {
    return std::make_unique<SkeletonLauncher>();
  }

 private:
  const Executable executable_;
};

class SkeletonDevice final : public Device {
 public:
  std::string Name() const override { return kName; }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t, MemoryKind) override {
    return std::make_unique<SkeletonMemory>();
  }
  using Device::MakeStream;
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(int) override { return std::make_unique<SkeletonStream>(); }
  absl::StatusOr<std::unique_ptr<LoadedExecutable>> Load(Executable executable) override {
    XLAD_RETURN_IF_ERROR(CheckTarget(executable, kName));
    return std::make_unique<SkeletonExecutable>(std::move(executable));
  }
};

}  // namespace

DeviceKind SkeletonDeviceKind() {
  return {
      kName,
      "a device that implements nothing",
      {},
      {MEMORY_DEVICE},
      [] { return absl::OkStatus(); },
      // The target of this machine's native code. A kind that runs other code states the triple, CPU and features
      // of that code.
      [](const std::string&) { return HostTarget(kName); },
      [](const std::string&) -> absl::StatusOr<std::unique_ptr<Device>> { return std::make_unique<SkeletonDevice>(); }};
}

}  // namespace xlad::runtime
