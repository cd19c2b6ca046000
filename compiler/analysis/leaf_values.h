// Helpers for analyses that map each instruction to a list with one entry for each leaf of its value
// (hlo/analysis/leaves.h). The helpers return the list of a tuple and that of an element of a tuple.
#pragma once

#include "compiler/analysis/hlo_names.h"
#include "hlo/analysis/leaves.h"

namespace xlad::compiler {

// The entries of a kTuple: those of its operands, one operand after the other.
template <typename Known>
typename Known::mapped_type LeavesOfTuple(const Instruction& tuple, const Known& known) {
  typename Known::mapped_type all;
  for (const Instruction* operand : tuple.operands()) {
    const auto& leaves = known.at(operand);
    all.insert(all.end(), leaves.begin(), leaves.end());
  }
  return all;
}

// The entries of a kGetTupleElement.
template <typename Known>
typename Known::mapped_type LeavesOfElement(const Instruction& element, const Known& known) {
  const Instruction* const tuple = element.operand(0);
  const auto first = known.at(tuple).begin() + hlo::FirstLeaf(tuple->shape(), element.number());
  return {first, first + hlo::CountLeaves(element.shape())};
}

}  // namespace xlad::compiler
