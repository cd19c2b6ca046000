// Partial results: from the op that makes them to the collective that makes them whole.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "hlo/attribute_keys.h"
#include "sharding/model/axes.h"
#include "sharding/partition/partitioner.h"
#include "sharding/proof/check_structure.h"
#include "sharding/rules/linear.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// What is known of one array: the axes along which it is still to be reduced; zero is a sum of any number of zeros.
struct Leaf {
  AxisList axes;
  bool zero = false;
};
using Leaves = std::vector<Leaf>;

// Ops that only carry data elsewhere: of the parts of one sum they make the parts of another.
bool IsMove(Opcode opcode) {
  return opcode == Opcode::kCopy || opcode == Opcode::kAllGather || opcode == Opcode::kAllToAll ||
         opcode == Opcode::kCollectivePermute;
}

class PartialFlow {
 public:
  PartialFlow(const PartitionedProgram& program) : program_(program) {
    for (const CollectiveInfo& info : program.collectives) infos_[info.collective_id] = &info;
  }

  // The leaves of the root, where parameters have these.
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

  // The same where nothing may be left to reduce.
  absl::Status RunWhole(const hlo::Computation& computation, const std::vector<Leaves>& parameters) {
    XLAD_ASSIGN_OR_RETURN(const Leaves root, Run(computation, parameters));
    for (const Leaf& leaf : root) {
      if (!leaf.axes.empty()) return Fault(*computation.root(), leaf.axes, "leaves its computation");
    }
    return absl::OkStatus();
  }

