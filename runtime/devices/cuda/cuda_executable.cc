#include "runtime/devices/cuda/cuda_executable.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/kernel_abi.h"
#include "runtime/devices/cuda/cuda_graphs.h"
#include "runtime/devices/cuda/cuda_module.h"
#include "runtime/devices/cuda/cuda_stream.h"
#include "runtime/devices/cuda/library_ops.h"
#include "runtime/devices/cuda/ptx_kernels.h"
#include "runtime/index_text.h"

namespace xlad::runtime::cuda {
namespace {

struct CudaKernel {
  std::string name;
  FunctionHandle function = nullptr;
  PtxKernel form;
};

class CudaExecutable final : public LoadedExecutable {
 public:
  CudaExecutable(std::shared_ptr<const Gpu> gpu, Executable executable)
      : gpu_(std::move(gpu)), executable_(std::move(executable)) {}

  absl::Status Prepare(std::shared_ptr<const CublasLtContext> products) {
    if (!executable_.object_code().empty()) {
      XLAD_ASSIGN_OR_RETURN(forms_, ListPtxKernels(executable_.object_code()));
      XLAD_ASSIGN_OR_RETURN(module_, CudaModule::Load(gpu_, executable_.object_code(), executable_.name()));
    }
    XLAD_ASSIGN_OR_RETURN(ops_, LibraryOps::Load(gpu_, std::move(products), executable_));
    return absl::OkStatus();
  }

  const Executable& executable() const override { return executable_; }

  // Copies between ranges that overlap need the host.
  bool CanGroup(const Step& step) const override {
    if (!gpu_->driver().no_graphs.empty()) return false;
    if (step.has_library()) return !ops_->IsOnHost(step.library().op());
    if (!step.has_copy()) return step.has_kernel();
    const BufferSlice &from = step.copy().from(), &to = step.copy().to();
    return from.allocation() != to.allocation() || from.offset() + from.bytes() <= to.offset() ||
           to.offset() + to.bytes() <= from.offset();
  }

  absl::StatusOr<int> FindKernel(absl::string_view symbol) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = numbers_.find(std::string(symbol));
    if (found != numbers_.end()) return found->second;
    const auto form = forms_.find(std::string(symbol));
    if (form == forms_.end()) {
      return absl::NotFoundError(
          absl::StrCat("executable '", executable_.name(), "': its object code has no kernel '", symbol, "'"));
    }
    XLAD_ASSIGN_OR_RETURN(const FunctionHandle function, module_->Find(form->first));
    kernels_.push_back({form->first, function, form->second});
    const int number = std::ssize(kernels_) - 1;
    numbers_[form->first] = number;
    return number;
  }

  absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(int32_t partition_id, Stream* stream) const override;

  // Kernels by number. This is a copy, so that RunKernel does not need a lock.
  std::vector<CudaKernel> Kernels() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return kernels_;
  }
  const LibraryOps& ops() const { return *ops_; }

 private:
  const std::shared_ptr<const Gpu> gpu_;
  const Executable executable_;
  std::map<std::string, PtxKernel> forms_;
  std::unique_ptr<CudaModule> module_;
  std::unique_ptr<LibraryOps> ops_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, int> numbers_;
  mutable std::vector<CudaKernel> kernels_;
};

class CudaLauncher final : public Launcher {
 public:
  CudaLauncher(const CudaExecutable* executable, CudaStream* stream)
      : executable_(*executable), stream_(*stream), ops_(&executable->ops(), stream), graphs_(stream) {}
  // Enqueued work may still read the memory that is freed here.
  ~CudaLauncher() override {
    stream_.Synchronize().IgnoreError();
    if (api_ != 0) stream_.gpu().Free(api_);
  }

  // Allocates memory for library ops, and writes the only part of the kernel ABI that these kernels read: the
  // partition.
  absl::Status Prepare(int32_t partition_id) {
    XLAD_RETURN_IF_ERROR(ops_.Prepare());
    XladKernelApi api = {};
    api.partition_id = partition_id;
    XLAD_ASSIGN_OR_RETURN(api_, stream_.gpu().Allocate(sizeof(api)));
    return stream_.CopyToDevice(reinterpret_cast<void*>(api_), {reinterpret_cast<const std::byte*>(&api), sizeof(api)});
  }

