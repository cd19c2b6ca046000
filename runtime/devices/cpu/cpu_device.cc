#include "runtime/devices/cpu/cpu_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/kernel_abi.h"
#include "base/rounding.h"
#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/cpu/library_op.h"
#include "runtime/devices/cpu/matrix_code.h"
#include "runtime/devices/cpu/object_loader.h"
#include "runtime/index_text.h"

namespace xlad::runtime {
namespace {

constexpr char kName[] = "cpu";

class CpuMemory final : public DeviceMemory {
 public:
  CpuMemory(void* address, int64_t bytes) : address_(address), bytes_(bytes) {}
  ~CpuMemory() override { std::free(address_); }
  void* address() const override { return address_; }
  int64_t bytes() const override { return bytes_; }

 private:
  void* address_;
  int64_t bytes_;
};

absl::StatusOr<std::unique_ptr<DeviceMemory>> AllocateMemory(int64_t bytes) {
  constexpr int64_t kMaxBytes = int64_t{1} << 46;
  void* address = nullptr;
  // At least one cache line, so that even allocations of 0 bytes have different addresses.
  const size_t size = RoundUp(bytes > 0 ? bytes : 1, XLAD_BUFFER_ALIGNMENT);
  if (bytes < 0 || bytes > kMaxBytes || posix_memalign(&address, XLAD_BUFFER_ALIGNMENT, size) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cpu: cannot allocate ", bytes, " bytes"));
  }
  return std::make_unique<CpuMemory>(address, bytes);
}

// An event that is always done, because work of the cpu device has finished when the call that enqueues it returns.
class CpuEvent final : public Event {
 public:
  explicit CpuEvent(absl::Status status) : status_(std::move(status)) {}
  bool IsDone() const override { return true; }
  absl::Status Wait() const override { return status_; }

 private:
  const absl::Status status_;
};

// Copies and fills of at least twice this many bytes are divided into parts, which several threads work on.
constexpr int64_t kMinBytesOfPart = 256 << 10;

class CpuStream final : public Stream {
 public:
  explicit CpuStream(int threads) : team_(threads) {}
  bool host_can_access() const override { return true; }
  absl::Status CopyToDevice(void* to, absl::Span<const std::byte> from) override {
    return Copy(to, from.data(), std::ssize(from));
  }
  absl::Status CopyToHost(absl::Span<std::byte> to, const void* from) override {
    return Copy(to.data(), from, std::ssize(to));
  }
  absl::Status Copy(void* to, const void* from, int64_t bytes) override {
    XLAD_RETURN_IF_ERROR(CheckBytes("cpu", bytes));
    if (bytes == 0 || to == from) return absl::OkStatus();
    std::byte* const target = static_cast<std::byte*>(to);
    const std::byte* const source = static_cast<const std::byte*>(from);
    const bool overlap = target < source + bytes && source < target + bytes;
    ForParts(overlap ? 1 : bytes / kMinBytesOfPart, bytes,
             [&](int64_t begin, int64_t end) { std::memmove(target + begin, source + begin, end - begin); });
    return absl::OkStatus();
  }
  absl::Status FillZero(void* to, int64_t bytes) override {
    XLAD_RETURN_IF_ERROR(CheckBytes("cpu", bytes));
    ForParts(bytes / kMinBytesOfPart, bytes, [&](int64_t begin, int64_t end) {
      if (end > begin) std::memset(static_cast<std::byte*>(to) + begin, 0, end - begin);
    });
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Event>> Record() override { return std::make_unique<CpuEvent>(status_); }
  absl::Status WaitFor(const Event& event) override {
    if (dynamic_cast<const CpuEvent*>(&event) != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError("cpu: found an event of another kind of device, expected one of this kind");
  }
  absl::Status Synchronize() override { return status_; }

  // Keeps the first error.
  absl::Status Note(absl::Status status) {
    if (status_.ok()) status_ = status;
    return status;
  }
  ThreadTeam& team() { return team_; }

 private:
  // Calls work(begin, end) for at most `parts` ranges that together are 0 .. bytes-1. Each `begin` is a multiple of
  // XLAD_BUFFER_ALIGNMENT.
  template <typename Work>
  void ForParts(int64_t parts, int64_t bytes, const Work& work) {
    parts = std::max<int64_t>(1, parts);
    const int64_t step = RoundUp(CeilDiv(bytes, parts), XLAD_BUFFER_ALIGNMENT);
    team_.Run(parts, [&](int, int64_t begin, int64_t end) {
      work(std::min(bytes, begin * step), std::min(bytes, end * step));
      return 0;
    });
  }

  ThreadTeam team_;
  absl::Status status_;
};

class CpuExecutable final : public LoadedExecutable {
 public:
  static absl::StatusOr<std::unique_ptr<CpuExecutable>> Load(Executable executable,
                                                             absl::Span<const ProvidedFunction> more) {
    if (executable.kernel_abi_version() != XLAD_KERNEL_ABI_VERSION) {
      return absl::InvalidArgumentError(absl::StrCat("executable '", executable.name(), "': found kernel ABI version ",
                                                     executable.kernel_abi_version(), ", expected ",
                                                     XLAD_KERNEL_ABI_VERSION));
    }
    auto loaded = std::make_unique<CpuExecutable>(std::move(executable));
    XLAD_RETURN_IF_ERROR(loaded->Prepare(more));
    return loaded;
  }

  explicit CpuExecutable(Executable executable) : executable_(std::move(executable)) {}

  const Executable& executable() const override { return executable_; }

  absl::StatusOr<int> FindKernel(absl::string_view symbol) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = numbers_.find(std::string(symbol));
    if (found != numbers_.end()) return found->second;
    if (object_ == nullptr) {
      return absl::NotFoundError("executable '" + executable_.name() +
                                 "': found no object code, expected it to have kernel '" + std::string(symbol) + "'");
    }
    XLAD_ASSIGN_OR_RETURN(const XladKernel kernel, object_->Find(symbol));
    kernels_.push_back(kernel);
    const int number = std::ssize(kernels_) - 1;
    numbers_[std::string(symbol)] = number;
    return number;
  }

  absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(int32_t partition_id, Stream* stream) const override;

  // Kernels by number. This is a copy, so that RunKernel does not need a lock.
  std::vector<XladKernel> Kernels() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return kernels_;
  }
  const std::vector<std::unique_ptr<PreparedLibraryOp>>& ops() const { return ops_; }

