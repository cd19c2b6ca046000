// Combining values by a reducer computation.
#pragma once

#include <optional>

#include "compiler/codegen/llvm/elements.h"

namespace xlad::compiler {

// The opcode that a reducer applies to its two scalar parameters, where that is all it does.
std::optional<hlo::Opcode> PlainReducer(const hlo::Computation& computation);

// The reducer of a reduce-like instruction with `leaves` accumulators: (accumulators, values) -> accumulators.
//
// Sums and products of floats may be reassociated by LLVM, so that they vectorise: the order is fixed when the
// code is made. Small floats are accumulated in f32 and rounded once, by Round. Where `strict`, neither is done.
class Reducer {
 public:
  Reducer(const hlo::Computation* computation, ElementType type, bool strict = false);

  Values Combine(Elements& elements, const Values& accumulators, const Values& values) const;
  Values Round(Ir& ir, Values accumulators) const;
  // What changes nothing, where values may be combined in any order: of a sum, product, maximum or minimum of floats.
  // Else null.
  llvm::Value* Neutral(Ir& ir) const;

 private:
  const hlo::Computation* computation_;
  ElementType type_;
  bool strict_;
  bool free_order_;  // A sum or product of floats.
};

// Variables that hold accumulators across loops: `count` elements each, in register form.
class Accumulators {
 public:
  Accumulators(Ir* ir, const std::vector<tensor::Shape>& leaves, int64_t count = 1);
  void Store(const Values& values, llvm::Value* at = nullptr);
  Values Load(llvm::Value* at = nullptr) const;

 private:
  llvm::Value* Address(size_t leaf, llvm::Value* at) const;
  Ir& ir_;
  std::vector<llvm::Type*> types_;
  std::vector<bool> is_bool_;  // Stored as bytes.
  Values slots_;
};

}  // namespace xlad::compiler
