// The lanes of a reduction in memory, read and written as vectors. The code has no loops. Equivalent loops would take
// LLVM several times as long to compile, because it analyzes and vectorizes every loop separately.
#pragma once

#include <cstdint>
#include <functional>

#include "compiler/codegen/llvm/ir.h"

namespace xlad::compiler {

// `count` elements of a floating-point type in memory, 64-byte aligned. `count` and `width` are powers of two.
struct Lanes {
  llvm::Value* base;
  llvm::Type* type;
  int64_t count;
  int64_t width;  // The number of elements of a vector register. At most `count`.
};

// Writes the value to all lanes.
void FillLanes(Ir& ir, const Lanes& lanes, llvm::Value* value);

// Combines the lanes by halves, in the order of a loop: lane i is combined with lane i + count / 2. Then the results
// are combined in the same way, until one value is left. `combine` is applied to vectors and, at the end, to elements.
llvm::Value* CombineLanes(Ir& ir, const Lanes& lanes,
                          const std::function<llvm::Value*(llvm::Value*, llvm::Value*)>& combine);

}  // namespace xlad::compiler
