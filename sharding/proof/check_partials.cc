// Follows partial results from the op that makes them to the collective that reduces them.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "hlo/analysis/constants.h"
#include "hlo/attribute_keys.h"
#include "hlo/build/builder.h"
#include "sharding/model/axes.h"
#include "sharding/partition/identity.h"
#include "sharding/partition/local_array.h"
#include "sharding/proof/check_structure.h"
#include "sharding/rules/linear.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// The state of an array: the axes along which it must still be reduced, and the reduction.
struct Leaf {
  AxisList axes;
  Opcode reduction = Opcode::kAdd;
  bool zero = false;  // All elements are zero. The array can count as a partial sum along any axes.
};
using Leaves = std::vector<Leaf>;

// Ops that only copy data or move it between devices. Their results are partial along the same axes as their operands.
bool IsMove(Opcode opcode) {
  return opcode == Opcode::kCopy || opcode == Opcode::kAllGather || opcode == Opcode::kAllToAll ||
         opcode == Opcode::kCollectivePermute;
}

// Ops that move elements or reinterpret their bits, and may therefore be applied before any reduction.
bool KeepsBits(Opcode opcode) {
  switch (opcode) {
    case Opcode::kBitcastConvert:
    case Opcode::kComplex:
    case Opcode::kReal:
    case Opcode::kImag:
    case Opcode::kReshape:
    case Opcode::kTranspose:
    case Opcode::kSlice:
    case Opcode::kDynamicSlice:
    case Opcode::kConcatenate:
    case Opcode::kPad: return true;
    default: return IsMove(opcode);
  }
}

// Whether every element is the constant zero of either sign.
bool IsZeroArray(const Instruction& x) { return IsNeutralStart(*hlo::RepeatedValue(&x), Opcode::kAdd); }

class PartialFlow {
 public:
  explicit PartialFlow(const PartitionedProgram& program) : program_(program), infos_(ByChannel(program)) {}

  // The leaves of the root if the parameters have the given leaves.
  absl::StatusOr<Leaves> Run(const hlo::Computation& computation, const std::vector<Leaves>& parameters) {
    for (const auto& instruction : computation.instructions()) {
      Leaves leaves;
      if (instruction->opcode() == Opcode::kParameter) {
        const size_t number = instruction->number();
        leaves = number < parameters.size() ? parameters[number] : Leaves(LeafShapes(instruction->shape()).size());
      } else {
        XLAD_ASSIGN_OR_RETURN(leaves, Visit(*instruction));
      }
      values_[instruction.get()] = std::move(leaves);
    }
    return values_.at(computation.root());
  }

  // Calls Run, and returns an error if the root is partial.
  absl::Status RunReduced(const hlo::Computation& computation, const std::vector<Leaves>& parameters) {
    XLAD_ASSIGN_OR_RETURN(const Leaves root, Run(computation, parameters));
    for (const Leaf& leaf : root) {
      if (!leaf.axes.empty()) return Fault(*computation.root(), leaf.axes, "leaves its computation");
    }
    return absl::OkStatus();
  }

 private:
  const Leaf& ArrayOf(const Instruction* x) const { return values_.at(x)[0]; }
  // The first partial leaf of x, or a leaf without axes if no leaf is partial.
  Leaf PartialOf(const Instruction* x) const {
    for (const Leaf& leaf : values_.at(x)) {
      if (!leaf.axes.empty()) return leaf;
    }
    return {};
  }

  absl::Status Fault(const Instruction& instruction, const AxisList& axes, absl::string_view what) const {
    return absl::InternalError(absl::StrCat("partitioned program: ", instruction.name(), ": a partial result along ",
                                            ToString(program_.mesh, axes), " ", what, " [partial-reduced-once]"));
  }

  absl::StatusOr<Leaves> Visit(const Instruction& instruction) {
    switch (instruction.opcode()) {
      case Opcode::kTuple:
      case Opcode::kOptBarrier: {
        Leaves leaves;
        for (const Instruction* operand : instruction.operands()) {
          leaves.insert(leaves.end(), values_.at(operand).begin(), values_.at(operand).end());
        }
        return leaves;
      }
      case Opcode::kGetTupleElement: return Element(instruction);
      case Opcode::kWhile: return Loop(instruction);
      case Opcode::kConditional: return Branches(instruction);
      default: return Op(instruction);
    }
  }

