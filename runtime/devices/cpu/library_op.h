// Library ops: what the compiler leaves to oneDNN, prepared for this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::runtime {

// One launcher's own state (oneDNN's memory handles); used by one thread at a time.
class LibraryCall {
 public:
  virtual ~LibraryCall() = default;
  // Operands, then results. `scratch` has scratch_bytes, aligned to XLAD_BUFFER_ALIGNMENT.
  virtual absl::Status Run(absl::Span<void* const> buffers, void* scratch) = 0;
};

// An op of fixed shapes. Thread-safe; must outlive its calls.
class PreparedLibraryOp {
 public:
  virtual ~PreparedLibraryOp() = default;
  virtual size_t buffer_count() const = 0;
  virtual int64_t scratch_bytes() const = 0;
  virtual absl::StatusOr<std::unique_ptr<LibraryCall>> MakeCall() const = 0;
  // oneDNN's name of the implementation, and what is rearranged around it; for people.
  virtual std::string Description() const = 0;
};

// InvalidArgument for ops whose shapes and numbers do not fit each other, Unimplemented for types and forms that
// the library does not compute.
absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareLibraryOp(const LibraryOp& op);
absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareDot(const DotOp& op);
absl::StatusOr<std::unique_ptr<PreparedLibraryOp>> PrepareConvolution(const ConvolutionOp& op);

}  // namespace xlad::runtime
