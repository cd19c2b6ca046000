#include "sharding/proof/first_difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_join.h"
#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"
#include "sharding/model/axes.h"
#include "sharding/partition/deferred_reductions.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

using hlo::Computation;
using hlo::Instruction;
using hlo::Literal;
using hlo::Opcode;

// A copy of a computation, as the entry of a module of its own.
struct Extract {
  std::unique_ptr<hlo::Module> module;
  absl::flat_hash_map<const Instruction*, Instruction*> copies;

  Extract(const Computation& computation, int64_t num_partitions)
      : module(std::make_unique<hlo::Module>(computation.name())) {
    Computation* copy = module->CloneComputation(computation, computation.name());
    module->set_entry(copy);
    module->num_partitions = num_partitions;
    for (size_t i = 0; i < computation.instructions().size(); ++i) {
      copies[computation.instructions()[i].get()] = copy->instructions()[i].get();
    }
  }
  void SetOutputs(const std::vector<Instruction*>& outputs) {
    module->entry()->set_root(hlo::Builder(module->entry()).Tuple(outputs));
    module->entry()->SortTopologically();
    module->SortComputations();
  }
};

using Inputs = std::vector<Literal>;  // The inputs of one device.
using Shards = std::vector<Literal>;  // One value, by device.
using Arrays = std::vector<const tensor::Array*>;

absl::StatusOr<Shards> Evaluate(const hlo::Module& module, const std::vector<Inputs>& inputs) {
  return hlo::Evaluate(std::vector<const hlo::Module*>(inputs.size(), &module), inputs);
}

std::vector<Inputs> AsInputs(const Shards& shards) {
  std::vector<Inputs> inputs;
  for (const Literal& shard : shards) inputs.push_back({shard});
  return inputs;
}

// A computation of the source program and its counterparts: `expected` in the reference, which runs on one device or on
// all, and `found` in the partitioned program.
struct Pair {
  const Computation& source;
  const Computation& expected;
  const Computation& found;
};

class Comparer {
 public:
  Comparer(const MappedProgram& mapped, const MappedProgram* reference, double tolerance)
      : whole_(mapped.whole), program_(mapped.program), source_map_(mapped.source_map), reference_(reference),
        tolerance_(tolerance) {
    if (reference == nullptr) return;
    for (const auto& [source, place] : reference->source_map.arrays) arrays_[source->name()] = place;
    for (const auto& [source, local] : reference->source_map.control) control_[source->name()] = local;
  }

  absl::StatusOr<std::optional<Difference>> Run(const Pair& pair, const std::vector<Inputs>& expected,
                                                const std::vector<Inputs>& found);

 private:
  // The instruction that has the value in the reference, or null if there is none or the reference splits the value.
  const Instruction* ExpectedArray(const Instruction& source, AxisList* unreduced) const;
  const Instruction* ExpectedControl(const Instruction& source) const;
  Instruction* Reduced(Extract& local, Instruction* x, const AxisList& axes) const;
  std::optional<Difference> Compare(const Instruction& instruction, const Arrays& expected, const Arrays& nudged,
                                    const Arrays& found) const;
  absl::StatusOr<std::optional<Difference>> InsideLoop(const Instruction& loop, Shards expected, Shards found);
  absl::StatusOr<std::optional<Difference>> InsideBranch(const Instruction& branch, const Shards& expected,
                                                         const Shards& found);

  const ShardedModule& whole_;
  const PartitionedProgram& program_;
  const SourceMap& source_map_;
  const MappedProgram* const reference_;
  // The arrays of the reference, by name in the source program.
  absl::flat_hash_map<std::string, SourceMap::ShardOfValue> arrays_;
  absl::flat_hash_map<std::string, const Instruction*> control_;
  const double tolerance_;
};

const Instruction* Comparer::ExpectedArray(const Instruction& source, AxisList* unreduced) const {
  if (reference_ == nullptr) return &source;
  const auto place = arrays_.find(source.name());
  if (place == arrays_.end()) return nullptr;
  TensorSharding sharding = place->second.sharding;
  *unreduced = std::exchange(sharding.unreduced, {});
  return sharding.IsReplicated() ? place->second.local : nullptr;
}

