// Transposes square tiles of elements (not those of tiling.h) in vector registers.
#pragma once

#include <llvm/IR/DerivedTypes.h>

#include <vector>

#include "compiler/codegen/llvm/elements.h"

namespace xlad::compiler {

// A tile is transposed in log2(side) rounds. Each round swaps the off-diagonal d by d blocks of all 2d by 2d blocks
// (Eklundh 1972). The side must be a power of two.
class TileMover {
 public:
  TileMover(Ir* ir, int64_t element_bytes, int64_t side)
      : ir_(*ir),
        side_(side),
        element_(ir->b.getIntNTy(static_cast<unsigned>(8 * element_bytes))),
        align_(element_bytes) {}

  // Rows are vectors along the contiguous dimension of the operand. Columns are vectors along that of the result. The
  // distances of rows and columns are constant.
  void Move(llvm::Value* from, int64_t from_stride, llvm::Value* to, int64_t to_stride) {
    llvm::Type* type = llvm::FixedVectorType::get(element_, static_cast<unsigned>(side_));
    Values v;
    for (int64_t i = 0; i < side_; ++i) {
      v.push_back(ir_.b.CreateAlignedLoad(type, ir_.Address(element_, from, ir_.I64(i * from_stride)), align_));
    }
    for (int64_t d = 1; d < side_; d *= 2) SwapBlocks(d, &v);
    ir_.CountCopies(side_ * side_ / 2);
    for (int64_t i = 0; i < side_; ++i) {
      ir_.b.CreateAlignedStore(v[i], ir_.Address(element_, to, ir_.I64(i * to_stride)), align_);
    }
  }
  llvm::Value* At(llvm::Value* base, llvm::Value* element) { return ir_.Address(element_, base, element); }

 private:
  void SwapBlocks(int64_t d, Values* v) {
    std::vector<int> upper, lower;
    for (int64_t lane = 0; lane < side_; ++lane) {
      const bool off = (lane & d) != 0;
      upper.push_back(static_cast<int>(off ? side_ + lane - d : lane));
      lower.push_back(static_cast<int>(off ? side_ + lane : lane + d));
    }
    for (int64_t i = 0; i < side_; ++i) {
      if ((i & d) != 0) continue;
      llvm::Value*& a = (*v)[i];
      llvm::Value*& b = (*v)[i + d];
      llvm::Value* above = ir_.b.CreateShuffleVector(a, b, upper);
      b = ir_.b.CreateShuffleVector(a, b, lower);
      a = above;
    }
  }

  Ir& ir_;
  const int64_t side_;
  llvm::Type* element_;
  const llvm::Align align_;
};

}  // namespace xlad::compiler
