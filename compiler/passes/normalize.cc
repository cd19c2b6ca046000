// Removes everything that does not affect values: layouts, shardings, copies, dependencies, annotation calls.
//
// Needs: inlined calls. Leaves: row-major shapes without layouts; no `copy`, `add-dependency`, `domain`, `replica-id`
// or sharding custom-calls; a `bitcast` only between element types of different widths. Unimplemented for dynamic
// dimensions and for more than one replica.
#include "compiler/passes/passes.h"

#include <algorithm>
#include <numeric>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/instruction_facts.h"
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

// The dimensions of an array from the slowest to the fastest varying one in memory.
Dims MajorToMinor(const Shape& shape) {
  Dims order(shape.ndim());
  std::iota(order.begin(), order.end(), int64_t{0});
  const hlo::Layout* layout = shape.layout();
  if (layout != nullptr && layout->minor_to_major.size() == order.size()) {
    order.assign(layout->minor_to_major.rbegin(), layout->minor_to_major.rend());
  }
  return order;
}

// A bitcast reinterprets memory, so its meaning depends on both layouts. It is replaced by a transpose to the operand's
// memory order, a reshape, and a transpose from the result's memory order. Returns null if the element types have
// different widths.
Instruction* ExpandBitcast(Instruction* bitcast) {
  Instruction* x = bitcast->operand(0);
  const Shape& to = bitcast->shape();
  if (!x->shape().is_array() || !to.is_array() || x->shape().elements() != to.elements()) return nullptr;
  if (tensor::BitWidth(x->shape().type()) != tensor::BitWidth(to.type())) return nullptr;
  hlo::Builder builder(bitcast->parent());
  builder.set_template(bitcast);
  const auto transpose = [&](Instruction* y, Dims permutation) {
    return std::is_sorted(permutation.begin(), permutation.end()) ? y : builder.Transpose(y, std::move(permutation));
  };
  x = transpose(x, MajorToMinor(x->shape()));
  if (x->shape().type() != to.type()) {
    auto convert = std::make_unique<Instruction>(Opcode::kBitcastConvert, Shape(to.type(), x->shape().dims()));
    x = bitcast->parent()->Add(std::move(convert), {x});
  }
  const Dims order = MajorToMinor(to);
  Dims memory_sizes, inverse(order.size());
  for (size_t d = 0; d < order.size(); ++d) {
    memory_sizes.push_back(to.dim(order[d]));
    inverse[order[d]] = d;
  }
  Instruction* expanded = transpose(builder.Reshape(x, memory_sizes), inverse);
  expanded->mutable_shape() = to;  // The shape keeps its layout, because a bitcast of this instruction needs it.
  return expanded;
}

absl::Status CheckShape(const Instruction& instruction) {
  for (const Shape* leaf : Leaves(instruction.shape())) {
    if (leaf->extents().empty()) continue;
    return absl::UnimplementedError(absl::StrCat(
        Describe(instruction), ": found shape ", instruction.shape().ToString(), ", expected static dimensions; ",
        leaf->has_unbounded() ? "compile the program with static sizes" : "pad to the bound"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Normalize(hlo::Module& module, PassContext&) {
  if (module.replica_count != 1) {
    return absl::UnimplementedError(absl::StrCat(
        "module ", module.name(), ": found replica_count=", module.replica_count, ", expected 1; use partitions"));
  }
  for (const auto& computation : module.computations()) {
    bool changed = false;
    for (Instruction* instruction : Snapshot(*computation)) {
      if (instruction->opcode() != Opcode::kBitcast) continue;  // Bitcasts must be replaced before layouts are removed.
      Instruction* expanded = ExpandBitcast(instruction);
      if (expanded == nullptr) continue;
      instruction->ReplaceAllUsesWith(expanded);
      changed = true;
    }
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