const Instruction* Comparer::ExpectedControl(const Instruction& source) const {
  if (reference_ == nullptr) return &source;
  const auto found = control_.find(source.name());
  return found == control_.end() ? nullptr : found->second;
}

// The sum of the partial sums `x`.
Instruction* Comparer::Reduced(Extract& local, Instruction* x, const AxisList& axes) const {
  if (axes.empty()) return x;
  const hlo::ReplicaGroups groups = ReplicaGroupsOver(program_.mesh, axes);
  constexpr int64_t kFirstUnusedChannel = int64_t{1} << 40;
  const int64_t channel = kFirstUnusedChannel + std::ssize(local.module->entry()->instructions());
  return hlo::Builder(local.module->entry())
      .AllReduce(x, hlo::ScalarReducer(local.module.get(), Opcode::kAdd, x->shape().type()), groups, channel);
}

double LargestFinite(const tensor::Array& array) {
  double largest = 0, parts[2];
  for (size_t i = 0; i < array.elements(); ++i) {
    for (int p = FloatParts(array, i, parts); p-- > 0;) {
      if (std::isfinite(parts[p])) largest = std::max(largest, std::abs(parts[p]));
    }
  }
  return largest;
}

bool Same(const tensor::Array& a, const tensor::Array& b, size_t i, double allowed) {
  double x[2], y[2];
  const int parts = FloatParts(a, i, x);
  FloatParts(b, i, y);
  if (parts == 0) {
    const size_t width = tensor::ByteWidth(a.shape().type);
    return std::memcmp(a.bytes().data() + i * width, b.bytes().data() + i * width, width) == 0;
  }
  for (int p = 0; p < parts; ++p) {
    const bool same = x[p] == y[p] || (std::isnan(x[p]) && std::isnan(y[p])) || std::abs(x[p] - y[p]) <= allowed;
    if (!same) return false;
  }
  return true;
}

std::optional<Difference> Comparer::Compare(const Instruction& instruction, const Arrays& expected,
                                            const Arrays& nudged, const Arrays& found) const {
  const TensorSharding& sharding = source_map_.arrays.at(&instruction).sharding;
  double allowed = 0;
  for (int64_t device = 0; device < program_.mesh.devices(); ++device) {
    const size_t at = expected.size() == 1 ? 0 : device;
    const tensor::Array& whole = *expected[at];
    if (device == 0 || at > 0) {
      allowed = AllowedDifference(whole, *nudged[at], tolerance_);
    }
    const tensor::Box box = BoxOf(whole.shape().dims, program_.mesh, sharding, device);
    const Dims sizes = box.sizes();
    const tensor::Array part = tensor::ExtractBox(whole, box, sizes);
    const tensor::Array local = tensor::ExtractBox(*found[device],
                                                   tensor::Box{Dims(sizes.size(), 0), sizes}, sizes);
    Dims index(sizes.size(), 0);
    for (size_t i = 0; i < part.elements(); ++i) {
      if (!Same(part, local, i, allowed)) {
        Difference difference;
        const std::string place = whole_.module->SourceOf(instruction);
        difference.instruction = absl::StrCat(instruction.name(), " (", hlo::ToString(instruction.opcode()), ")",
                                              place.empty() ? "" : absl::StrCat(" at ", place));
        difference.device = device;
        for (size_t d = 0; d < index.size(); ++d) difference.index.push_back(box.lo[d] + index[d]);
        for (int digits = 6; digits <= 17 && difference.whole == difference.partitioned; digits += 11) {
          difference.whole = ElementText(part, i, digits);
          difference.partitioned = ElementText(local, i, digits);
        }
        return difference;
      }
      tensor::NextIndex(sizes, absl::MakeSpan(index));
    }
  }
  return std::nullopt;
}

