#include "sharding/proof/check_structure.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "hlo/analysis/collectives.h"
#include "hlo/analysis/constants.h"
#include "hlo/analysis/leaves.h"
#include "sharding/proof/axis_dependence.h"
#include "sharding/proof/fixed_points.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

absl::Status Fault(const Instruction& instruction, absl::string_view what, absl::string_view label) {
  return absl::InternalError(
      absl::StrCat("partitioned program: ", instruction.name(), ": ", what, " [", label, "]"));
}

absl::Status CheckGroups(const Instruction& instruction, int64_t devices) {
  const hlo::ReplicaGroups& groups = instruction.attributes().replica_groups;
  if (groups.iota) {
    // Every permutation of the iota contains each device exactly once.
    if (tensor::Product(groups.iota->dims) == devices && groups.iota->dims.size() == 2) return absl::OkStatus();
    return Fault(instruction,
                 absl::StrCat("found iota groups of ", tensor::Product(groups.iota->dims), " devices in ",
                              groups.iota->dims.size(), " dimensions, expected ", devices, " devices in 2 dimensions"),
                 "groups-cover");
  }
  std::vector<int64_t> seen(devices, 0);
  size_t size = 0;
  for (const auto& group : groups.Expand(devices)) {
    if (size != 0 && group.size() != size) return Fault(instruction, "found groups of different sizes", "groups-equal");
    size = group.size();
    for (int64_t device : group) {
      if (device < 0 || device >= devices || seen[device]++ != 0) {
        const bool outside = device < 0 || device >= devices;
        return Fault(instruction,
                     absl::StrCat("found device ", device, outside ? "" : " twice", ", expected each of 0..",
                                  devices - 1, " in one group"),
                     "groups-cover");
      }
    }
  }
  if (std::count(seen.begin(), seen.end(), 1) != devices) {
    return Fault(instruction, "found a device in no group", "groups-cover");
  }
  return absl::OkStatus();
}