  absl::Status RunKernel(int kernel, absl::Span<void* const> buffers, void* scratch, int64_t tiles) override {
    if (kernel >= std::ssize(kernels_)) kernels_ = executable_.Kernels();
    if (kernel < 0 || kernel >= std::ssize(kernels_)) {
      return absl::InvalidArgumentError(absl::StrCat("found kernel number ", kernel, ", expected one from FindKernel"));
    }
    const CudaKernel& found = kernels_[kernel];
    if (tiles < 1 || tiles > INT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat("kernel '", found.name, "': found ", tiles,
                                                     " tiles, expected 1 to ", INT32_MAX,
                                                     ", the blocks of a GPU's grid"));
    }
    if (std::ssize(buffers) + 2 != found.form.parameters) {
      return absl::InvalidArgumentError(absl::StrCat("kernel '", found.name, "': found ", buffers.size(),
                                                     " buffers, expected ", found.form.parameters - 2));
    }
    return Launch(found, buffers, scratch, tiles);
  }

  absl::Status RunLibraryOp(int op, absl::Span<void* const> buffers) override {
    const LibraryOps& ops = executable_.ops();
    if (op < 0 || op >= ops.count()) {
      return absl::InvalidArgumentError(absl::StrCat("found library op ", op, ", expected ", IndexText(ops.count())));
    }
    if (buffers.size() != ops.buffer_count(op)) {
      return absl::InvalidArgumentError(
          absl::StrCat("library op ", op, ": found ", buffers.size(), " buffers, expected ", ops.buffer_count(op)));
    }
    return ops_.Run(op, buffers);
  }

  absl::StatusOr<bool> BeginGroup(const StepGroup& group) override { return graphs_.Begin(group); }
  absl::StatusOr<bool> EndGroup(const absl::Status& enqueued) override { return graphs_.End(enqueued); }

 private:
  absl::Status Launch(const CudaKernel& kernel, absl::Span<void* const> buffers, void* scratch, unsigned blocks) {
    stream_.SetLast(kernel.name);
    XLAD_RETURN_IF_ERROR(stream_.Begin());
    std::vector<void*> parameters(buffers.begin(), buffers.end());
    parameters.push_back(scratch);
    parameters.push_back(reinterpret_cast<void*>(api_));
    return stream_.Launch(kernel.function, {blocks, static_cast<unsigned>(kernel.form.threads)}, std::move(parameters));
  }

  const CudaExecutable& executable_;
  CudaStream& stream_;
  LibraryOpsLauncher ops_;
  CudaGraphs graphs_;
  DevicePointer api_ = 0;
  std::vector<CudaKernel> kernels_;
};

absl::StatusOr<std::unique_ptr<Launcher>> CudaExecutable::MakeLauncher(int32_t partition_id, Stream* stream) const {
  auto* const cuda_stream = dynamic_cast<CudaStream*>(stream);
  if (cuda_stream == nullptr) {
    return absl::InvalidArgumentError("cuda: found a stream of another kind of device, expected one of this kind");
  }
  auto launcher = std::make_unique<CudaLauncher>(this, cuda_stream);
  XLAD_RETURN_IF_ERROR(launcher->Prepare(partition_id));
  return launcher;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedExecutable>> LoadPtx(std::shared_ptr<const Gpu> gpu,
                                                          std::shared_ptr<const CublasLtContext> products,
                                                          Executable executable) {
  if (executable.kernel_abi_version() != XLAD_KERNEL_ABI_VERSION) {
    return absl::InvalidArgumentError(absl::StrCat("executable '", executable.name(), "': found kernel ABI version ",
                                                   executable.kernel_abi_version(), ", expected ",
                                                   XLAD_KERNEL_ABI_VERSION));
  }
  auto loaded = std::make_unique<CudaExecutable>(std::move(gpu), std::move(executable));
  XLAD_RETURN_IF_ERROR(loaded->Prepare(std::move(products)));
  return loaded;
}

}  // namespace xlad::runtime::cuda
