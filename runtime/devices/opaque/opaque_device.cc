#include "runtime/devices/opaque/opaque_device.h"

#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/opaque/opaque_heap.h"
#include "runtime/devices/opaque/opaque_stream.h"

namespace xlad::runtime {
namespace {

constexpr char kName[] = "opaque";

class OpaqueMemory final : public DeviceMemory {
 public:
  OpaqueMemory(std::shared_ptr<OpaqueHeap> heap, void* address, int64_t bytes)
      : heap_(std::move(heap)), address_(address), bytes_(bytes) {}
  ~OpaqueMemory() override { heap_->Free(address_); }
  void* address() const override { return address_; }
  int64_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<OpaqueHeap> heap_;
  void* const address_;
  const int64_t bytes_;
};

// Translates addresses when work is enqueued, and runs native code on the real addresses.
class OpaqueLauncher final : public Launcher {
 public:
  OpaqueLauncher(std::unique_ptr<Launcher> native, OpaqueStream* stream)
      : native_(std::move(native)), stream_(*stream) {}
  // Enqueued work refers to the native launcher.
  ~OpaqueLauncher() override { stream_.Synchronize().IgnoreError(); }

  absl::Status RunKernel(int kernel, absl::Span<void* const> buffers, void* scratch, int64_t tiles) override {
    if (tiles < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("kernel ", kernel, ": found ", tiles, " tiles, expected 1 or more"));
    }
    XLAD_ASSIGN_OR_RETURN(const Addresses real, Translate(buffers));
    void* real_scratch = nullptr;
    if (scratch != nullptr) {
      XLAD_ASSIGN_OR_RETURN(real_scratch, stream_.heap().TranslateBuffer(scratch));
    }
    return stream_.Enqueue(
        [this, kernel, real, real_scratch, tiles] {
          return native_->RunKernel(kernel, real, real_scratch, tiles);
        });
  }

  absl::Status RunLibraryOp(int op, absl::Span<void* const> buffers) override {
    XLAD_ASSIGN_OR_RETURN(const Addresses real, Translate(buffers));
    return stream_.Enqueue([this, op, real] { return native_->RunLibraryOp(op, real); });
  }

 private:
  using Addresses = absl::InlinedVector<void*, 16>;

  absl::StatusOr<Addresses> Translate(absl::Span<void* const> buffers) const {
    Addresses real;
    for (void* const buffer : buffers) {
      XLAD_ASSIGN_OR_RETURN(real.emplace_back(), stream_.heap().TranslateBuffer(buffer));
    }
    return real;
  }

  const std::unique_ptr<Launcher> native_;
  OpaqueStream& stream_;
};

class OpaqueExecutable final : public LoadedExecutable {
 public:
  OpaqueExecutable(std::string name, std::unique_ptr<LoadedExecutable> native)
      : name_(std::move(name)), native_(std::move(native)) {}
  const Executable& executable() const override { return native_->executable(); }
  absl::StatusOr<int> FindKernel(absl::string_view symbol) const override { return native_->FindKernel(symbol); }
  absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(int32_t partition_id, Stream* stream) const override {
    auto* const opaque = dynamic_cast<OpaqueStream*>(stream);
    if (opaque == nullptr || opaque->heap().device() != name_) {
      return absl::InvalidArgumentError(name_ +
                                        ": found a stream of another kind of device, expected one of this kind");
    }
    XLAD_ASSIGN_OR_RETURN(auto native, native_->MakeLauncher(partition_id, opaque->native()));
    return std::make_unique<OpaqueLauncher>(std::move(native), opaque);
  }

 private:
  const std::string name_;
  const std::unique_ptr<LoadedExecutable> native_;
};

class OpaqueDevice final : public Device {
 public:
  OpaqueDevice(std::shared_ptr<OpaqueHeap> heap, NativeLoader load, bool runs_schedules)
      : heap_(std::move(heap)), load_(std::move(load)), runs_schedules_(runs_schedules) {}
  std::string Name() const override { return heap_->device(); }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes, MemoryKind kind) override {
    if (!MemoryKind_IsValid(kind)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Name(), ": found memory kind ", kind, ", expected device or pinned_host"));
    }
    XLAD_ASSIGN_OR_RETURN(void* const address, heap_->Allocate(bytes, kind));
    return std::make_unique<OpaqueMemory>(heap_, address, bytes);
  }
  using Device::MakeStream;
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(int threads) override {
    XLAD_ASSIGN_OR_RETURN(auto native, cpu_->MakeStream(threads));
    return std::make_unique<OpaqueStream>(heap_, std::move(native), runs_schedules_);
  }
  absl::StatusOr<std::unique_ptr<LoadedExecutable>> Load(Executable executable) override {
    XLAD_RETURN_IF_ERROR(CheckTarget(executable, Name()));
    XLAD_ASSIGN_OR_RETURN(auto native, load_(std::move(executable)));
    return std::make_unique<OpaqueExecutable>(Name(), std::move(native));
  }

 private:
  const std::shared_ptr<OpaqueHeap> heap_;
  const NativeLoader load_;
  const bool runs_schedules_;
  const std::unique_ptr<Device> cpu_ = MakeCpuDevice();
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeOpaqueDevice() {
  return MakeOpaqueDevice(kName, [](Executable executable) { return LoadNativeCode(std::move(executable)); });
}

absl::StatusOr<std::unique_ptr<Device>> MakeOpaqueDevice(const std::string& name, NativeLoader load,
                                                         bool runs_schedules) {
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<OpaqueHeap> heap, OpaqueHeap::Make(name));
  return std::make_unique<OpaqueDevice>(std::move(heap), std::move(load), runs_schedules);
}

DeviceKind OpaqueDeviceKind() {
  return {kName,
          "the cpu device with memory that the host cannot access; for tests",
          {},
          {MEMORY_DEVICE, MEMORY_PINNED_HOST},
          [] { return OpaqueHeap::Make(kName).status(); },
          [](const std::string&) { return HostTarget(kName); },
          [](const std::string&) { return MakeOpaqueDevice(); }};
}

}  // namespace xlad::runtime
