#include "compiler/codegen/llvm/elements.h"

#include <utility>

#include "base/status.h"
#include "compiler/codegen/llvm/scalar_ops.h"

namespace xlad::compiler {

using hlo::Opcode;

const Values DimsOf(Ir& ir, const Index& index, const tensor::Dims& sizes) {
  if (index.has_dims) return index.dims;
  Values dims(sizes.size());
  llvm::Value* rest = index.linear;
  for (size_t d = sizes.size(); d-- > 0;) {
    dims[d] = d == 0 && sizes[d] != 1 ? rest : ir.Rem(rest, sizes[d]);
    if (d > 0) rest = ir.Div(rest, sizes[d]);
  }
  return dims;
}

llvm::Value* LinearOf(Ir& ir, const Index& index, const tensor::Dims& sizes) {
  if (index.linear != nullptr) return index.linear;
  llvm::Value* linear = ir.I64(0);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) linear = ir.Add(ir.Mul(linear, sizes[d]), index.dims[d]);
  }
  return linear;
}

Index ReshapeIndex(Ir& ir, const Index& index, const tensor::Dims& from, const tensor::Dims& to) {
  if (!index.has_dims) return index;
  // Groups of adjacent dimensions with equal products in both shapes are mapped separately.
  Index result;
  result.linear = index.linear;
  result.dims.resize(to.size());
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    const size_t i0 = i, j0 = j;
    int64_t a = 1, b = 1;
    if (i < from.size()) a = from[i++];
    if (j < to.size()) b = to[j++];
    while (a != b) {
      if (a < b && i < from.size())
        a *= from[i++];
      else if (b < a && j < to.size())
        b *= to[j++];
      else
        break;  // A dimension has size 0: the array has no elements.
    }
    llvm::Value* linear = ir.I64(0);
    for (size_t d = i0; d < i; ++d) {
      if (from[d] != 1) linear = ir.Add(ir.Mul(linear, from[d]), index.dims[d]);
    }
    const tensor::Dims group(to.begin() + j0, to.begin() + j);
    const Values dims = DimsOf(ir, Index::OfLinear(linear), group);
    std::copy(dims.begin(), dims.end(), result.dims.begin() + j0);
  }
  return result;
}

llvm::Value* AddressOf(Ir& ir, const ArrayView& array, const Index& index) {
  return ir.Address(StorageType(ir.context(), array.shape.type), array.base, LinearOf(ir, index, array.shape.dims));
}

llvm::Value* LoadFrom(Ir& ir, const ArrayView& array, const Index& index) {
  return LoadElement(ir.b, array.shape.type, AddressOf(ir, array, index));
}

void StoreTo(Ir& ir, const ArrayView& array, const Index& index, llvm::Value* value) {
  StoreElement(ir.b, array.shape.type, value, AddressOf(ir, array, index));
}

void Elements::BindArrays(const hlo::Instruction* instruction, std::vector<ArrayView> leaves) {
  const std::vector<ArrayView>& arrays = arrays_[instruction] = std::move(leaves);
  Bind(instruction, [this, &arrays](int leaf, const Index& index) {
    return LoadFrom(ir_, arrays[leaf], index);
  });
}

const ArrayView* Elements::ArrayOf(const hlo::Instruction* instruction, int leaf) const {
  const auto found = arrays_.find(instruction);
  return found == arrays_.end() ? nullptr : &found->second[leaf];
}

llvm::Value* Elements::Emit(const hlo::Instruction* instruction, const Index& index, int leaf) {
  const Key key{instruction, leaf, index.linear, index.dims};
  const auto found = known_.find(key);
  if (found != known_.end() && ir_.InScope(found->second.scope)) return found->second.value;
  llvm::Value* value = Compute(instruction, index, leaf);
  known_[key] = {value, ir_.scope()};
  return value;
}

llvm::Value* Elements::Compute(const hlo::Instruction* instruction, const Index& index, int leaf) {
  const auto source = sources_.find(instruction);
  if (source != sources_.end()) return source->second(leaf, index);
  switch (instruction->opcode()) {
    case Opcode::kTuple: {
      for (int64_t i = 0; i < instruction->operand_count(); ++i) {
        const int count = CountArrayLeaves(instruction->operand(i)->shape());
        if (leaf < count) return Emit(instruction->operand(i), index, leaf);
        leaf -= count;
      }
      break;
    }
    case Opcode::kGetTupleElement:
      return Emit(instruction->operand(0), index,
                  leaf + FirstArrayLeaf(instruction->operand(0)->shape(), instruction->number()));
    case Opcode::kOptBarrier:
      return Emit(instruction->operand(0), index, leaf);
    case Opcode::kCall:
    case Opcode::kFusion:
      return Inner(instruction).Emit(instruction->called()[0]->root(), index, leaf);
    default:
      break;
  }
  if (HasScalarOp(*instruction)) {
    Values operands;
    for (const hlo::Instruction* operand : instruction->operands()) {
      // Some operands of clamp and select may be scalars although the result is an array.
      const bool scalar = operand->shape().is_scalar() && !instruction->shape().is_scalar();
      operands.push_back(scalar ? EmitScalar(operand) : Emit(operand, index));
    }
    return EmitScalarOp(ir_, *instruction, operands);
  }
  const ElementRule rule = FindElementRule(instruction->opcode());
  XLAD_CHECK(rule != nullptr) << instruction->ToString();
  const Values leaves = rule(*this, *instruction, index);
  for (int i = 0; i < std::ssize(leaves); ++i) {
    known_[Key{instruction, i, index.linear, index.dims}] = {leaves[i], ir_.scope()};
  }
  return leaves[leaf];
}

Elements& Elements::Inner(const hlo::Instruction* call) {
  std::unique_ptr<Elements>& inner = inner_[call];
  if (inner == nullptr) {
    inner = std::make_unique<Elements>(&ir_);
    const std::vector<hlo::Instruction*>& parameters = call->called()[0]->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const hlo::Instruction* operand = call->operand(i);
      inner->Bind(parameters[i], [this, operand](int leaf, const Index& index) { return Emit(operand, index, leaf); });
    }
  }
  return *inner;
}

Values Elements::Apply(const hlo::Computation& computation, absl::Span<llvm::Value* const> arguments) {
  Elements body(&ir_);
  for (size_t i = 0; i < arguments.size(); ++i) {
    llvm::Value* argument = arguments[i];
    body.Bind(computation.parameters()[i], [argument](int, const Index&) { return argument; });
  }
  Values results;
  const hlo::Instruction* root = computation.root();
  for (int leaf = 0; leaf < CountArrayLeaves(root->shape()); ++leaf) {
    results.push_back(body.Emit(root, Index::Of({}), leaf));
  }
  return results;
}

}  // namespace xlad::compiler
