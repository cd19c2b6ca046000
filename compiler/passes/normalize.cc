// Removes everything that does not affect values: layouts, shardings, copies, dependencies, annotation calls.
//
// Needs: inlined calls. Leaves: row-major shapes without layouts; no `copy`, `add-dependency`, `domain`, `replica-id`,
// `bitcast` or sharding custom-calls. Unimplemented for dynamic dimensions and for more than one replica.
#include "compiler/passes/passes.h"

#include <algorithm>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/instruction_facts.h"
#include "hlo/analysis/bitcast.h"
#include "hlo/analysis/leaves.h"
#include "hlo/attribute_keys.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

bool IsAnnotation(const Instruction& instruction) {
  return instruction.operand_count() == 1 && (IsCustomCall(instruction, hlo::kShardingCall) ||
                                              IsCustomCall(instruction, hlo::kResultShardingCall));
}

// The replacement of an instruction that does not affect values, or null.
Instruction* Replacement(Instruction* instruction) {
  hlo::Builder builder(instruction->parent());
  builder.set_template(instruction);
  switch (instruction->opcode()) {
    case Opcode::kCopy:
    case Opcode::kAddDependency:
    case Opcode::kDomain:
      return instruction->operand(0);
    case Opcode::kCopyDone:
      return instruction->operand(0)->opcode() == Opcode::kCopyStart ? instruction->operand(0)->operand(0) : nullptr;
    case Opcode::kReplicaId:
      return builder.Scalar(instruction->shape().type(), 0);
    case Opcode::kCustomCall:
      return IsAnnotation(*instruction) ? instruction->operand(0) : nullptr;
    default:
      return nullptr;
  }
}

// Builds the instructions that a bitcast is replaced by.
class BitcastExpansion {
 public:
  explicit BitcastExpansion(Instruction* bitcast) : bitcast_(bitcast), builder_(bitcast->parent()) {
    builder_.set_template(bitcast);
  }

  // A bitcast reinterprets memory, so its meaning depends on both layouts. It is a transpose to the operand's memory
  // order, a conversion of the elements, a reshape, and a transpose from the result's memory order.
  Instruction* Run() {
    const Shape& to = bitcast_->shape();
    Instruction* x = bitcast_->operand(0);
    x = Transposed(x, hlo::MajorToMinor(x->shape()));
    if (x->shape().type() != to.type()) x = Reinterpreted(x, to.type());
    const Dims order = hlo::MajorToMinor(to);
    x = builder_.Reshape(x, tensor::Select(to.dims(), order));
    Instruction* expanded = Transposed(x, tensor::Inverse(order));
    expanded->mutable_shape() = to;  // The shape keeps its layout, because a bitcast of this instruction needs it.
    return expanded;
  }

 private:
  Instruction* Transposed(Instruction* x, Dims permutation) {
    return std::is_sorted(permutation.begin(), permutation.end()) ? x : builder_.Transpose(x, std::move(permutation));
  }

  // The memory of the row-major array `x` as elements of `type`, in an array of any shape.
  Instruction* Reinterpreted(Instruction* x, ElementType type) {
    const bool from_complex = tensor::IsComplex(x->shape().type()), to_complex = tensor::IsComplex(type);
    if (from_complex == to_complex && tensor::BitWidth(x->shape().type()) == tensor::BitWidth(type)) {
      return Converted(x, type, x->shape().dims());
    }
    if (from_complex) x = PartsOf(x);
    const ElementType part = tensor::RealPartOf(type);
    const int64_t elements = x->shape().elements();
    const int64_t from_bits = tensor::BitWidth(x->shape().type()), to_bits = tensor::BitWidth(part);
    if (from_bits > to_bits) {
      x = Converted(builder_.Reshape(x, {elements}), part, {elements, from_bits / to_bits});
    } else if (from_bits < to_bits) {
      const int64_t ratio = to_bits / from_bits;
      x = Converted(builder_.Reshape(x, {elements / ratio, ratio}), part, {elements / ratio});
    } else if (x->shape().type() != part) {
      x = Converted(x, part, x->shape().dims());
    }
    return to_complex ? FromParts(x) : x;
  }

  Instruction* Converted(Instruction* x, ElementType type, Dims dims) {
    auto convert = std::make_unique<Instruction>(Opcode::kBitcastConvert, Shape(type, std::move(dims)));
    return bitcast_->parent()->Add(std::move(convert), {x});
  }

  // The real and imaginary parts of the elements, alternately.
  Instruction* PartsOf(Instruction* x) {
    const int64_t elements = x->shape().elements();
    Instruction* real = builder_.Reshape(builder_.Unary(Opcode::kReal, x), {elements, 1});
    Instruction* imag = builder_.Reshape(builder_.Unary(Opcode::kImag, x), {elements, 1});
    return builder_.Concatenate({real, imag}, 1);
  }
  Instruction* FromParts(Instruction* x) {
    const int64_t elements = x->shape().elements() / 2;
    x = builder_.Reshape(x, {elements, 2});
    return builder_.Binary(Opcode::kComplex, builder_.Slice(x, {0, 0}, {elements, 1}),
                           builder_.Slice(x, {0, 1}, {elements, 2}));
  }

  Instruction* bitcast_;
  hlo::Builder builder_;
};

absl::Status ExpandBitcasts(Computation* computation, bool* changed) {
  for (Instruction* instruction : Snapshot(*computation)) {
    if (instruction->opcode() != Opcode::kBitcast) continue;
    if (const absl::Status status = hlo::CheckBitcast(*instruction); !status.ok()) {
      return Annotate(status, Describe(*instruction));
    }
    instruction->ReplaceAllUsesWith(instruction->shape().is_array() ? BitcastExpansion(instruction).Run()
                                                                    : instruction->operand(0));
    *changed = true;
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const Instruction& instruction) {
  for (const Shape* leaf : Leaves(instruction.shape())) {
    if (leaf->extents().empty()) continue;
    return absl::UnimplementedError(absl::StrCat(
        Describe(instruction), ": found shape ", instruction.shape().ToString(), ", expected static dimensions; ",
        leaf->has_unbounded() ? "compile the program with static sizes" : "pad the array to its bound"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Normalize(hlo::Module& module, PassContext&) {
  if (module.replica_count != 1) {
    return absl::UnimplementedError(absl::StrCat(
        "module ", module.name(), ": found replica_count=", module.replica_count,
        ", expected 1; run the program on a mesh of partitions (in JAX, by jax.jit with shardings, not jax.pmap)"));
  }
  for (const auto& computation : module.computations()) {
    bool changed = false;
    // Bitcasts must be replaced before layouts are removed.
    XLAD_RETURN_IF_ERROR(ExpandBitcasts(computation.get(), &changed));
    for (Instruction* instruction : Snapshot(*computation)) {
      XLAD_RETURN_IF_ERROR(CheckShape(*instruction));
      instruction->mutable_shape().clear_layout();
      instruction->set_sharding(nullptr);
      if (Instruction* replacement = Replacement(instruction)) {
        instruction->ReplaceAllUsesWith(replacement);
        changed = true;
      }
    }
    if (changed) FinishEdits(computation.get());
  }
  FinishEdits(&module);
  return absl::OkStatus();
}

}  // namespace xlad::compiler
