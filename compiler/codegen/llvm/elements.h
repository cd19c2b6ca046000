// The element emitter: the value of one element of an instruction, by recursion into its operands.
//
// Inside a fused computation, no values are stored in memory. To emit element (i, j) of an instruction, the emitter
// emits the elements of the operands that it depends on and combines them. For
//   a = f32[2,3] negate(p)   b = f32[3,2] transpose(a)   c = f32[3,2] add(b, b)
// element (i, j) of c loads element (j, i) of p once, because values are memoized by (instruction, index) in a scope.
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

// The position of an element: an index for each dimension, a row-major position, or both.
struct Index {
  Values dims;
  llvm::Value* linear = nullptr;
  bool has_dims = true;

  static Index Of(Values dims) { return {std::move(dims), nullptr, true}; }
  static Index OfLinear(llvm::Value* linear) { return {{}, linear, false}; }
};

// Computes either form of a position from the other.
const Values DimsOf(Ir& ir, const Index& index, const tensor::Dims& sizes);
llvm::Value* LinearOf(Ir& ir, const Index& index, const tensor::Dims& sizes);
// Converts an index of an array with sizes `from` to the index of the same element in its reshape to sizes `to`.
Index ReshapeIndex(Ir& ir, const Index& index, const tensor::Dims& from, const tensor::Dims& to);

// An array in memory: its address, type and sizes.
struct ArrayView {
  llvm::Value* base = nullptr;
  tensor::Shape shape;
};
llvm::Value* AddressOf(Ir& ir, const ArrayView& array, const Index& index);
llvm::Value* LoadFrom(Ir& ir, const ArrayView& array, const Index& index);
void StoreTo(Ir& ir, const ArrayView& array, const Index& index, llvm::Value* value);

// Emits element `index` of leaf `leaf` of a parameter or another bound instruction.
using Source = std::function<llvm::Value*(int leaf, const Index& index)>;

class Elements {
 public:
  explicit Elements(Ir* ir) : ir_(*ir) {}
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  Ir& ir() const { return ir_; }
  // After this call, `source` emits the elements of `instruction`, instead of an element rule.
  void Bind(const hlo::Instruction* instruction, Source source) { sources_[instruction] = std::move(source); }
  void Unbind(const hlo::Instruction* instruction) { sources_.erase(instruction); }
  void BindArrays(const hlo::Instruction* instruction, std::vector<ArrayView> leaves);
  // The memory from which an instruction is read, or null if the instruction is computed.
  const ArrayView* ArrayOf(const hlo::Instruction* instruction, int leaf = 0) const;
  bool IsBound(const hlo::Instruction* instruction) const { return sources_.contains(instruction); }

  // Emits one element of an instruction, or of leaf `leaf` of a tuple-shaped one. There must be a scalar op or an
  // element rule for the instruction and, recursively, for its operands up to bound instructions.
  llvm::Value* Emit(const hlo::Instruction* instruction, const Index& index, int leaf = 0);
  llvm::Value* EmitScalar(const hlo::Instruction* instruction) { return Emit(instruction, Index::Of({}), 0); }

  // Emits a computation on scalars (a reducer, a comparator) and returns its result leaves.
  Values Apply(const hlo::Computation& computation, absl::Span<llvm::Value* const> arguments);
  // An emitter for the body of a call or nested fusion, with parameters bound to the operands of that instruction.
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

// Emits all result leaves of an instruction at one index, which is an index of the first leaf.
using ElementRule = Values (*)(Elements& elements, const hlo::Instruction& instruction, const Index& index);
// The rule of an opcode, or null if it has none. Elementwise opcodes have no rules: scalar_ops.h emits them.
ElementRule FindElementRule(hlo::Opcode opcode);

}  // namespace xlad::compiler
