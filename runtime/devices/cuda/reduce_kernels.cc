#include "runtime/devices/cuda/reduce_kernels.h"

#include <climits>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rounding.h"
#include "collectives/exec/device/reduce_code.h"
#include "runtime/devices/cuda/cuda_stream.h"

XLAD_EMBED_PTX(xlad_reduce_kernels, XLAD_REDUCE_KERNELS);  // The PTX of reduce_kernels.c.

namespace xlad::runtime::cuda {

absl::StatusOr<std::shared_ptr<const CudaModule>> ReduceKernelsOf(const std::shared_ptr<const Gpu>& gpu) {
  // A module keeps its Gpu, so no other Gpu can have the address of one whose module exists.
  static std::mutex mutex;
  static auto* const modules = new std::map<const Gpu*, std::weak_ptr<const CudaModule>>();
  const std::lock_guard<std::mutex> lock(mutex);
  if (std::shared_ptr<const CudaModule> module = (*modules)[gpu.get()].lock()) return module;
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<CudaModule> loaded,
                        CudaModule::Load(gpu, xlad_reduce_kernels, "reduce_kernels"));
  const std::shared_ptr<const CudaModule> module = std::move(loaded);
  (*modules)[gpu.get()] = module;
  return module;
}

// All devices that open a GPU in this process have one context of the driver, and so one memory.
std::string CudaStream::memory_name() const { return absl::StrCat("cuda ", gpu_->name()); }

absl::StatusOr<std::shared_ptr<std::byte>> CudaStream::AllocateDevice(int64_t bytes) {
  XLAD_RETURN_IF_ERROR(Begin());
  XLAD_ASSIGN_OR_RETURN(const DevicePointer address, gpu_->Allocate(bytes));
  return std::shared_ptr<std::byte>(reinterpret_cast<std::byte*>(address),
                                    [gpu = gpu_, address](std::byte*) { gpu->Free(address); });
}

bool CudaStream::CanReduce(const collectives::DeviceReduction& reduction) const {
  return collectives::KernelReductionOf(reduction).has_value();
}

absl::Status CudaStream::Reduce(const collectives::DeviceReduction& reduction, void* to,
                                absl::Span<const void* const> sources, int64_t count) {
  XLAD_ASSIGN_OR_RETURN(const collectives::KernelReduction kernel,
                        collectives::CheckedKernelReduction(reduction, sources.size(), count));
  XLAD_RETURN_IF_ERROR(Begin());
  if (count == 0) return absl::OkStatus();
  if (reduce_kernels_ == nullptr) {
    XLAD_ASSIGN_OR_RETURN(reduce_kernels_, ReduceKernelsOf(gpu_));
  }
  XLAD_ASSIGN_OR_RETURN(const FunctionHandle function, reduce_kernels_->Find("xlad_reduce"));
  const int64_t numbers = count * kernel.numbers_per_element, blocks = CeilDiv(numbers, XLAD_REDUCE_THREADS);
  if (blocks > INT_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("cuda: found a reduction of ", count, " elements, expected at most ",
                                                   int64_t{INT_MAX} * XLAD_REDUCE_THREADS / kernel.numbers_per_element,
                                                   "; divide the arrays"));
  }
  std::vector<void*> parameters = {to, reinterpret_cast<void*>(numbers),
                                   reinterpret_cast<void*>(XladReduceCode(kernel.what))};
  for (const void* const source : sources) parameters.push_back(const_cast<void*>(source));
  parameters.resize(3 + XLAD_REDUCE_SOURCES);
  SetLast("a reduction of a collective");
  return Launch(function, {static_cast<unsigned>(blocks), XLAD_REDUCE_THREADS}, std::move(parameters));
}

}  // namespace xlad::runtime::cuda