absl::Status CheckPairs(const Instruction& instruction, int64_t devices) {
  absl::flat_hash_set<int64_t> sources, targets;
  for (const auto& [source, target] : instruction.attributes().source_target_pairs) {
    const bool inside = source >= 0 && source < devices && target >= 0 && target < devices;
    if (!inside || !sources.insert(source).second || !targets.insert(target).second) {
      return Fault(instruction,
                   absl::StrCat("found pair {", source, ",", target,
                                "}, expected devices in 0..", devices - 1,
                                ", each at most once as source and at most once as target"),
                   "permute-one-to-one");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCollectives(const PartitionedProgram& program, const hlo::Module& module) {
  const CollectivesByChannel infos = ByChannel(program);
  absl::flat_hash_set<int64_t> channels;
  const int64_t devices = program.mesh.devices();
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (!hlo::IsCollective(instruction->opcode())) continue;
      const bool permute = instruction->opcode() == Opcode::kCollectivePermute;
      XLAD_RETURN_IF_ERROR(permute ? CheckPairs(*instruction, devices) : CheckGroups(*instruction, devices));
      const auto info = infos.find(instruction->attributes().channel_id.value_or(-1));
      if (info == infos.end()) continue;  // Not recorded by partitioning.
      if (!channels.insert(info->first).second) return Fault(*instruction, "its channel is used twice", "channel-once");
      if (info->second->because.empty()) return Fault(*instruction, "found no cause", "collective-cause");
    }
  }
  return absl::OkStatus();
}

namespace {

using Numbers = std::vector<uint64_t>;  // One number per device.

uint64_t Mix(uint64_t a, uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2);
  a *= 0xbf58476d1ce4e5b9u;
  return a ^ (a >> 31);
}

// The numbers of an instruction's value, by leaf and device.
struct NumberedValue {
  std::vector<Numbers> leaves;
  std::vector<int64_t> known;  // By device: the value, if it is an integer computed from the partition id only.
};

class Numbering {
 public:
  Numbering(const PartitionedProgram& program) : program_(program), devices_(program.mesh.devices()) {}

  absl::StatusOr<NumberedValue> Run(const hlo::Computation& computation, const std::vector<NumberedValue>& parameters);
  // The numbers of the entry's parameters: devices that hold the same shard have the same number.
  std::vector<NumberedValue> EntryParameters(const hlo::Computation& entry) const;
  uint64_t PartOf(const TensorSharding& sharding, int64_t device) const;

 private:
  using Values = absl::flat_hash_map<const Instruction*, NumberedValue>;

  NumberedValue Fresh(const Instruction& instruction) const;
  NumberedValue Visit(const Instruction& instruction, const Values& values) const;
  NumberedValue VisitCollective(const Instruction& instruction, const Values& values) const;
  absl::StatusOr<NumberedValue> VisitWhile(const Instruction& instruction, const Values& values);
  absl::StatusOr<NumberedValue> VisitConditional(const Instruction& instruction, const Values& values);
  void EvaluateIntegers(const Instruction& instruction, const Values& values, NumberedValue* value) const;
  // Numbers the called computation with the index `callee` of `caller`, whose parameter has the numbers `parameter`.
  absl::StatusOr<NumberedValue> RunCalled(const Instruction& caller, size_t callee, const NumberedValue& parameter) {
    return fixed_points_.Inside(caller, callee, [&] { return Run(*caller.called()[callee], {parameter}); });
  }

  const PartitionedProgram& program_;
  const int64_t devices_;
  // By loop, carried leaf and device: the first device with an equal value.
  FixedPoints<std::vector<Numbers>> fixed_points_;
};

uint64_t Numbering::PartOf(const TensorSharding& sharding, int64_t device) const {
  uint64_t part = 1;
  for (const DimensionSharding& dim : sharding.dims) {
    part = Mix(part, program_.mesh.Position(device, dim.axes));
  }
  for (const AxisRef& axis : sharding.unreduced) {
    part = Mix(part, program_.mesh.Position(device, {axis}));
  }
  return part;
}

std::vector<NumberedValue> Numbering::EntryParameters(const hlo::Computation& entry) const {
  std::vector<NumberedValue> parameters;
  size_t leaf = 0;
  for (const Instruction* parameter : entry.parameters()) {
    NumberedValue value;
    for (size_t i = 0; i < CountArrayLeaves(parameter->shape()); ++i, ++leaf) {
      Numbers numbers;
      for (int64_t d = 0; d < devices_; ++d) numbers.push_back(Mix(leaf + 1, PartOf(program_.parameters[leaf], d)));
      value.leaves.push_back(std::move(numbers));
    }
    parameters.push_back(std::move(value));
  }
  return parameters;
}

// Numbers that are equal on all devices, and different for every instruction and leaf.
NumberedValue Numbering::Fresh(const Instruction& instruction) const {
  NumberedValue value;
  for (size_t i = 0; i < CountArrayLeaves(instruction.shape()); ++i) {
    value.leaves.emplace_back(devices_, Mix(reinterpret_cast<uintptr_t>(&instruction), i));
  }
  return value;
}

// Returns whether the integer type can hold the value.
bool Fits(int64_t value, ElementType type) {
  const int bits = tensor::BitWidth(type);
  if (!tensor::IsSigned(type)) return value >= 0 && (bits == 64 || value >> bits == 0);
  const int64_t rest = value >> (bits - 1);  // The sign bit of the type and all higher bits.
  return rest == 0 || rest == -1;
}

// Evaluates integer arithmetic on the partition id into value->known, as long as no result wraps around. Devices that
// have the same position along an axis then also have the same number for this position.
void Numbering::EvaluateIntegers(const Instruction& instruction, const Values& values, NumberedValue* value) const {
  if (!instruction.shape().is_scalar() || !tensor::IsInteger(instruction.shape().type())) return;
  const auto known = [&](int64_t i) -> const std::vector<int64_t>& { return values.at(instruction.operand(i)).known; };
  std::vector<int64_t> result;
  if (instruction.opcode() == Opcode::kPartitionId) {
    for (int64_t d = 0; d < devices_; ++d) result.push_back(d);
  } else if (const std::optional<int64_t> constant = hlo::ConstantInteger(instruction)) {
    result.assign(devices_, *constant);
  } else if (instruction.opcode() == Opcode::kConvert || instruction.opcode() == Opcode::kCopy ||
             instruction.opcode() == Opcode::kReshape) {
    result = known(0);
  } else if (instruction.operand_count() == 2 && hlo::IsElementwise(instruction.opcode())) {
    for (size_t d = 0; d < known(0).size() && d < known(1).size(); ++d) {
      const int64_t x = known(0)[d], y = known(1)[d];
      int64_t z = 0;
      bool is_exact = false;
      switch (instruction.opcode()) {
        case Opcode::kAdd: is_exact = !__builtin_add_overflow(x, y, &z); break;
        case Opcode::kSubtract: is_exact = !__builtin_sub_overflow(x, y, &z); break;
        case Opcode::kMultiply: is_exact = !__builtin_mul_overflow(x, y, &z); break;
        case Opcode::kDivide: z = y > 0 ? x / y : 0; is_exact = y > 0; break;
        case Opcode::kRemainder: z = y > 0 ? x % y : 0; is_exact = y > 0; break;
        default: break;
      }
      if (!is_exact) return;
      result.push_back(z);
    }
  }
  const ElementType type = instruction.shape().type();
  if (result.empty() || !std::all_of(result.begin(), result.end(), [&](int64_t x) { return Fits(x, type); })) return;
  for (size_t d = 0; d < result.size(); ++d) value->leaves[0][d] = Mix(77, result[d]);
  value->known = std::move(result);
}

NumberedValue Numbering::VisitCollective(const Instruction& instruction, const Values& values) const {
  NumberedValue result = Fresh(instruction);
  for (size_t leaf = 0; leaf < result.leaves.size(); ++leaf) {
    const size_t operand = std::min<size_t>(leaf, instruction.operand_count() - 1);
    const Numbers& from = values.at(instruction.operand(operand)).leaves[0];
    Numbers& to = result.leaves[leaf];
    if (instruction.opcode() == Opcode::kCollectivePermute) {
      for (const auto& [source, target] : instruction.attributes().source_target_pairs) {
        to[target] = from[source];
      }
      continue;
    }
    const bool parts = instruction.opcode() == Opcode::kReduceScatter || instruction.opcode() == Opcode::kAllToAll;
    for (const auto& group : instruction.attributes().replica_groups.Expand(devices_)) {
      uint64_t all = Mix(leaf, static_cast<uint64_t>(instruction.opcode()));
      for (int64_t device : group) all = Mix(all, from[device]);
      for (size_t i = 0; i < group.size(); ++i) to[group[i]] = parts ? Mix(all, i + 1) : all;
    }
  }
  return result;
}

NumberedValue Numbering::Visit(const Instruction& instruction, const Values& values) const {
  if (hlo::IsCollective(instruction.opcode())) return VisitCollective(instruction, values);
  if (instruction.opcode() == Opcode::kTuple) {
    NumberedValue result;
    for (const Instruction* operand : instruction.operands()) {
      const NumberedValue& value = values.at(operand);
      result.leaves.insert(result.leaves.end(), value.leaves.begin(), value.leaves.end());
    }
    return result;
  }
  if (instruction.opcode() == Opcode::kGetTupleElement) {
    const hlo::Shape& tuple = instruction.operand(0)->shape();
    const auto begin =
        values.at(instruction.operand(0)).leaves.begin() + FirstArrayLeaf(tuple, instruction.number());
    return {{begin, begin + CountArrayLeaves(instruction.shape())}, {}};
  }
  if (instruction.opcode() == Opcode::kOptBarrier) return values.at(instruction.operand(0));
  NumberedValue result = Fresh(instruction);
  for (Numbers& numbers : result.leaves) {
    for (const Instruction* operand : instruction.operands()) {
      for (const Numbers& from : values.at(operand).leaves) {
        for (size_t d = 0; d < numbers.size(); ++d) numbers[d] = Mix(numbers[d], from[d]);
      }
    }
  }
  EvaluateIntegers(instruction, values, &result);
  return result;
}

bool Uniform(const NumberedValue& value) {
  return std::all_of(value.leaves[0].begin(), value.leaves[0].end(),
                     [&](uint64_t number) { return number == value.leaves[0][0]; });
}

// For every device, the first device with the same number.
Numbers Representatives(const Numbers& numbers) {
  absl::flat_hash_map<uint64_t, uint64_t> first;
  Numbers result;
  for (size_t d = 0; d < numbers.size(); ++d) result.push_back(first.try_emplace(numbers[d], d).first->second);
  return result;
}

// Splits the sets of equal devices `equal`, given by their representatives, so that devices in a set also agree in
// `numbers`. Returns whether any set was split.
bool Refine(const Numbers& numbers, Numbers* equal) {
  Numbers both;
  for (size_t d = 0; d < numbers.size(); ++d) both.push_back(Mix((*equal)[d], numbers[d]));
  Numbers refined = Representatives(both);
  const bool changed = refined != *equal;
  *equal = std::move(refined);
  return changed;
}

// Computes the fixed point: carried values are equal on two devices if they are equal before the loop and after every
// iteration.
absl::StatusOr<NumberedValue> Numbering::VisitWhile(const Instruction& instruction, const Values& values) {
  std::vector<Numbers>& equal = fixed_points_.Of(instruction);
  const std::vector<Numbers>& initial = values.at(instruction.operand(0)).leaves;
  equal.resize(initial.size(), Numbers(devices_, 0));
  for (size_t leaf = 0; leaf < equal.size(); ++leaf) Refine(initial[leaf], &equal[leaf]);
  for (;;) {
    NumberedValue carried;
    for (size_t leaf = 0; leaf < equal.size(); ++leaf) {
      Numbers numbers;
      for (uint64_t device : equal[leaf]) {
        numbers.push_back(Mix(Mix(reinterpret_cast<uintptr_t>(&instruction), leaf), device));
      }
      carried.leaves.push_back(std::move(numbers));
    }
    XLAD_ASSIGN_OR_RETURN(const NumberedValue condition, RunCalled(instruction, 0, carried));
    XLAD_ASSIGN_OR_RETURN(const NumberedValue next, RunCalled(instruction, 1, carried));
    bool changed = false;
    for (size_t leaf = 0; leaf < equal.size(); ++leaf) changed |= Refine(next.leaves[leaf], &equal[leaf]);
    if (changed) continue;
    if (!Uniform(condition)) {
      if (hlo::ContainsCollective(*instruction.called()[0]) || hlo::ContainsCollective(*instruction.called()[1])) {
        return Fault(instruction, "devices may leave this loop, which contains collectives, at different times",
                     "uniform-predicate");
      }
      for (Numbers& leaf : carried.leaves) {
        for (size_t d = 0; d < leaf.size(); ++d) leaf[d] = Mix(leaf[d], condition.leaves[0][d]);
      }
    }
    return carried;
  }
}

absl::StatusOr<NumberedValue> Numbering::VisitConditional(const Instruction& instruction, const Values& values) {
  const NumberedValue& predicate = values.at(instruction.operand(0));
  NumberedValue result = Fresh(instruction);
  for (size_t branch = 0; branch < instruction.called().size(); ++branch) {
    const hlo::Computation& called = *instruction.called()[branch];
    if (!Uniform(predicate) && hlo::ContainsCollective(called)) {
      return Fault(instruction, "devices may take different branches around a collective", "uniform-predicate");
    }
    XLAD_ASSIGN_OR_RETURN(const NumberedValue value,
                          RunCalled(instruction, branch, values.at(instruction.operand(branch + 1))));
    for (size_t leaf = 0; leaf < result.leaves.size(); ++leaf) {
      for (size_t d = 0; d < result.leaves[leaf].size(); ++d) {
        result.leaves[leaf][d] = Mix(Mix(result.leaves[leaf][d], predicate.leaves[0][d]), value.leaves[leaf][d]);
      }
    }
  }
  return result;
}

absl::StatusOr<NumberedValue> Numbering::Run(const hlo::Computation& computation,
                                             const std::vector<NumberedValue>& parameters) {
  Values values;
  for (const auto& owned : computation.instructions()) {
    const Instruction& instruction = *owned;
    NumberedValue value;
    switch (instruction.opcode()) {
      case Opcode::kParameter: value = parameters[instruction.number()]; break;
      case Opcode::kWhile: {
        XLAD_ASSIGN_OR_RETURN(value, VisitWhile(instruction, values));
        break;
      }
      case Opcode::kConditional: {
        XLAD_ASSIGN_OR_RETURN(value, VisitConditional(instruction, values));
        break;
      }
      default: value = Visit(instruction, values);
    }
    values[&instruction] = std::move(value);
  }
  return values.at(computation.root());
}

}  // namespace

absl::Status CheckReplicasAgree(const PartitionedProgram& program, const hlo::Module& module) {
  if (ReplicasAgreeByAxes(program, module)) return absl::OkStatus();
  Numbering numbering(program);
  XLAD_ASSIGN_OR_RETURN(const NumberedValue root,
                        numbering.Run(*module.entry(), numbering.EntryParameters(*module.entry())));
  for (size_t leaf = 0; leaf < root.leaves.size(); ++leaf) {
    absl::flat_hash_map<uint64_t, int64_t> holder;
    for (int64_t d = 0; d < program.mesh.devices(); ++d) {
      const uint64_t part = numbering.PartOf(program.results[leaf], d);
      const int64_t first = holder.try_emplace(part, d).first->second;
      if (root.leaves[leaf][d] == root.leaves[leaf][first]) continue;
      return absl::InternalError(absl::StrCat(
          "partitioned program: result ", leaf, " as ", ToString(program.mesh, program.results[leaf]), ": devices ",
          first, " and ", d, " hold the same shard but may hold different values: a partial result was not reduced, "
          "or a shard was used as the global array [replicas-agree]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::sharding
