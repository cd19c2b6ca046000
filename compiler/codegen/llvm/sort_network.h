// Sorts rows on a CPU by a network of minima and maxima, if their order is that of integer keys.
#pragma once

#include <optional>

#include "compiler/codegen/llvm/sorting.h"

namespace xlad::compiler {

// The order of a sort or topk as that of a key of up to 32 bits: an element comes before another one if its key is
// lower, or higher if `descending`. The key is computed from the element of one operand.
struct KeyOrder {
  int64_t operand = 0;
  // In a comparator, the computed value and the parameter that is the element. Null if the element itself is compared.
  const hlo::Instruction* value = nullptr;
  const hlo::Instruction* parameter = nullptr;
  ElementType type = ElementType::kF32;  // The type of the compared values. Floats are in total order.
  bool descending = false;
};

// The order of a topk, or of a sort whose comparator applies one function to two elements and compares the results. An
// example is the comparator of jax.numpy.sort, which replaces zeros and NaNs before it compares. Nullopt if the order
// has no such form, or if rows have more than 2,048 elements, because the scratch memory of the network is 64 bytes for
// each element of a row. The network takes as long for one row as for eight.
std::optional<KeyOrder> FindKeyOrder(const hlo::Instruction& root);

// Emits a sort or topk. Equal elements keep their order.
void EmitSortNetwork(KernelContext& kernel, const hlo::Instruction& root, const KeyOrder& order);

}  // namespace xlad::compiler
