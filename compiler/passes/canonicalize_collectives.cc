// Rewrites collectives to the form that the runtime executes: over flat, contiguous buffers.
//
// Needs: no layouts. Leaves: all-gather, reduce-scatter and all-to-all have one array operand and run along dimension
// 0. If the program had another dimension, reshapes and transposes are around them. Collectives in groups of one device
// are removed. An asynchronous start/done pair is one synchronous collective. An exclusive-or reduction is an exchange
// followed by local xor. InvalidArgument for groups that do not fit the mesh.
#include "compiler/passes/passes.h"

#include <functional>
#include <numeric>

#include "compiler/analysis/clone.h"
#include "compiler/analysis/collective_spec.h"
#include "compiler/analysis/instruction_facts.h"
#include "compiler/analysis/step_computations.h"
#include "hlo/build/builder.h"

namespace xlad::compiler {
namespace {

// Rewrites one collective among groups of `group_size` devices.
class Rewriter {
 public:
  Rewriter(Instruction* instruction, int64_t group_size)
      : instruction_(instruction), size_(group_size), builder_(instruction->parent()) {
    builder_.set_template(instruction);
  }

  // The replacement, or null if the collective is canonical.
  absl::StatusOr<Instruction*> Rewrite() {
    if (size_ == 1) return OwnOperands();
    if (ReducesByXor()) return Map([this](Instruction* x) { return ExchangeAndXor(x); });
    switch (instruction_->opcode()) {
      case Opcode::kAllGather:
      case Opcode::kReduceScatter:
        if (instruction_->operand_count() == 1 && instruction_->dimensions()[0] == 0) return nullptr;
        break;
      case Opcode::kAllToAll:
        if (instruction_->shape().is_tuple()) return TupleAllToAll();
        if (instruction_->operand_count() == 1 && instruction_->dimensions()[0] == 0) return nullptr;
        break;
      default:
        return nullptr;
    }
    return Map([this](Instruction* x) { return AlongFront(x); });
  }

 private:
  // Applies `f` to every operand.
  Instruction* Map(const std::function<Instruction*(Instruction*)>& f) {
    std::vector<Instruction*> parts;
    for (Instruction* operand : instruction_->operands()) parts.push_back(f(operand));
    return instruction_->shape().is_tuple() ? builder_.Tuple(parts) : parts[0];
  }

  // Whether the collective reduces by exclusive or, which the runtime cannot do.
  bool ReducesByXor() const {
    const Opcode opcode = instruction_->opcode();
    return (opcode == Opcode::kAllReduce || opcode == Opcode::kReduceScatter) &&
           hlo::ReducerOpcode(*instruction_->called()[0]) == Opcode::kXor;
  }

  // Gathers the operands of all devices of a group on each device, or for a reduce-scatter only the parts that the
  // device needs, and combines them locally.
  Instruction* ExchangeAndXor(Instruction* x) {
    const bool scatter = instruction_->opcode() == Opcode::kReduceScatter;
    if (scatter) {  // One part for each device: [.., n*a, ..] -> [.., n, a, ..] -> [n, .., a, ..].
      const int64_t d = instruction_->dimensions()[0];
      x = builder_.MoveToFront(builder_.SplitDimension(x, d, size_), d);
    } else {
      Dims one = x->shape().dims();
      one.insert(one.begin(), 1);
      x = builder_.Reshape(x, one);
    }
    Dims stacked = x->shape().dims();
    stacked[0] = size_;
    auto exchange = std::make_unique<Instruction>(scatter ? Opcode::kAllToAll : Opcode::kAllGather,
                                                  Shape(x->shape().type(), stacked));
    exchange->set_name(instruction_->name());
    exchange->set_dimensions({0});
    exchange->mutable_attributes() = instruction_->attributes();
    exchange->mutable_metadata() = instruction_->metadata();
    exchange->mutable_frontend_attributes() = instruction_->frontend_attributes();
    Instruction* all = instruction_->parent()->Add(std::move(exchange), {x});
    Instruction* sum = nullptr;
    for (int64_t i = 0; i < size_; ++i) {
      Instruction* next = builder_.Element(all, i);
      sum = sum == nullptr ? next : builder_.Binary(Opcode::kXor, sum, next);
    }
    return sum;
  }

  // The result if the groups have one device: the operands. A tuple of one element stays a tuple.
  Instruction* OwnOperands() {
    if (instruction_->shape().is_tuple()) return builder_.Tuple(instruction_->operands());
    return instruction_->operand(0);
  }

  // Returns the same collective on `x`, along dimension 0.
  Instruction* Clone(Instruction* x, Shape result) {
    auto clone = instruction_->CloneWithoutOperands();
    clone->set_name(instruction_->name());
    clone->mutable_shape() = std::move(result);
    clone->set_dimensions({0});
    return instruction_->parent()->Add(std::move(clone), {x});
  }

