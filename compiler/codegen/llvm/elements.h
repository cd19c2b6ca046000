// The element emitter: the value of one element of an instruction, by recursion into its operands.
//
// Inside a fused computation nothing is stored: asked for element (i, j) of an instruction, the emitter asks the
// operands for the elements that it needs and combines them. A value asked for twice at the same index within a
// scope is computed once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "compiler/codegen/llvm/ir.h"
#include "compiler/codegen/llvm/types.h"
#include "hlo/analysis/leaves.h"
#include "hlo/module.h"

namespace xlad::compiler {

using Values = std::vector<llvm::Value*>;

// Which element: its index by dimension, or its row-major position, or both.
struct Index {
  Values dims;
  llvm::Value* linear = nullptr;
  bool has_dims = true;

  static Index Of(Values dims) { return {std::move(dims), nullptr, true}; }
  static Index OfLinear(llvm::Value* linear) { return {{}, linear, false}; }
};

// The index in a shape, each form from the other.
const Values DimsOf(Ir& ir, const Index& index, const tensor::Dims& sizes);
llvm::Value* LinearOf(Ir& ir, const Index& index, const tensor::Dims& sizes);
// The same element after a reshape from `to`'s element order to `from` (equal element counts).
Index ReshapeIndex(Ir& ir, const Index& index, const tensor::Dims& from, const tensor::Dims& to);

// An array in memory.
struct ArrayView {
  llvm::Value* base = nullptr;
  tensor::Shape shape;
};
llvm::Value* AddressOf(Ir& ir, const ArrayView& array, const Index& index);
llvm::Value* LoadFrom(Ir& ir, const ArrayView& array, const Index& index);
void StoreTo(Ir& ir, const ArrayView& array, const Index& index, llvm::Value* value);

// Gives element `index` of leaf `leaf` of a parameter or another bound instruction.
using Source = std::function<llvm::Value*(int leaf, const Index& index)>;

class Elements {
 public:
  explicit Elements(Ir* ir) : ir_(*ir) {}
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  Ir& ir() const { return ir_; }
  // From now on `instruction` is not computed but read.
  void Bind(const hlo::Instruction* instruction, Source source) { sources_[instruction] = std::move(source); }
  void BindArrays(const hlo::Instruction* instruction, std::vector<ArrayView> leaves);
  // The memory that an instruction is read from; null where it is computed.
  const ArrayView* ArrayOf(const hlo::Instruction* instruction, int leaf = 0) const;
  bool IsBound(const hlo::Instruction* instruction) const { return sources_.contains(instruction); }

  // One element of an array-shaped instruction, or of a leaf of a tuple-shaped one. The instruction, with what it
  // needs, must be one that CanEmitInFusion allows.
  llvm::Value* Emit(const hlo::Instruction* instruction, const Index& index, int leaf = 0);
  llvm::Value* EmitScalar(const hlo::Instruction* instruction) { return Emit(instruction, Index::Of({}), 0); }

  // The result leaves of a computation on scalars (a reducer, a comparator).
  Values Apply(const hlo::Computation& computation, absl::Span<llvm::Value* const> arguments);
  // The emitter for the body of a call or nested fusion, its parameters bound to this one's operands.
  Elements& Inner(const hlo::Instruction* call);

 private:
  using Key = std::tuple<const hlo::Instruction*, int, llvm::Value*, Values>;
  struct Known {
    llvm::Value* value = nullptr;
    int scope = 0;
  };
  llvm::Value* Compute(const hlo::Instruction* instruction, const Index& index, int leaf);

  Ir& ir_;
  std::map<const hlo::Instruction*, Source> sources_;
  std::map<const hlo::Instruction*, std::vector<ArrayView>> arrays_;
  std::map<Key, Known> known_;
  std::map<const hlo::Instruction*, std::unique_ptr<Elements>> inner_;
};

// How an opcode's element comes about: all result leaves at an index (of the first leaf's shape).
using ElementRule = Values (*)(Elements& elements, const hlo::Instruction& instruction, const Index& index);
// Null where there is none. Elementwise opcodes have theirs in scalar_ops.h.
ElementRule FindElementRule(hlo::Opcode opcode);

}  // namespace xlad::compiler
