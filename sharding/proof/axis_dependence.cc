#include "sharding/proof/axis_dependence.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "hlo/analysis/collectives.h"
#include "hlo/analysis/constants.h"
#include "sharding/model/axes.h"
#include "sharding/partition/local_array.h"
#include "sharding/proof/fixed_points.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// A set of axis parts: bit i stands for part i.
using PartSet = uint64_t;
constexpr size_t kMaxParts = 64;

// The result of the analysis for a value: the axis parts on which each of its array leaves may depend.
struct Dependence {
  std::vector<PartSet> leaves;
  // If size > 0, the value is the integer (partition id / stride) % size.
  int64_t stride = 0, size = 0;
};
using Dependences = absl::flat_hash_map<const Instruction*, Dependence>;

class Analysis {
 public:
  explicit Analysis(const PartitionedProgram& program)
      : program_(program), mesh_(program.mesh), infos_(ByChannel(program)) {}

  bool Run(const hlo::Module& module) {
    if (!CutAxes()) return false;
    std::vector<Dependence> parameters;
    size_t leaf = 0;
    for (const Instruction* parameter : module.entry()->parameters()) {
      Dependence& dependence = parameters.emplace_back();
      for (size_t i = 0; i < LeafShapes(parameter->shape()).size(); ++i, ++leaf) {
        dependence.leaves.push_back(PartsOf(program_.parameters[leaf]));
      }
    }
    const Dependence root = RunComputation(*module.entry(), parameters);
    for (size_t i = 0; i < root.leaves.size() && proven_; ++i) {
      proven_ = (root.leaves[i] & ~PartsOf(program_.results[i])) == 0;
    }
    return proven_;
  }

 private:
  // Cuts the axes that the program uses into parts_.
  bool CutAxes() {
    AxisCuts cuts;
    AxisList full;
    for (int axis = 0; axis < std::ssize(mesh_.axes()); ++axis) full.push_back(mesh_.Whole(axis));
    cuts.Add(full);
    for (const CollectiveInfo& info : program_.collectives) cuts.Add(info.axes);
    for (const ValueSharding* value : {&program_.parameters, &program_.results}) {
      for (const TensorSharding& sharding : *value) {
        cuts.Add(DimensionAxesOf(sharding));
        cuts.Add(sharding.unreduced);
      }
    }
    if (!cuts.Resolve(mesh_)) return false;
    parts_ = cuts.Cut(full);
    return parts_.size() <= kMaxParts;
  }

