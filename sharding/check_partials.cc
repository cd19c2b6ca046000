// Partial results: from the op that makes them to the collective that makes them whole.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "sharding/check_structure.h"
#include "sharding/partition/axes.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// Ops that only move data: of partial results they make partial results.
bool Moves(Opcode opcode) {
  return opcode == Opcode::kPad || opcode == Opcode::kSlice || opcode == Opcode::kDynamicSlice ||
         opcode == Opcode::kReshape || opcode == Opcode::kTranspose || opcode == Opcode::kGetTupleElement;
}

class PartialFlow {
 public:
  PartialFlow(const PartitionedProgram& program) : program_(program) {
    for (const CollectiveInfo& info : program.collectives) infos_[info.collective_id] = &info;
  }

  absl::Status Run(const hlo::Computation& computation) {
    for (const auto& instruction : computation.instructions()) {
      XLAD_ASSIGN_OR_RETURN(AxisList axes, Visit(*instruction));
      if (!axes.empty()) partial_[instruction.get()] = std::move(axes);
    }
    return partial_.contains(computation.root()) ? Fault(*computation.root(), "leaves its computation")
                                                 : absl::OkStatus();
  }

 private:
  AxisList PartialOf(const Instruction* x) const {
    const auto found = partial_.find(x);
    return found == partial_.end() ? AxisList{} : found->second;
  }

  absl::Status Fault(const Instruction& instruction, absl::string_view what) const {
    return absl::InternalError(absl::StrCat("partitioned program: ", instruction.name(), ": a partial result along ",
                                            ToString(program_.mesh, PartialOf(&instruction)), " ", what,
                                            " [partial-reduced-once]"));
  }

  // The axes that are still to be reduced in this instruction's result.
  absl::StatusOr<AxisList> Visit(const Instruction& instruction) const {
    const auto mark = instruction.frontend_attributes().find("xlad.partial");
    AxisList own;
    if (mark != instruction.frontend_attributes().end()) {
      XLAD_ASSIGN_OR_RETURN(own, ParseAxes(instruction, mark->second));
    }
    const bool reduces = instruction.opcode() == Opcode::kAllReduce || instruction.opcode() == Opcode::kReduceScatter;
    const auto info = infos_.find(instruction.attributes().channel_id.value_or(-1));
    if (reduces && info != infos_.end() && !info->second->written_by_user)
      return Reduced(instruction, info->second->axes);
    for (int64_t i = 0; i < instruction.operand_count(); ++i) {
      const AxisList from = PartialOf(instruction.operand(i));
      if (from.empty()) continue;
      if (i == 0 && Moves(instruction.opcode())) return from;
      return absl::StatusOr<AxisList>(Fault(*instruction.operand(i), absl::StrCat("is used by ", instruction.name())));
    }
    return own;
  }

  absl::StatusOr<AxisList> Reduced(const Instruction& collective, const AxisList& along) const {
    AxisCuts cuts;
    cuts.Add(along);
    cuts.Add(PartialOf(collective.operand(0)));
    if (!cuts.Resolve(program_.mesh)) return Fault(*collective.operand(0), "is reduced along unlike parts of axes");
    AxisList left = cuts.Cut(PartialOf(collective.operand(0)));
    for (const AxisRef& axis : cuts.Cut(along)) {
      if (std::erase(left, axis) == 0) {
        return Fault(*collective.operand(0), absl::StrCat("is reduced along ", ToString(program_.mesh, along)));
      }
    }
    return left;
  }

  // "dp,tp:(1)2" as ToString writes it.
  absl::StatusOr<AxisList> ParseAxes(const Instruction& instruction, absl::string_view text) const;

  const PartitionedProgram& program_;
  absl::flat_hash_map<int64_t, const CollectiveInfo*> infos_;
  absl::flat_hash_map<const Instruction*, AxisList> partial_;
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
  PartialFlow flow(program);
  for (const auto& computation : module.computations()) XLAD_RETURN_IF_ERROR(flow.Run(*computation));
  return absl::OkStatus();
}

}  // namespace xlad::sharding