  // Returns the collective on `x` along dimension 0. A transpose before it moves the original dimension to the front,
  // and one after it moves the dimension back.
  Instruction* AlongFront(Instruction* x) {
    const int64_t d = instruction_->dimensions()[0];
    const Dims& from = x->shape().dims();
    const ElementType type = x->shape().type();
    if (d == 0) {
      Dims to = from;
      if (instruction_->opcode() == Opcode::kAllGather) to[0] *= size_;
      if (instruction_->opcode() == Opcode::kReduceScatter) to[0] /= size_;
      return Clone(x, Shape(type, to));
    }
    if (instruction_->opcode() == Opcode::kAllGather) {
      Dims one = from, stacked = from;
      one.insert(one.begin(), 1);
      stacked.insert(stacked.begin(), size_);
      Instruction* gathered = Clone(builder_.Reshape(x, one), Shape(type, stacked));
      // [n, .., a, ..] -> [.., n, a, ..] -> [.., n*a, ..]
      Instruction* moved = builder_.MoveFromFront(gathered, d);
      Dims result = from;
      result[d] *= size_;
      return builder_.Reshape(moved, result);
    }
    Instruction* moved = builder_.MoveToFront(builder_.SplitDimension(x, d, size_), d);
    if (instruction_->opcode() == Opcode::kReduceScatter) {
      Dims part = from;
      part[d] /= size_;
      Dims one = part;
      one.insert(one.begin(), 1);
      return builder_.Reshape(Clone(moved, Shape(type, one)), part);
    }
    Instruction* exchanged = Clone(moved, moved->shape());
    return builder_.Reshape(builder_.MoveFromFront(exchanged, d), from);
  }

  // An all-to-all with one operand and one result for each device of the group.
  absl::StatusOr<Instruction*> TupleAllToAll() {
    if (instruction_->operand_count() != size_) {
      return absl::InvalidArgumentError(absl::StrCat(Describe(*instruction_), ": found ", instruction_->operand_count(),
                                                     " operands, expected one for each of the ", size_,
                                                     " devices of a group"));
    }
    std::vector<Instruction*> rows;
    Dims row = instruction_->operand(0)->shape().dims();
    row.insert(row.begin(), 1);
    for (Instruction* operand : instruction_->operands()) rows.push_back(builder_.Reshape(operand, row));
    Instruction* all = builder_.Concatenate(rows, 0);
    Instruction* exchanged = Clone(all, all->shape());
    std::vector<Instruction*> parts;
    for (int64_t i = 0; i < size_; ++i) parts.push_back(builder_.Element(exchanged, i));
    return builder_.Tuple(parts);
  }

  Instruction* instruction_;
  const int64_t size_;
  hlo::Builder builder_;
};

Opcode SynchronousForm(Opcode start) {
  switch (start) {
    case Opcode::kAllReduceStart:
      return Opcode::kAllReduce;
    case Opcode::kAllGatherStart:
      return Opcode::kAllGather;
    case Opcode::kCollectivePermuteStart:
      return Opcode::kCollectivePermute;
    default:
      return start;
  }
}

// Replaces x-done(x-start(...)) with x(...).
void JoinPair(Instruction* done) {
  Instruction* start = done->operand(0);
  const Opcode opcode = SynchronousForm(start->opcode());
  if (opcode == start->opcode()) return;
  auto joined = std::make_unique<Instruction>(opcode, done->shape());
  joined->set_name(start->name());
  joined->set_dimensions(start->dimensions());
  joined->mutable_called() = start->called();
  joined->mutable_attributes() = start->attributes();
  joined->mutable_metadata() = start->metadata();
  joined->mutable_frontend_attributes() = start->frontend_attributes();
  done->ReplaceAllUsesWith(done->parent()->Add(std::move(joined), start->operands()));
}

absl::Status CanonicalizeIn(Computation* computation, int64_t devices) {
  for (Instruction* instruction : Snapshot(*computation)) {
    switch (instruction->opcode()) {
      case Opcode::kAllReduceDone:
      case Opcode::kAllGatherDone:
      case Opcode::kCollectivePermuteDone:
        JoinPair(instruction);
        break;
      default:
        break;
    }
  }
  computation->RemoveDead();
  for (Instruction* instruction : Snapshot(*computation)) {
    if (!hlo::IsCollective(instruction->opcode()) || instruction->opcode() == Opcode::kCollectivePermute) continue;
    XLAD_ASSIGN_OR_RETURN(auto groups, DeviceGroups(*instruction, devices));
    const int64_t size = groups.empty() ? 1 : std::ssize(groups[0]);
    XLAD_ASSIGN_OR_RETURN(Instruction * better, Rewriter(instruction, size).Rewrite());
    if (better != nullptr) instruction->ReplaceAllUsesWith(better);
  }
  FinishEdits(computation);
  return absl::OkStatus();
}

}  // namespace

absl::Status CanonicalizeCollectives(hlo::Module& module, PassContext& context) {
  for (Computation* computation : StepComputations(module)) {
    XLAD_RETURN_IF_ERROR(CanonicalizeIn(computation, context.devices));
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
