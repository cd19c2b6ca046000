// Combining values by a reducer computation.
#pragma once

#include "compiler/analysis/plain_reducer.h"
#include "compiler/codegen/llvm/elements.h"

namespace xlad::compiler {

// The reducer of a reduce-like instruction, which maps (accumulators, values) to new accumulators.
//
// LLVM may reassociate sums and products of floats, so that they vectorize. Their order is fixed when the code is
// generated. Sums and products of small floats are accumulated in f32 and rounded once, by Round. If `strict` is true,
// sums and products are not reassociated, and small floats are rounded after every step.
class Reducer {
 public:
  Reducer(const hlo::Computation* computation, ElementType type, bool strict = false);

  Values Combine(Elements& elements, const Values& accumulators, const Values& values) const;
  Values Round(Ir& ir, Values accumulators) const;
  // The identity of a sum, product, maximum or minimum of floats, whose values may be combined in any order. Null for
  // other reducers, and if `strict` is true.
  llvm::Value* Neutral(Ir& ir) const;
  // Whether the reducer is a sum or product of floats that LLVM may reassociate.
  bool has_free_order() const { return free_order_; }

 private:
  const hlo::Computation* computation_;
  ElementType type_;
  bool strict_;
  bool free_order_;
};

// Stack variables for accumulators that are used across loops: `count` elements each, in register form (types.h).
class Accumulators {
 public:
  Accumulators(Ir* ir, const std::vector<tensor::Shape>& leaves, int64_t count = 1);
  void Store(const Values& values, llvm::Value* at = nullptr);
  Values Load(llvm::Value* at = nullptr) const;
  llvm::Value* base() const { return slots_[0]; }  // The address of the accumulators of the first leaf.

 private:
  llvm::Value* Address(size_t leaf, llvm::Value* at) const;
  Ir& ir_;
  std::vector<llvm::Type*> types_;
  std::vector<bool> is_bool_;  // Whether elements are i1 that are stored as bytes.
  Values slots_;
};

}  // namespace xlad::compiler
