// Matrix products by oneDNN, on one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::runtime {

// One call site's own state (oneDNN's memory handles); used by one thread at a time.
class DotCall {
 public:
  virtual ~DotCall() = default;
  // `scratch` has Dot::scratch_bytes, aligned to XLAD_BUFFER_ALIGNMENT.
  virtual absl::Status Run(const void* lhs, const void* rhs, void* result, void* scratch) = 0;
};

// A product of fixed shapes, prepared for this machine. Thread-safe; must outlive its calls.
class Dot {
 public:
  // f32 and bf16 (sums in f32; result f32 or bf16) and f16 (computed in f32). InvalidArgument for dimension numbers
  // that do not fit the shapes, Unimplemented for other types.
  static absl::StatusOr<std::unique_ptr<Dot>> Create(const DotOp& op);
  virtual ~Dot() = default;

  virtual int64_t scratch_bytes() const = 0;
  virtual absl::StatusOr<std::unique_ptr<DotCall>> MakeCall() const = 0;
  // oneDNN's name of the implementation, and which operands are packed first; for people.
  virtual std::string Description() const = 0;
};

// oneDNN's OpenMP must not start threads of its own under ours: makes the calling thread's team one thread. Cheap
// after the first call of a thread.
void UseOneThread();

}  // namespace xlad::runtime
