// The library op attention on a GPU, by the kernels of gpu_attention_kernels.c.
#pragma once

#include <cstdint>
#include <memory>

#include "proto/executable.pb.h"
#include "runtime/devices/cuda/cuda_module.h"
#include "runtime/devices/cuda/cuda_stream.h"

namespace xlad::runtime::cuda {

// One op, prepared for a GPU. Thread-safe.
class GpuAttention {
 public:
  // Returns null if the op is larger than the kernels allow (XLAD_ATTENTION_ARRAYS and others), so that the host must
  // compute it. InvalidArgument if the op is not consistent. `module` is the module of Kernels() and must outlive the
  // result.
  static absl::StatusOr<std::unique_ptr<GpuAttention>> Make(std::shared_ptr<const Gpu> gpu, const CudaModule& module,
                                                            const AttentionOp& op);
  // The PTX of the kernels.
  static const char* Kernels();
  ~GpuAttention();

  int64_t scratch_bytes() const { return scratch_bytes_; }
  // Enqueues the op. `buffers` are the addresses of the operands, then of the results. `scratch` has scratch_bytes
  // bytes of device memory, which no other stream may use meanwhile.
  absl::Status Run(CudaStream* stream, absl::Span<void* const> buffers, DevicePointer scratch) const;

 private:
  explicit GpuAttention(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}

  const std::shared_ptr<const Gpu> gpu_;
  FunctionHandle kernel_ = nullptr;
  FunctionHandle sums_kernel_ = nullptr;  // Null if no result is a sum over rows.
  DevicePointer problem_ = 0;
  unsigned blocks_ = 1, sums_blocks_ = 1;
  int64_t scratch_bytes_ = 0;
};

}  // namespace xlad::runtime::cuda