  Leaves Element(const Instruction& instruction) const {
    const Instruction* tuple = instruction.operand(0);
    const auto leaves = absl::MakeSpan(values_.at(tuple))
                            .subspan(FirstArrayLeaf(tuple->shape(), instruction.number()),
                                     LeafShapes(instruction.shape()).size());
    return Leaves(leaves.begin(), leaves.end());
  }

  // A carried value that starts from zero may become partial in the body. It then counts as partial from the start.
  absl::StatusOr<Leaves> Loop(const Instruction& loop) {
    Leaves carried = values_.at(loop.operand(0));
    for (bool changed = true; changed;) {
      changed = false;
      XLAD_ASSIGN_OR_RETURN(const Leaves next, Run(*loop.called()[1], {carried}));
      for (size_t i = 0; i < carried.size(); ++i) {
        if (carried[i].zero && !next[i].zero) {
          carried[i] = next[i];
          changed = true;
        } else if (carried[i].axes != next[i].axes && !next[i].zero) {
          const AxisList& axes = carried[i].axes.empty() ? next[i].axes : carried[i].axes;
          return Fault(loop, axes, absl::StrCat("is carried as value ", i, " in only some of the iterations"));
        }
      }
    }
    XLAD_RETURN_IF_ERROR(RunReduced(*loop.called()[0], {carried}));
    return carried;
  }

  absl::StatusOr<Leaves> Branches(const Instruction& conditional) {
    for (const Instruction* operand : conditional.operands()) {
      const AxisList axes = PartialOf(operand).axes;
      if (!axes.empty()) return Fault(*operand, axes, "enters a branch");
    }
    for (size_t i = 0; i < conditional.called().size(); ++i) {
      XLAD_RETURN_IF_ERROR(
          RunReduced(*conditional.called()[i], {values_.at(conditional.operand(i + 1))}));
    }
    return Leaves(LeafShapes(conditional.shape()).size());
  }

  // The state of an op's result.
  absl::StatusOr<Leaves> Op(const Instruction& instruction) {
    Leaves result(LeafShapes(instruction.shape()).size());
    const bool reduces = instruction.opcode() == Opcode::kAllReduce || instruction.opcode() == Opcode::kReduceScatter;
    const auto info = infos_.find(instruction.attributes().channel_id.value_or(-1));
    if (reduces && info != infos_.end() && !info->second->written_by_user) {
      XLAD_ASSIGN_OR_RETURN(result[0], Reduced(instruction, info->second->axes));
      return result;
    }
    XLAD_ASSIGN_OR_RETURN(Leaf leaf, FromOperands(instruction));
    AxisList& axes = leaf.axes;
    if (const std::string* partial = hlo::FindAttribute(instruction, hlo::kPartialAxesKey)) {
      XLAD_ASSIGN_OR_RETURN(const AxisList own, ParseAxes(instruction, *partial));
      for (const AxisRef& axis : own) {
        if (OverlapsAny(axis, axes)) return Fault(instruction, axes, "is made partial along the same axis again");
      }
      const Opcode reduction = OwnReduction(instruction);
      if (!axes.empty() && leaf.reduction != reduction) {
        return Fault(instruction, axes, "is reduced in a different way than the op's own partial result");
      }
      leaf.reduction = reduction;
      axes.insert(axes.end(), own.begin(), own.end());
      std::sort(axes.begin(), axes.end());
      axes = Merged(axes);
    }
    std::fill(result.begin(), result.end(), leaf);
    if (instruction.shape().is_array()) result[0].zero = IsZeroArray(instruction) || MadeOfZeros(instruction);
    return result;
  }

  // Whether all operands in which the op is linear are zero, like a row of a loop's accumulator before the first
  // iteration.
  bool MadeOfZeros(const Instruction& instruction) const {
    bool any = false;
    for (int64_t i = 0; i < instruction.operand_count(); ++i) {
      if (!IsMove(instruction.opcode()) && !IsLinearIn(instruction, i)) continue;
      if (!ArrayOf(instruction.operand(i)).zero) return false;
      any = true;
    }
    return any;
  }

  // The reduction of the partial result that an instruction is marked to make.
  static Opcode OwnReduction(const Instruction& instruction) {
    const std::string* reduction = hlo::FindAttribute(instruction, hlo::kPartialReductionKey);
    return reduction == nullptr ? Opcode::kAdd : hlo::ParseOpcode(*reduction).value_or(Opcode::kAdd);
  }

