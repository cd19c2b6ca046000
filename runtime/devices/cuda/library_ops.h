// Library ops on a GPU. cuBLASLt computes matrix products if it is used and can. The kernels of library_kernels.c
// compute other matrix products and convolutions, and the kernels of gpu_attention_kernels.c compute attention. The
// host computes all other ops, and those that the kernels do not support, in the same way as the cpu device, on copies
// of their operands.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/executable.pb.h"
#include "runtime/device.h"
#include "runtime/devices/cpu/library_op.h"
#include "runtime/devices/cuda/cublaslt_dot.h"
#include "runtime/devices/cuda/cuda_module.h"
#include "runtime/devices/cuda/cuda_stream.h"
#include "runtime/devices/cuda/gpu_attention.h"

namespace xlad::runtime::cuda {

// The library ops of an executable. Thread-safe.
class LibraryOps {
 public:
  // `products` is null if cuBLASLt is not used. Returns the errors of PrepareLibraryOp, of the GPU and of cuBLASLt,
  // with the number of the op.
  static absl::StatusOr<std::unique_ptr<LibraryOps>> Load(std::shared_ptr<const Gpu> gpu,
                                                          std::shared_ptr<const CublasLtContext> products,
                                                          const Executable& executable);
  ~LibraryOps();

  int64_t count() const { return std::ssize(ops_); }
  size_t buffer_count(int op) const { return ops_[op].host->buffer_count(); }
  // Whether the host computes the op.
  bool IsOnHost(int op) const {
    return ops_[op].product == nullptr && ops_[op].attention == nullptr && ops_[op].kernel == nullptr;
  }

 private:
  friend class LibraryOpsLauncher;
  struct Buffer {
    int64_t bytes = 0;
    bool is_result = false;
    bool has_gaps = false;  // True for a result of which the op may leave parts unwritten.
  };
  struct Op {
    std::unique_ptr<PreparedLibraryOp> host;
    std::vector<Buffer> buffers;
    std::unique_ptr<CublasLtDot> product;     // Null if cuBLASLt does not compute the op.
    std::unique_ptr<GpuAttention> attention;  // Null if the op is not attention, or the host computes it.
    FunctionHandle kernel = nullptr;          // Null if one of the above or the host computes the op.
    DevicePointer problem = 0;
    unsigned blocks = 1, threads = 1;
  };

  LibraryOps(std::shared_ptr<const Gpu> gpu, std::shared_ptr<const CublasLtContext> products)
      : gpu_(std::move(gpu)), products_(std::move(products)) {}
  absl::Status Add(const LibraryOp& op);
  template <typename Problem>
  absl::Status SetKernel(const std::string& kernel, const Problem& problem, Op* op);
  absl::Status PlanDot(const DotOp& dot, Op* op);
  absl::Status PlanConvolution(const ConvolutionOp& convolution, Op* op);
  absl::Status PlanAttention(const AttentionOp& attention, Op* op);

  const std::shared_ptr<const Gpu> gpu_;
  const std::shared_ptr<const CublasLtContext> products_;
  std::unique_ptr<CudaModule> kernels_, attention_kernels_;  // Each is loaded for the first op that needs it.
  std::vector<Op> ops_;
  int64_t workspace_bytes_ = 0;  // The largest workspace of a product or of attention.
};

// Runs library ops on a stream. Used by one thread at a time.
class LibraryOpsLauncher {
 public:
  LibraryOpsLauncher(const LibraryOps* ops, CudaStream* stream) : ops_(*ops), stream_(*stream) {}
  // The caller must have waited for the stream.
  ~LibraryOpsLauncher();
  // Allocates the workspace that all products and all attention ops of the stream share.
  absl::Status Prepare();
  // The caller must have checked `op` and the number of buffers.
  absl::Status Run(int op, absl::Span<void* const> buffers);

 private:
  absl::Status RunKernel(const LibraryOps::Op& op, absl::Span<void* const> buffers);
  absl::Status RunOnHost(const LibraryOps::Op& op, absl::Span<void* const> buffers);

  const LibraryOps& ops_;
  CudaStream& stream_;
  DevicePointer workspace_ = 0;
  std::unique_ptr<ThreadTeam> team_;
};

}  // namespace xlad::runtime::cuda
