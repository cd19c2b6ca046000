// Scalar code: the computation of one element of a value in a fusion, from the elements of arrays that it needs.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "compiler/kernel/kernel.h"

namespace xlad::compiler {

class ScalarCode {
 public:
  // Returns the array that holds a value, or nullopt if the value is to be computed.
  using Places = std::function<std::optional<int>(const Instruction& value, const Affine& at)>;

  ScalarCode(const Dims& loops, Places places);

  // The element at `at` of a value, as an instruction of the code. If `itself` is true, the value is computed even if
  // an array holds it.
  Instruction* Value(const Instruction& value, const Affine& at, bool itself = false);
  // The element at `at` of an array.
  Instruction* Read(int array, const Affine& at, ElementType type);
  // Converts an element to another type.
  Instruction* Convert(Instruction* element, ElementType type);
  // Ends the code; `root` is its result.
  KernelCode Finish(Instruction* root);

 private:
  Instruction* Compute(const Instruction& value, const Affine& at);

  const Dims& loops_;
  const Places places_;
  std::shared_ptr<Module> module_;
  Computation* entry_;
  std::vector<KernelRead> reads_;
  std::map<std::pair<const Instruction*, std::vector<int64_t>>, Instruction*> known_;
};

// A module whose entry is a copy of `computation`, with every type `from` replaced by `to`.
std::shared_ptr<const Module> CopyOfReducer(const Computation& computation, ElementType from, ElementType to);

}  // namespace xlad::compiler
