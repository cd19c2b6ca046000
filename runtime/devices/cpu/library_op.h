// Library ops, prepared for this machine: matrix products by oneDNN or small_dot.h, convolutions by oneDNN, linear
// algebra by LAPACK, Fourier transforms and attention.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "proto/executable.pb.h"
#include "runtime/devices/cpu/thread_team.h"

namespace xlad::runtime {

// The state that one launcher has for an op (oneDNN's memory handles). Used by one thread at a time, the owner of a
// team.
class LibraryCall {
 public:
  virtual ~LibraryCall() = default;
  // `buffers` are the operands, then the results. `team` has the number of threads that was passed to MakeCall.
  // `scratch` has PreparedLibraryOp::scratch_bytes(threads) bytes for this number, aligned to XLAD_BUFFER_ALIGNMENT.
  virtual absl::Status Run(absl::Span<void* const> buffers, void* scratch, ThreadTeam& team) = 0;
};

// An op with fixed shapes. If it is divided among threads, the division into tiles depends on the shapes alone.
// Thread-safe. It must outlive its calls.
class PreparedLibraryOp {
 public:
  virtual ~PreparedLibraryOp() = default;
  virtual size_t buffer_count() const = 0;
  // The size of the scratch memory that a call by a team of `threads` threads needs.
  virtual int64_t scratch_bytes(int threads) const = 0;
  virtual absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall(int threads) const = 0;
  // Whether a call may use the code that GenerateMatrixCode (dnnl_util.h) makes.
  virtual bool needs_matrix_code() const { return false; }
  // For display. For products: oneDNN's name of the implementation, or "xlad", and the operands that are rearranged for
  // it.
  virtual std::string Description() const = 0;
};

// InvalidArgument if an op's shapes and numbers do not match, Unimplemented for types and forms that the library does
// not compute, FailedPrecondition if the op needs a library that is not installed (lapack_library.h).
absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareLibraryOp(const LibraryOp& op);
absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareDot(const DotOp& op);
absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareConvolution(const ConvolutionOp& op);
absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareFft(const FftOp& op);
absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareAttention(const AttentionOp& op);
absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareLapack(const LapackOp& op);

}  // namespace xlad::runtime