// Whether all devices hold the same bytes.
bool Agree(const Shards& shards) {
  return std::all_of(shards.begin(), shards.end(), [&](const Literal& shard) {
    return absl::c_equal(shard.array.bytes(), shards[0].array.bytes());
  });
}

// Compares a loop iteration by iteration. Stops if devices of the reference leave the loop at different times.
absl::StatusOr<std::optional<Difference>> Comparer::InsideLoop(const Instruction& loop, Shards expected,
                                                               Shards found) {
  const Instruction& reference = *ExpectedControl(loop);
  const Instruction& local = *source_map_.control.at(&loop);
  const auto devices = std::ssize(expected);
  const Extract condition(*reference.called()[0], devices), body(*reference.called()[1], devices);
  const Extract local_body(*local.called()[1], program_.mesh.devices());
  for (int64_t iteration = 0;; ++iteration) {
    const std::vector<Inputs> inputs = AsInputs(expected), local_inputs = AsInputs(found);
    XLAD_ASSIGN_OR_RETURN(const Shards continues, Evaluate(*condition.module, inputs));
    if (continues[0].array.bytes()[0] == std::byte{0} || !Agree(continues)) return std::nullopt;
    XLAD_ASSIGN_OR_RETURN(
        std::optional<Difference> difference,
        Run({*loop.called()[1], *reference.called()[1], *local.called()[1]}, inputs, local_inputs));
    if (difference) {
      difference->inside.insert(difference->inside.begin(), absl::StrCat("iteration ", iteration, " of ", loop.name()));
      return difference;
    }
    XLAD_ASSIGN_OR_RETURN(expected, Evaluate(*body.module, inputs));
    XLAD_ASSIGN_OR_RETURN(found, Evaluate(*local_body.module, local_inputs));
  }
}

absl::StatusOr<std::optional<Difference>> Comparer::InsideBranch(const Instruction& branch, const Shards& expected,
                                                                 const Shards& found) {
  Shards predicates;
  for (const Literal& shard : expected) predicates.push_back(shard.tuple[0]);
  if (!Agree(predicates)) return std::nullopt;
  const tensor::Array& predicate = predicates[0].array;
  const auto count = std::ssize(branch.called());
  int64_t chosen = 0;
  if (predicate.shape().type == tensor::ElementType::kPred) {
    chosen = predicate.bytes()[0] != std::byte{0} ? 0 : 1;
  } else {
    chosen = predicate.values<int32_t>()[0];
    if (chosen < 0 || chosen >= count) chosen = count - 1;
  }
  const size_t at = chosen;
  std::vector<Inputs> inputs, local_inputs;
  for (const Literal& shard : expected) inputs.push_back({shard.tuple[at + 1]});
  for (const Literal& shard : found) local_inputs.push_back({shard.tuple[at + 1]});
  const Pair pair{*branch.called()[at], *ExpectedControl(branch)->called()[at],
                  *source_map_.control.at(&branch)->called()[at]};
  XLAD_ASSIGN_OR_RETURN(std::optional<Difference> difference, Run(pair, inputs, local_inputs));
  if (difference) {
    difference->inside.insert(difference->inside.begin(), absl::StrCat("branch ", chosen, " of ", branch.name()));
  }
  return difference;
}