  PartSet PartsOf(const AxisList& axes) const {
    PartSet parts = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (OverlapsAny(parts_[i], axes)) parts |= PartSet{1} << i;
    }
    return parts;
  }
  PartSet PartsOf(const TensorSharding& sharding) const {
    PartSet parts = PartsOf(sharding.unreduced);
    for (const DimensionSharding& dim : sharding.dims) parts |= PartsOf(dim.axes);
    return parts;
  }
  AxisList AxesOf(PartSet parts) const {
    AxisList axes;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if ((parts >> i & 1) != 0) axes.push_back(parts_[i]);
    }
    return axes;
  }

  Dependence RunComputation(const hlo::Computation& computation, const std::vector<Dependence>& parameters) {
    Dependences values;
    for (const auto& instruction : computation.instructions()) {
      values[instruction.get()] = instruction->opcode() == Opcode::kParameter ? parameters[instruction->number()]
                                                                               : Visit(*instruction, values);
    }
    return values.at(computation.root());
  }

  Dependence Visit(const Instruction& instruction, const Dependences& values) {
    switch (instruction.opcode()) {
      case Opcode::kOptBarrier:
      case Opcode::kTuple: {
        Dependence result;
        for (const Instruction* operand : instruction.operands()) {
          const auto& leaves = values.at(operand).leaves;
          result.leaves.insert(result.leaves.end(), leaves.begin(), leaves.end());
        }
        return result;
      }
      case Opcode::kGetTupleElement: {
        const Instruction* tuple = instruction.operand(0);
        const auto begin = values.at(tuple).leaves.begin() + FirstArrayLeaf(tuple->shape(), instruction.number());
        return {{begin, begin + LeafShapes(instruction.shape()).size()}};
      }
      case Opcode::kWhile: return VisitWhile(instruction, values);
      case Opcode::kConditional: return VisitConditional(instruction, values);
      default: return VisitOp(instruction, values);
    }
  }

  Dependence VisitOp(const Instruction& instruction, const Dependences& values) {
    PartSet parts = 0;
    for (const Instruction* operand : instruction.operands()) {
      for (PartSet leaf : values.at(operand).leaves) parts |= leaf;
    }
    if (hlo::IsCollective(instruction.opcode())) parts = AfterCollective(instruction, parts);
    Dependence result;
    Follow(instruction, values, &result);
    if (result.size > 0) {
      const std::optional<AxisList> axes = AxesOfStride(mesh_, result.stride, result.size);
      parts = axes ? PartsOf(*axes) : AllParts();
    }
    result.leaves.assign(LeafShapes(instruction.shape()).size(), parts);
    return result;
  }

  PartSet AllParts() const { return parts_.empty() ? 0 : ~PartSet{0} >> (kMaxParts - parts_.size()); }

  // Whether the type can represent every integer below `size`. A conversion to any other type can change the integer,
  // and a later division would then not divide a device number.
  static bool HoldsIntegersBelow(int64_t size, tensor::ElementType type) {
    if (!tensor::IsInteger(type)) return false;
    const int bits = tensor::BitWidth(type) - (tensor::IsSigned(type) ? 1 : 0);
    return bits >= 63 || size <= int64_t{1} << bits;
  }

  // Follows the partition id through the division and the remainder by constants.
  void Follow(const Instruction& instruction, const Dependences& values, Dependence* result) const {
    if (!instruction.shape().is_scalar()) return;
    if (instruction.opcode() == Opcode::kPartitionId) {
      *result = {{}, 1, mesh_.devices()};
      return;
    }
    const bool copies = instruction.opcode() == Opcode::kConvert || instruction.opcode() == Opcode::kCopy;
    const bool divides = instruction.opcode() == Opcode::kDivide, remains = instruction.opcode() == Opcode::kRemainder;
    if (!copies && !divides && !remains) return;
    const Dependence& from = values.at(instruction.operand(0));
    if (copies && HoldsIntegersBelow(from.size, instruction.shape().type())) {
      *result = {{}, from.stride, from.size};
    }
    if (copies || from.size == 0) return;
    const int64_t constant = hlo::ConstantInteger(*instruction.operand(1)).value_or(0);
    if (constant <= 0 || from.size % constant != 0) return;
    if (divides) *result = {{}, from.stride * constant, from.size / constant};
    else *result = {{}, from.stride, constant};
  }

  PartSet AfterCollective(const Instruction& instruction, PartSet parts) {
    const auto info = infos_.find(instruction.attributes().channel_id.value_or(-1));
    if (info == infos_.end()) return Unproven();
    const PartSet along = PartsOf(info->second->axes);
    if (instruction.opcode() == Opcode::kCollectivePermute) return AfterPermute(instruction, parts, along);
    if (instruction.attributes().replica_groups != ReplicaGroupsOver(mesh_, info->second->axes)) return Unproven();
    const bool scatters = instruction.opcode() == Opcode::kReduceScatter || instruction.opcode() == Opcode::kAllToAll;
    return (parts & ~along) | (scatters ? along : 0);
  }

  // If a permute along the parts `along` is the same in all groups of devices, the source's position along these parts
  // is a function of the target's position. The result depends on the parts on which that function depends.
  PartSet AfterPermute(const Instruction& instruction, PartSet parts, PartSet along) {
    const AxisList axes = AxesOf(along), others = AxesOf(~along & AllParts());
    const AxisList seen = AxesOf(parts & along);
    const int64_t positions = ShardCount(axes), groups = mesh_.devices() / positions;
    constexpr int64_t kNothing = -1;
    // By position of the target: the source's position along the parts on which the value depends, and the number of
    // targets.
    std::vector<int64_t> from(positions, kNothing), targets(positions, 0);
    for (const auto& [source, target] : instruction.attributes().source_target_pairs) {
      const int64_t at = mesh_.Position(target, axes), sees = mesh_.Position(source, seen);
      if (mesh_.Position(source, others) != mesh_.Position(target, others)) return Unproven();
      if (targets[at]++ > 0 && from[at] != sees) return Unproven();
      from[at] = sees;
    }
    if (!std::all_of(targets.begin(), targets.end(), [&](int64_t n) { return n == 0 || n == groups; })) {
      return Unproven();
    }
    PartSet depends = parts & ~along;
    int64_t stride = positions;
    for (const AxisRef& axis : axes) {
      stride /= axis.size;
      bool varies = false;
      for (int64_t at = 0; at < positions; ++at) varies |= from[at] != from[at - at / stride % axis.size * stride];
      if (varies) depends |= PartsOf(AxisList{axis});
    }
    return depends;
  }

  // Adds the parts of `more`, which may be empty. Returns whether any were new.
  static bool Extend(const std::vector<PartSet>& more, std::vector<PartSet>* leaves) {
    bool changed = false;
    for (size_t i = 0; i < more.size(); ++i) {
      changed |= (more[i] & ~(*leaves)[i]) != 0;
      (*leaves)[i] |= more[i];
    }
    return changed;
  }

  // Computes the fixed point: the parts on which the carried values depend in any iteration.
  Dependence VisitWhile(const Instruction& loop, const Dependences& values) {
    const hlo::Computation &condition = *loop.called()[0], &body = *loop.called()[1];
    std::vector<PartSet>& known = fixed_points_.Of(loop);
    Dependence carried{values.at(loop.operand(0)).leaves};
    Extend(known, &carried.leaves);
    for (bool changed = true; changed && proven_;) {
      const Dependence next = fixed_points_.Inside(loop, 1, [&] { return RunComputation(body, {carried}); });
      changed = Extend(next.leaves, &carried.leaves);
    }
    known = carried.leaves;
    const PartSet predicate =
        fixed_points_.Inside(loop, 0, [&] { return RunComputation(condition, {carried}); }).leaves[0];
    if (predicate != 0 && (hlo::ContainsCollective(condition) || hlo::ContainsCollective(body))) Unproven();
    for (PartSet& leaf : carried.leaves) leaf |= predicate;
    return carried;
  }

  Dependence VisitConditional(const Instruction& conditional, const Dependences& values) {
    const PartSet predicate = values.at(conditional.operand(0)).leaves[0];
    Dependence result;
    result.leaves.assign(LeafShapes(conditional.shape()).size(), predicate);
    for (size_t branch = 0; branch < conditional.called().size(); ++branch) {
      const hlo::Computation& called = *conditional.called()[branch];
      if (predicate != 0 && hlo::ContainsCollective(called)) Unproven();
      const Dependence value = fixed_points_.Inside(
          conditional, branch, [&] { return RunComputation(called, {values.at(conditional.operand(branch + 1))}); });
      Extend(value.leaves, &result.leaves);
    }
    return result;
  }

  PartSet Unproven() {
    proven_ = false;
    return 0;
  }

  const PartitionedProgram& program_;
  const Mesh& mesh_;
  const CollectivesByChannel infos_;
  AxisList parts_;  // All parts of all axes of the mesh, in mesh order.
  FixedPoints<std::vector<PartSet>> fixed_points_;
  bool proven_ = true;
};

}  // namespace

bool ReplicasAgreeByAxes(const PartitionedProgram& program, const hlo::Module& module) {
  return Analysis(program).Run(module);
}

}  // namespace xlad::sharding
