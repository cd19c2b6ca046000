#include "runtime/devices/gpu_sim/gpu_sim_device.h"

#include <memory>
#include <string>
#include <utility>

#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/gpu_sim/access_checker.h"
#include "runtime/devices/opaque/opaque_device.h"

namespace xlad::runtime {
namespace {

constexpr char kName[] = "gpu_sim", kCheckedName[] = "gpu_sim_checked";

absl::StatusOr<std::unique_ptr<LoadedExecutable>> LoadPlain(Executable executable) {
  return LoadNativeCode(std::move(executable));
}

// Runs every kernel on the calling thread, under an AccessChecker.
class CheckedLauncher final : public Launcher {
 public:
  CheckedLauncher(std::unique_ptr<Stream> stream, std::unique_ptr<Launcher> native)
      : stream_(std::move(stream)), native_(std::move(native)) {}

  absl::Status RunKernel(int kernel, absl::Span<void* const> buffers, void* scratch, int64_t tiles) override {
    AccessChecker checker;
    checker.Begin();
    const absl::Status status = native_->RunKernel(kernel, buffers, scratch, tiles);
    const LaunchReport report = checker.End();
    if (!status.ok() || report.error == AccessError::kNone) return status;
    return absl::InternalError("gpu_sim_checked: " + report.message);
  }
  absl::Status RunLibraryOp(int op, absl::Span<void* const> buffers) override {
    return native_->RunLibraryOp(op, buffers);
  }

 private:
  // The stream has one thread, because all tiles must run on the calling thread.
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Launcher> native_;
};

class CheckedExecutable final : public LoadedExecutable {
 public:
  explicit CheckedExecutable(std::unique_ptr<LoadedExecutable> native) : native_(std::move(native)) {}
  const Executable& executable() const override { return native_->executable(); }
  absl::StatusOr<int> FindKernel(absl::string_view symbol) const override { return native_->FindKernel(symbol); }
  absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(int32_t partition_id, Stream*) const override {
    XLAD_ASSIGN_OR_RETURN(auto stream, cpu_->MakeStream(1));
    XLAD_ASSIGN_OR_RETURN(auto native, native_->MakeLauncher(partition_id, stream.get()));
    return std::make_unique<CheckedLauncher>(std::move(stream), std::move(native));
  }

 private:
  const std::unique_ptr<LoadedExecutable> native_;
  const std::unique_ptr<Device> cpu_ = MakeCpuDevice();
};

absl::StatusOr<std::unique_ptr<LoadedExecutable>> LoadChecked(Executable executable) {
  XLAD_ASSIGN_OR_RETURN(auto native, LoadNativeCode(std::move(executable), AccessChecker::Functions()));
  return std::make_unique<CheckedExecutable>(std::move(native));
}

}  // namespace

DeviceKind GpuSimDeviceKind() {
  return {kName,
          "code for NVIDIA GPUs, run on this machine's CPU",
          {},
          {MEMORY_DEVICE, MEMORY_PINNED_HOST},
          [] { return MakeOpaqueDevice(kName, LoadPlain).status(); },
          [](const std::string&) { return HostTarget(kName); },
          [](const std::string&) { return MakeOpaqueDevice(kName, LoadPlain, /*runs_schedules=*/true); }};
}

DeviceKind GpuSimCheckedDeviceKind() {
  return {kCheckedName,
          "gpu_sim with every memory access checked for races and other errors; for tests",
          {},
          {MEMORY_DEVICE, MEMORY_PINNED_HOST},
          [] { return MakeOpaqueDevice(kCheckedName, LoadChecked).status(); },
          [](const std::string&) { return HostTarget(kCheckedName); },
          [](const std::string&) { return MakeOpaqueDevice(kCheckedName, LoadChecked, /*runs_schedules=*/true); }};
}

}  // namespace xlad::runtime