  // Whether the op may be applied to parts of operand i that `reduction` combines.
  static bool Accepts(const Instruction& instruction, int64_t i, Opcode reduction) {
    if (reduction != Opcode::kAdd) {
      const bool all = instruction.opcode() == Opcode::kConcatenate || instruction.opcode() == Opcode::kComplex;
      return KeepsBits(instruction.opcode()) && (i == 0 || all);
    }
    return IsMove(instruction.opcode()) || IsLinearIn(instruction, i);
  }

  // Combines the operands' states. Either no operand is partial, or every operand that may be partial is zero or
  // partial along the same axes.
  absl::StatusOr<Leaf> FromOperands(const Instruction& instruction) const {
    Leaf result;
    for (const Instruction* operand : instruction.operands()) {
      if (result.axes.empty()) result = PartialOf(operand);
    }
    result.zero = false;
    if (result.axes.empty()) return result;
    for (int64_t i = 0; i < instruction.operand_count(); ++i) {
      const Instruction* operand = instruction.operand(i);
      const Leaf own = PartialOf(operand);
      const bool accepts = Accepts(instruction, i, result.reduction);
      if (!own.axes.empty() && !accepts) {
        return absl::Status(Fault(*operand, own.axes, absl::StrCat("is used by ", instruction.name())));
      }
      const bool same = own.axes == result.axes && own.reduction == result.reduction;
      if (accepts && !same && !ArrayOf(operand).zero) {
        return absl::Status(
            Fault(*operand, result.axes, absl::StrCat("is combined with another value by ", instruction.name())));
      }
    }
    return result;
  }

  // The result of an all-reduce or reduce-scatter along `along`.
  absl::StatusOr<Leaf> Reduced(const Instruction& collective, const AxisList& along) const {
    const Instruction& operand = *collective.operand(0);
    const Leaf from = PartialOf(&operand);
    if (hlo::ReducerOpcode(*collective.called()[0]) != from.reduction) {
      return absl::Status(Fault(operand, from.axes, absl::StrCat("is reduced by ", collective.name(), ", expected ",
                                                                 hlo::ToString(from.reduction))));
    }
    AxisCuts cuts;
    cuts.Add(along);
    cuts.Add(from.axes);
    if (!cuts.Resolve(program_.mesh)) {
      return absl::Status(Fault(operand, from.axes, "is reduced along parts of axes that overlap it"));
    }
    AxisList left = cuts.Cut(from.axes);
    for (const AxisRef& axis : cuts.Cut(along)) {
      if (std::erase(left, axis) == 0) {
        return absl::Status(
            Fault(operand, from.axes, absl::StrCat("is reduced along ", ToString(program_.mesh, along))));
      }
    }
    std::sort(left.begin(), left.end());
    return Leaf{Merged(left), left.empty() ? Opcode::kAdd : from.reduction};
  }

  // Parses axes as ToString writes them: "dp,tp:(1)2".
  absl::StatusOr<AxisList> ParseAxes(const Instruction& instruction, absl::string_view text) const;

  const PartitionedProgram& program_;
  const CollectivesByChannel infos_;
  absl::flat_hash_map<const Instruction*, Leaves> values_;
};

absl::StatusOr<AxisList> PartialFlow::ParseAxes(const Instruction& instruction, absl::string_view text) const {
  AxisList axes;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> pieces = absl::StrSplit(part, absl::MaxSplits(":(", 1));
    const std::optional<int> axis = program_.mesh.Find(pieces[0]);
    if (!axis)
      return absl::InternalError(absl::StrCat(instruction.name(), ": found the axis ", part,
                                              " in xlad.partial, expected an axis of the mesh"));
    AxisRef ref = program_.mesh.Whole(*axis);
    if (pieces.size() == 2) {
      const std::vector<absl::string_view> numbers = absl::StrSplit(pieces[1], ')');
      if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &ref.pre) || !absl::SimpleAtoi(numbers[1], &ref.size)) {
        return absl::InternalError(absl::StrCat(instruction.name(), ": found ", part,
                                                " in xlad.partial, expected AXIS or AXIS:(PRE)SIZE"));
      }
    }
    axes.push_back(ref);
  }
  return axes;
}

}  // namespace

absl::Status CheckPartials(const PartitionedProgram& program, const hlo::Module& module) {
  return PartialFlow(program).RunReduced(*module.entry(), {});
}

}  // namespace xlad::sharding