 private:
  const Leaf& ArrayOf(const Instruction* x) const { return values_.at(x)[0]; }
  AxisList PartialOf(const Instruction* x) const {
    for (const Leaf& leaf : values_.at(x)) {
      if (!leaf.axes.empty()) return leaf.axes;
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
    const Leaves& all = values_.at(instruction.operand(0));
    size_t first = 0;
    for (int64_t i = 0; i < instruction.number(); ++i) {
      first += LeafShapes(instruction.operand(0)->shape().tuple()[i]).size();
    }
    const auto begin = all.begin() + static_cast<int64_t>(first);
    return Leaves(begin, begin + static_cast<int64_t>(LeafShapes(instruction.shape()).size()));
  }

  // What starts from zero may become a partial result in the body; then it is one from the start.
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
          return Fault(loop, axes, absl::StrCat("is carried as value ", i, " of some iterations only"));
        }
      }
    }
    XLAD_RETURN_IF_ERROR(RunWhole(*loop.called()[0], {carried}));
    return carried;
  }

  absl::StatusOr<Leaves> Branches(const Instruction& conditional) {
    for (const Instruction* operand : conditional.operands()) {
      if (!PartialOf(operand).empty()) return Fault(*operand, PartialOf(operand), "enters a branch");
    }
    for (size_t i = 0; i < conditional.called().size(); ++i) {
      XLAD_RETURN_IF_ERROR(
          RunWhole(*conditional.called()[i], {values_.at(conditional.operand(i + 1))}));
    }
    return Leaves(LeafShapes(conditional.shape()).size());
  }

  // The axes that are still to be reduced in an op's result.
  absl::StatusOr<Leaves> Op(const Instruction& instruction) {
    Leaves result(LeafShapes(instruction.shape()).size());
    const bool reduces = instruction.opcode() == Opcode::kAllReduce || instruction.opcode() == Opcode::kReduceScatter;
    const auto info = infos_.find(instruction.attributes().channel_id.value_or(-1));
    if (reduces && info != infos_.end() && !info->second->written_by_user) {
      XLAD_ASSIGN_OR_RETURN(result[0].axes, Reduced(instruction, info->second->axes));
      return result;
    }
    XLAD_ASSIGN_OR_RETURN(AxisList axes, FromOperands(instruction));
    if (const std::string* partial = hlo::FindAttribute(instruction, hlo::kPartialAxesKey)) {
      XLAD_ASSIGN_OR_RETURN(const AxisList own, ParseAxes(instruction, *partial));
      for (const AxisRef& axis : own) {
        if (OverlapsAny(axis, axes)) return Fault(instruction, axes, "is made partial along the same axis again");
      }
      axes.insert(axes.end(), own.begin(), own.end());
      std::sort(axes.begin(), axes.end());
      axes = Merged(axes);
    }
    for (Leaf& leaf : result) leaf.axes = axes;
    if (instruction.shape().is_array()) result[0].zero = IsZero(instruction) || MadeOfZeros(instruction);
    return result;
  }

  // Whether all that the op is linear in is zero: a row of a loop's accumulator before the first iteration.
  bool MadeOfZeros(const Instruction& instruction) const {
    bool any = false;
    for (int64_t i = 0; i < instruction.operand_count(); ++i) {
      if (!IsMove(instruction.opcode()) && !IsLinearIn(instruction, i)) continue;
      if (!ArrayOf(instruction.operand(i)).zero) return false;
      any = true;
    }
    return any;
  }

  // Of the operands in which the op is linear either none is partial, or all are along the same axes, or zero.
  absl::StatusOr<AxisList> FromOperands(const Instruction& instruction) const {
    AxisList axes;
    for (const Instruction* operand : instruction.operands()) {
      if (axes.empty()) axes = PartialOf(operand);
    }
    if (axes.empty()) return axes;
    for (int64_t i = 0; i < instruction.operand_count(); ++i) {
      const Instruction* operand = instruction.operand(i);
      const AxisList own = PartialOf(operand);
      const bool linear = IsMove(instruction.opcode()) || IsLinearIn(instruction, i);
      if (!own.empty() && !linear) return absl::StatusOr<AxisList>(Fault(
          *operand, own, absl::StrCat("is used by ", instruction.name())));
      if (linear && own != axes && !ArrayOf(operand).zero) {
        return absl::StatusOr<AxisList>(Fault(*operand, axes, absl::StrCat("is added to another value by ",
                                                                         instruction.name())));
      }
    }
    return axes;
  }

  absl::StatusOr<AxisList> Reduced(const Instruction& collective, const AxisList& along) const {
    AxisCuts cuts;
    cuts.Add(along);
    cuts.Add(PartialOf(collective.operand(0)));
    const AxisList from = PartialOf(collective.operand(0));
    if (!cuts.Resolve(program_.mesh)) {
      return Fault(*collective.operand(0), from, "is reduced along unlike parts of axes");
    }
    AxisList left = cuts.Cut(from);
    for (const AxisRef& axis : cuts.Cut(along)) {
      if (std::erase(left, axis) == 0) {
        return Fault(*collective.operand(0), from, absl::StrCat("is reduced along ", ToString(program_.mesh, along)));
      }
    }
    std::sort(left.begin(), left.end());
    return Merged(left);
  }

  // "dp,tp:(1)2" as ToString writes it.
  absl::StatusOr<AxisList> ParseAxes(const Instruction& instruction, absl::string_view text) const;

  const PartitionedProgram& program_;
  absl::flat_hash_map<int64_t, const CollectiveInfo*> infos_;
  absl::flat_hash_map<const Instruction*, Leaves> values_;
};

absl::StatusOr<AxisList> PartialFlow::ParseAxes(const Instruction& instruction, absl::string_view text) const {
  AxisList axes;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> pieces = absl::StrSplit(part, absl::MaxSplits(":(", 1));
    const std::optional<int> axis = program_.mesh.Find(pieces[0]);
    if (!axis)
      return absl::InternalError(absl::StrCat(instruction.name(), ": found the axis ", part, " in xlad.partial"));
    AxisRef ref = program_.mesh.Whole(*axis);
    if (pieces.size() == 2) {
      const std::vector<absl::string_view> numbers = absl::StrSplit(pieces[1], ')');
      if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &ref.pre) || !absl::SimpleAtoi(numbers[1], &ref.size)) {
        return absl::InternalError(absl::StrCat(instruction.name(), ": found ", part, " in xlad.partial"));
      }
    }
    axes.push_back(ref);
  }
  return axes;
}

}  // namespace

absl::Status CheckPartials(const PartitionedProgram& program, const hlo::Module& module) {
  return PartialFlow(program).RunWhole(*module.entry(), {});
}

}  // namespace xlad::sharding
