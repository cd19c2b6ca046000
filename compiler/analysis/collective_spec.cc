#include "compiler/analysis/collective_spec.h"

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/utf8.h"
#include "compiler/analysis/instruction_facts.h"
#include "hlo/attribute_keys.h"
#include "hlo/build/builder.h"
#include "tensor/wire.h"

namespace xlad::compiler {
namespace {

absl::StatusOr<CollectiveSpec::Kind> KindOf(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kAllReduce:
      return CollectiveSpec::ALL_REDUCE;
    case Opcode::kAllGather:
      return CollectiveSpec::ALL_GATHER;
    case Opcode::kReduceScatter:
      return CollectiveSpec::REDUCE_SCATTER;
    case Opcode::kAllToAll:
      return CollectiveSpec::ALL_TO_ALL;
    case Opcode::kCollectivePermute:
      return CollectiveSpec::COLLECTIVE_PERMUTE;
    case Opcode::kCollectiveBroadcast:
      return CollectiveSpec::BROADCAST;
    default:
      return absl::UnimplementedError(
          absl::StrCat(Describe(instruction),
                       ": found a collective that the runtime does not execute, expected all-reduce, all-gather, "
                       "reduce-scatter, all-to-all, collective-permute or collective-broadcast"));
  }
}

absl::StatusOr<CollectiveSpec::Reduction> ReductionOf(const Instruction& instruction) {
  std::optional<Opcode> opcode = hlo::ReducerOpcode(*instruction.called()[0]);
  switch (opcode.value_or(Opcode::kTuple)) {
    case Opcode::kAdd:
      return CollectiveSpec::SUM;
    case Opcode::kMultiply:
      return CollectiveSpec::PRODUCT;
    case Opcode::kMaximum:
      return CollectiveSpec::MAX;
    case Opcode::kMinimum:
      return CollectiveSpec::MIN;
    case Opcode::kAnd:
      return CollectiveSpec::AND;
    case Opcode::kOr:
      return CollectiveSpec::OR;
    default:
      return absl::UnimplementedError(
          absl::StrCat(Describe(instruction), ": found reducer %", instruction.called()[0]->name(),
                       ", expected one of add, multiply, maximum, minimum, and, or on its two parameters"));
  }
}

void AddOrigin(const Instruction& instruction, CollectiveSpec* spec) {
  const hlo::CollectiveOrigin origin = hlo::ReadOrigin(instruction);
  for (absl::string_view axis : absl::StrSplit(origin.axes, ',', absl::SkipEmpty())) {
    spec->add_axes(ToUtf8(axis));
  }
  for (const std::string& line : origin.because) spec->add_because(ToUtf8(line));
  spec->set_op(ToUtf8(origin.ops.empty() ? instruction.name() : absl::StrJoin(origin.ops, ",")));
  spec->set_source(ToUtf8(instruction.parent()->parent()->SourceOf(instruction)));
}

std::vector<std::vector<int64_t>> OneGroup(int64_t devices) {
  std::vector<int64_t> all;
  for (int64_t d = 0; d < devices; ++d) all.push_back(d);
  return {all};
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int64_t>>> DeviceGroups(const Instruction& instruction, int64_t devices) {
  const hlo::Attributes& attributes = instruction.attributes();
  std::vector<std::vector<int64_t>> groups;
  const bool names_replicas = instruction.opcode() != Opcode::kAllToAll &&
                              instruction.opcode() != Opcode::kRaggedAllToAll &&
                              instruction.opcode() != Opcode::kCollectiveBroadcast &&
                              !attributes.use_global_device_ids && !attributes.replica_groups.mesh_axes.has_value();
  if (!attributes.channel_id.has_value() && !attributes.use_global_device_ids) {
    // The groups are groups of replicas. There is only one replica, so each device is a group of its own.
    for (int64_t d = 0; d < devices; ++d) groups.push_back({d});
    return groups;
  }
  // If there is a channel id but no global ids, a group of replicas contains all partitions of each of its replicas.
  groups = names_replicas ? OneGroup(devices) : attributes.replica_groups.Expand(devices);
  std::vector<bool> seen(devices, false);
  for (const std::vector<int64_t>& group : groups) {
    for (int64_t device : group) {
      if (device < 0 || device >= devices || seen[device]) {
        return absl::InvalidArgumentError(absl::StrCat(Describe(instruction), ": found device ", device,
                                                       " in its groups, expected each of 0 to ", devices - 1,
                                                       " at most once"));
      }
      seen[device] = true;
    }
    if (group.size() != groups[0].size()) {
      return absl::InvalidArgumentError(absl::StrCat(Describe(instruction), ": found groups of ", group.size(), " and ",
                                                     groups[0].size(), " devices, expected equal sizes"));
    }
  }
  return groups;
}

absl::Status CheckPairs(const Instruction& permute, int64_t devices) {
  for (const auto& [source, target] : permute.attributes().source_target_pairs) {
    if (source >= 0 && source < devices && target >= 0 && target < devices) continue;
    return absl::InvalidArgumentError(absl::StrCat(Describe(permute), ": found pair {", source, ",", target,
                                                   "}, expected devices from 0 to ", devices - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<CollectiveSpec> MakeCollectiveSpec(const Instruction& instruction, int64_t devices) {
  CollectiveSpec spec;
  XLAD_ASSIGN_OR_RETURN(CollectiveSpec::Kind kind, KindOf(instruction));
  spec.set_kind(kind);
  spec.set_collective_id(instruction.attributes().channel_id.value_or(0));
  if (kind == CollectiveSpec::ALL_REDUCE || kind == CollectiveSpec::REDUCE_SCATTER) {
    XLAD_ASSIGN_OR_RETURN(CollectiveSpec::Reduction reduction, ReductionOf(instruction));
    spec.set_reduction(reduction);
  }
  tensor::TypeToWire(instruction.operand(0)->shape().type(), &spec);
  for (const Instruction* operand : instruction.operands()) {
    if (operand->shape().type() != instruction.operand(0)->shape().type()) {
      return absl::UnimplementedError(absl::StrCat(
          Describe(instruction), ": found operands of ", tensor::ToString(instruction.operand(0)->shape().type()),
          " and ", tensor::ToString(operand->shape().type()), ", expected one type; use one collective per type"));
    }
    spec.add_counts(operand->shape().elements());
  }
  if (kind == CollectiveSpec::COLLECTIVE_PERMUTE) {
    XLAD_RETURN_IF_ERROR(CheckPairs(instruction, devices));
    for (const auto& [source, target] : instruction.attributes().source_target_pairs) {
      CollectiveSpec::Pair* pair = spec.add_pairs();
      pair->set_source(source);
      pair->set_target(target);
    }
  } else {
    XLAD_ASSIGN_OR_RETURN(auto groups, DeviceGroups(instruction, devices));
    for (const std::vector<int64_t>& group : groups) {
      spec.add_groups()->mutable_devices()->Add(group.begin(), group.end());
    }
  }
  AddOrigin(instruction, &spec);
  return spec;
}

}  // namespace xlad::compiler
