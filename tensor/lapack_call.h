// LAPACK routines as JAX calls them for CPUs, by custom calls like "lapack_sgetrf_ffi": their operands and results.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "tensor/shape.h"

namespace xlad::tensor {

// A routine and what it is called with. `signature` has one word per operand, ">", and one word per result. A word has
// a letter for each dimension after those of the batch; equal letters are equal sizes, "k" is min(m, n) and "p" is
// max(n - 1, 0) if m and n are known, and "-" means a scalar. The suffix ":r" is the real type of a complex call, ":c"
// the complex type of a real call, ":i" is s32. Example: "mn > mn k:i -:i" is f32[B,3,4] to (f32[B,3,4], s32[B,3],
// s32[B]).
struct LapackRoutine {
  absl::string_view name;  // "getrf": without the letter of the type.
  absl::string_view signature;
  absl::string_view complex_signature;  // If it is another one for complex matrices; otherwise empty.
};

// All routines, in the order of messages.
absl::Span<const LapackRoutine> LapackRoutines();

struct LapackCall {
  std::string routine;                   // "getrf"
  ElementType type = ElementType::kF32;  // f32, f64, c64 or c128.
  Dims batch;                            // Dimensions in front of those of one matrix, equal in all arrays.
};

// The routine and the type of a custom-call target, without `batch`; nothing if it is not a known LAPACK routine.
std::optional<LapackCall> ParseLapackTarget(absl::string_view target);

// Checks operands and results against the signature of `call` and sets its batch. InvalidArgument names the operand or
// result that does not fit.
absl::Status CheckLapackShapes(absl::Span<const Shape> operands, absl::Span<const Shape> results, LapackCall* call);

// The option `name` of a configuration like "{uplo = 76 : ui8, left = true}", as a number; `otherwise` if the
// configuration does not have it. Characters are their codes, true is 1.
int LapackOption(absl::string_view config, absl::string_view name, int otherwise);

}  // namespace xlad::tensor
