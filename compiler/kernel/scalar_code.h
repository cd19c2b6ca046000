// Scalar code: the computation of one element of a value in a fusion, from the elements of arrays that it needs.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "compiler/kernel/kernel.h"

namespace xlad::compiler {

// A copy without operands, name and metadata, which only messages need, so that equal code has equal text.
std::unique_ptr<Instruction> BareCopy(const Instruction& instruction);

class ScalarCode {
 public:
  // Returns the array that holds the element at `at` of a value, or nullopt if the element must be computed.
  using Places = std::function<std::optional<int>(const Instruction& value, const Affine& at)>;

  // `loops` are the sizes of the kernel's dimensions. They must outlive the object.
  ScalarCode(const Dims& loops, Places places);

  // Returns the element at `at` of a value, as an instruction of the code. If `itself` is true, the value is computed
  // even if an array holds it.
  Instruction* Value(const Instruction& value, const Affine& at, bool itself = false);
  // Returns the element at `at` of an array.
  Instruction* Read(int array, const Affine& at, ElementType type);
  // Converts an element to a type. Returns the element itself if it has this type.
  Instruction* Convert(Instruction* element, ElementType type);
  // Finishes the code, with `root` as its result.
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

// Returns a module whose entry is a copy of `computation`, in which every scalar of type `from` has type `to`.
std::shared_ptr<const Module> CopyOfReducer(const Computation& computation, ElementType from, ElementType to);

}  // namespace xlad::compiler