absl::StatusOr<std::optional<Difference>> Comparer::Run(const Pair& pair, const std::vector<Inputs>& expected,
                                                        const std::vector<Inputs>& found) {
  Extract whole(pair.expected, std::ssize(expected)), part(pair.found, program_.mesh.devices());
  struct Compared {
    const Instruction* instruction;
    bool is_control;  // Whether it is a loop or conditional, whose operands are compared.
  };
  std::vector<Compared> compared;
  std::vector<Instruction*> outputs, local_outputs;
  for (const Instruction* instruction : LiveInstructions(pair.source)) {
    const auto array = source_map_.arrays.find(instruction);
    const auto control = source_map_.control.find(instruction);
    const Instruction* reference = control == source_map_.control.end() ? nullptr : ExpectedControl(*instruction);
    if (whole.copies.contains(reference) && part.copies.contains(control->second)) {
      hlo::Builder builder(whole.module->entry()), local_builder(part.module->entry());
      outputs.push_back(builder.Tuple(whole.copies.at(reference)->operands()));
      local_outputs.push_back(local_builder.Tuple(part.copies.at(control->second)->operands()));
      compared.push_back({instruction, true});
    }
    AxisList unreduced;
    reference = array == source_map_.arrays.end() ? nullptr : ExpectedArray(*instruction, &unreduced);
    if (whole.copies.contains(reference) && part.copies.contains(array->second.local)) {
      outputs.push_back(Reduced(whole, whole.copies.at(reference), unreduced));
      local_outputs.push_back(Reduced(part, part.copies.at(array->second.local), array->second.sharding.unreduced));
      compared.push_back({instruction, false});
    }
  }
  whole.SetOutputs(outputs);
  part.SetOutputs(local_outputs);
  XLAD_ASSIGN_OR_RETURN(const Shards values, Evaluate(*whole.module, expected));
  std::vector<Inputs> near;
  for (const Inputs& inputs : expected) near.push_back(Nudged(inputs));
  XLAD_ASSIGN_OR_RETURN(const Shards nudged, Evaluate(*whole.module, near));
  XLAD_ASSIGN_OR_RETURN(const Shards shards, Evaluate(*part.module, found));
  for (size_t i = 0; i < compared.size(); ++i) {
    const Instruction& instruction = *compared[i].instruction;
    std::optional<Difference> difference;
    if (!compared[i].is_control) {
      const auto arrays = [i](const Shards& shards) {
        Arrays found;
        for (const Literal& shard : shards) found.push_back(&shard.tuple[i].array);
        return found;
      };
      difference = Compare(instruction, arrays(values), arrays(nudged), arrays(shards));
    } else {
      const bool loop = instruction.opcode() == Opcode::kWhile;
      const auto operand = [&](const Literal& device) { return loop ? device.tuple[i].tuple[0] : device.tuple[i]; };
      Shards operands, local_operands;
      for (const Literal& value : values) operands.push_back(operand(value));
      for (const Literal& shard : shards) local_operands.push_back(operand(shard));
      XLAD_ASSIGN_OR_RETURN(difference,
                            loop ? InsideLoop(instruction, std::move(operands), std::move(local_operands))
                                 : InsideBranch(instruction, operands, local_operands));
    }
    if (difference) return difference;
  }
  return std::nullopt;
}

}  // namespace

double AllowedDifference(const tensor::Array& whole, const tensor::Array& nudged, double tolerance) {
  double moved = 0, x[2] = {}, y[2] = {};
  for (size_t i = 0; i < whole.elements(); ++i) {
    FloatParts(nudged, i, y);
    for (int p = FloatParts(whole, i, x); p-- > 0;) {
      if (std::isfinite(x[p]) && std::isfinite(y[p])) moved = std::max(moved, std::abs(x[p] - y[p]));
    }
  }
  return tolerance * LargestFinite(whole) + kRoundingOverNudging * moved;
}

std::string Difference::ToString() const {
  const std::string place = inside.empty() ? "" : absl::StrCat(", in ", absl::StrJoin(inside, ", "));
  return absl::StrCat(instruction, place, ": device ", device, ", element [", absl::StrJoin(index, ","), "]: expected ",
                      whole, ", found ", partitioned);
}

absl::StatusOr<std::optional<Difference>> FirstDifference(const MappedProgram& program, const MappedProgram* reference,
                                                          const std::vector<Literal>& inputs, double tolerance) {
  const Computation& source = *program.whole.module->entry();
  const Computation& expected = reference == nullptr ? source : *reference->program.variants[0].module->entry();
  return Comparer(program, reference, tolerance)
      .Run({source, expected, *program.program.variants[0].module->entry()},
           reference == nullptr ? std::vector<Inputs>{inputs} : ShardInputs(reference->program, inputs),
           ShardInputs(program.program, inputs));
}

}  // namespace xlad::sharding