 private:
  absl::Status Prepare(absl::Span<const ProvidedFunction> more) {
    if (!executable_.object_code().empty()) {
      XLAD_ASSIGN_OR_RETURN(object_, LoadedObject::Load(executable_.object_code(), more));
    }
    for (int i = 0; i < executable_.library_ops_size(); ++i) {
      absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> op = PrepareLibraryOp(executable_.library_ops(i));
      if (!op.ok()) return Annotate(op.status(), absl::StrCat("executable '", executable_.name(), "', op ", i));
      ops_.push_back(*std::move(op));
    }
    matrix_code_->OnLoad(std::any_of(ops_.begin(), ops_.end(), [](const auto& op) { return op->needs_matrix_code(); }));
    return absl::OkStatus();
  }

  const std::shared_ptr<MatrixCode> matrix_code_ = MatrixCodeOfProcess();
  Executable executable_;
  std::unique_ptr<LoadedObject> object_;
  std::vector<std::unique_ptr<PreparedLibraryOp>> ops_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, int> numbers_;
  mutable std::vector<XladKernel> kernels_;
};

class CpuLauncher final : public Launcher {
 public:
  CpuLauncher(const CpuExecutable* executable, int32_t partition_id, CpuStream* stream)
      : executable_(*executable), stream_(*stream) {
    api_.run_library_op = [](const XladKernelApi* api, int32_t op, void* const* arguments) -> int32_t {
      auto* self = static_cast<CpuLauncher*>(api->runtime);
      const auto& ops = self->executable_.ops();
      const size_t count = op >= 0 && op < std::ssize(ops) ? ops[op]->buffer_count() : 0;
      self->failure_ = self->RunLibraryOp(op, absl::MakeConstSpan(arguments, count));
      return self->failure_.ok() ? XLAD_KERNEL_OK : XLAD_KERNEL_LIBRARY_OP_FAILED;
    };
    api_.run_tiles = [](const XladKernelApi* api, XladKernel kernel, void* const* buffers, void* scratch,
                        int64_t tiles) {
      return static_cast<CpuLauncher*>(api->runtime)->RunTiles(kernel, buffers, scratch, tiles);
    };
    api_.partition_id = partition_id;
    api_.runtime = this;
  }

  absl::Status Prepare() {
    int64_t scratch = 0;
    for (const std::unique_ptr<PreparedLibraryOp>& op : executable_.ops()) {
      XLAD_ASSIGN_OR_RETURN(std::unique_ptr<LibraryCall> call, op->MakeCall(stream_.team().threads()));
      calls_.push_back(std::move(call));
      scratch = std::max(scratch, op->scratch_bytes(stream_.team().threads()));
    }
    XLAD_ASSIGN_OR_RETURN(scratch_, AllocateMemory(scratch));
    return absl::OkStatus();
  }

