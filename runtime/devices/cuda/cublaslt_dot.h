// Matrix products by cuBLASLt.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/executable.pb.h"
#include "runtime/devices/cpu/dot_shape.h"
#include "runtime/devices/cuda/cublaslt.h"
#include "runtime/devices/cuda/cuda_stream.h"

namespace xlad::runtime::cuda {

// A dot as calls of cuBLASLt. Thread-safe.
//
// The library's matrices are column-major, so it computes the transpose of the result from the transposes of the
// operands: A is rhs, B is lhs, and D is the result.
//
//   rhs [k, n], row-major   the column-major n x k matrix A
//   lhs [m, k], row-major   the column-major k x m matrix B
//   result [m, n]           the column-major n x m matrix D = A * B
//
// An operand whose dimensions are in the other order in memory has the flag "transpose". A call has one batch
// dimension; if the dot has more, there is a call for each index into the others.
//
// Operands of f32 are not rounded to TF32. Sums are in f64 for f64, in s32 for s8, and in f32 for other types. The
// algorithm is chosen by Plan: the library's first proposal for this problem among those whose results are
// reproducible. The library makes the same proposals for the same problem, version of the library, and GPU.
class CublasLtDot {
 public:
  // Returns null if the library cannot compute the dot or would need more than 256 calls for it. The reason can be its
  // element types, a size of 0 or one that is too large, operands that are not matrices, many batches in several
  // dimensions, or that the library proposes no algorithm.
  static absl::StatusOr<std::unique_ptr<CublasLtDot>> Plan(std::shared_ptr<const CublasLtContext> context,
                                                           const DotOp& dot);
  ~CublasLtDot();

  // The size of the device memory that Run needs.
  size_t workspace_bytes() const { return workspace_bytes_; }
  // Enqueues the product. `buffers` are lhs, rhs and result. `workspace` has workspace_bytes() bytes of device memory.
  absl::Status Run(absl::Span<void* const> buffers, void* workspace, CudaStream* stream) const;

 private:
  // The offsets of the matrices of a call, in bytes.
  struct Call {
    int64_t lhs = 0, rhs = 0, result = 0;
  };

  explicit CublasLtDot(std::shared_ptr<const CublasLtContext> context) : context_(std::move(context)) {}
  const CublasLt& library() const { return context_->library(); }
  absl::Status Describe(const DotOp& dot, const DotShape& shape, const DotLoop& batch);
  uint32_t AlignmentOf(int64_t Call::* offset) const;
  absl::StatusOr<bool> ChooseAlgorithm();

  const std::shared_ptr<const CublasLtContext> context_;
  int scale_type_ = kLtF32;  // The type of the factors of the product and of the previous result.
  LtMatmulDesc desc_ = nullptr;
  LtLayout a_ = nullptr, b_ = nullptr, d_ = nullptr;
  LtAlgorithm algorithm_;
  size_t workspace_bytes_ = 0;
  std::vector<Call> calls_;
};

}  // namespace xlad::runtime::cuda