  absl::Status RunKernel(int kernel, absl::Span<void* const> buffers, void* scratch, int64_t tiles) override {
    if (tiles < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("kernel ", kernel, ": found ", tiles, " tiles, expected 1 or more"));
    }
    if (kernel < 0) return UnknownKernel(kernel);
    if (kernel >= std::ssize(kernels_)) kernels_ = executable_.Kernels();
    if (kernel >= std::ssize(kernels_)) return UnknownKernel(kernel);
    const int32_t code = RunTiles(kernels_[kernel], buffers.data(), scratch, tiles);
    if (code == XLAD_KERNEL_OK) return absl::OkStatus();
    if (code == XLAD_KERNEL_LIBRARY_OP_FAILED && !failure_.ok()) return stream_.Note(failure_);
    return stream_.Note(absl::InternalError(absl::StrCat("kernel ", kernel, " failed with code ", code)));
  }

  absl::Status RunLibraryOp(int op, absl::Span<void* const> buffers) override {
    if (op < 0 || op >= std::ssize(calls_)) {
      return absl::InvalidArgumentError(
          absl::StrCat("found library op ", op, ", expected ", IndexText(std::ssize(calls_))));
    }
    const size_t count = executable_.ops()[op]->buffer_count();
    if (buffers.size() != count) {
      return absl::InvalidArgumentError(
          absl::StrCat("library op ", op, ": found ", buffers.size(), " buffers, expected ", count));
    }
    const absl::Status status = calls_[op]->Run(buffers, scratch_->address(), stream_.team());
    return status.ok() ? status : stream_.Note(status);
  }

 private:
  int32_t RunTiles(XladKernel kernel, void* const* buffers, void* scratch, int64_t tiles) {
    if (tiles == 1) return kernel(buffers, scratch, &api_, 0, 1);
    return stream_.team().Run(tiles, [&](int, int64_t begin, int64_t end) {
      return kernel(buffers, scratch, &api_, begin, end);
    });
  }
  static absl::Status UnknownKernel(int kernel) {
    return absl::InvalidArgumentError(absl::StrCat("found kernel number ", kernel, ", expected one from FindKernel"));
  }

  const CpuExecutable& executable_;
  CpuStream& stream_;
  XladKernelApi api_;
  std::vector<XladKernel> kernels_;
  std::vector<std::unique_ptr<LibraryCall>> calls_;
  std::unique_ptr<DeviceMemory> scratch_;
  absl::Status failure_;
};

absl::StatusOr<std::unique_ptr<Launcher>> CpuExecutable::MakeLauncher(int32_t partition_id, Stream* stream) const {
  auto* const cpu_stream = dynamic_cast<CpuStream*>(stream);
  if (cpu_stream == nullptr) {
    return absl::InvalidArgumentError("cpu: found a stream of another kind of device, expected one of this kind");
  }
  auto launcher = std::make_unique<CpuLauncher>(this, partition_id, cpu_stream);
  XLAD_RETURN_IF_ERROR(launcher->Prepare());
  return launcher;
}

class CpuDevice final : public Device {
 public:
  std::string Name() const override { return kName; }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes, MemoryKind kind) override {
    if (MemoryKind_IsValid(kind)) return AllocateMemory(bytes);
    return absl::InvalidArgumentError(
        absl::StrCat("cpu: found memory kind ", kind, ", expected device or pinned_host"));
  }
  using Device::MakeStream;
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(int threads) override {
    return std::make_unique<CpuStream>(threads);
  }
  absl::StatusOr<std::unique_ptr<LoadedExecutable>> Load(Executable executable) override {
    XLAD_RETURN_IF_ERROR(CheckTarget(executable, kName));
    return LoadNativeCode(std::move(executable));
  }

 private:
  // The wait for a program begins when the process makes a device.
  const std::shared_ptr<MatrixCode> matrix_code_ = MatrixCodeOfProcess();
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedExecutable>> LoadNativeCode(Executable executable,
                                                                 absl::Span<const ProvidedFunction> more) {
  return CpuExecutable::Load(std::move(executable), more);
}

std::unique_ptr<Device> MakeCpuDevice() { return std::make_unique<CpuDevice>(); }

DeviceKind CpuDeviceKind() {
  return {kName,
          "this machine's CPU: native code, its cores divided among the logical shards",
          {},
          {MEMORY_DEVICE, MEMORY_PINNED_HOST},
          [] { return absl::OkStatus(); },
          [](const std::string&) { return HostTarget(kName); },
          [](const std::string&) -> absl::StatusOr<std::unique_ptr<Device>> { return MakeCpuDevice(); }};
}

}  // namespace xlad::runtime
