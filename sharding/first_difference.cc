#include "sharding/first_difference.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_join.h"
#include "hlo/builder.h"
#include "hlo/eval/evaluate.h"
#include "sharding/equivalence.h"
#include "sharding/partition/pending.h"

namespace xlad::sharding {
namespace {

using hlo::Computation;
using hlo::Instruction;
using hlo::Literal;
using hlo::Opcode;

// A computation made the entry of a module of its own.
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

class Comparer {
 public:
  Comparer(const ShardedModule& whole, const PartitionedProgram& program, const Trace& trace, double tolerance)
      : whole_(whole), program_(program), trace_(trace), tolerance_(tolerance) {}

  using Inputs = std::vector<Literal>;
  // Of one computation; local inputs by device.
  absl::StatusOr<std::optional<Difference>> Run(const Computation& source, const Computation& local,
                                                const Inputs& inputs, const std::vector<Inputs>& local_inputs);

 private:
  absl::StatusOr<std::vector<Literal>> Evaluate(const hlo::Module& module, const std::vector<Inputs>& inputs) const {
    const std::vector<const hlo::Module*> modules(static_cast<size_t>(program_.mesh.devices()), &module);
    return hlo::Evaluate(modules, inputs);
  }
  Instruction* Reduced(Extract& local, Instruction* x, const AxisList& axes) const;
  std::optional<Difference> Compare(const Instruction& instruction, const TensorSharding& sharding,
                                    const tensor::Array& whole, const std::vector<const tensor::Array*>& shards) const;
  absl::StatusOr<std::optional<Difference>> InsideLoop(const Instruction& loop, const Instruction& local,
                                                       Literal state, std::vector<Literal> local_state);
  absl::StatusOr<std::optional<Difference>> InsideBranch(const Instruction& branch, const Instruction& local,
                                                         const Literal& operands, const std::vector<Literal>& shards);

  const ShardedModule& whole_;
  const PartitionedProgram& program_;
  const Trace& trace_;
  const double tolerance_;
};

// The sum that `x` is a part of.
Instruction* Comparer::Reduced(Extract& local, Instruction* x, const AxisList& axes) const {
  if (axes.empty()) return x;
  hlo::ReplicaGroups groups;
  groups.groups = program_.mesh.Groups(axes);
  constexpr int64_t kFree = int64_t{1} << 40;  // Beyond all channels of the program.
  const int64_t channel = kFree + static_cast<int64_t>(local.module->entry()->instructions().size());
  return hlo::Builder(local.module->entry())
      .AllReduce(x, hlo::ScalarReducer(local.module.get(), Opcode::kAdd, x->shape().type()), groups, channel);
}

double Largest(const tensor::Array& array) {
  double largest = 0, parts[2];
  for (size_t i = 0; i < static_cast<size_t>(array.elements()); ++i) {
    for (int p = FloatParts(array, i, parts); p-- > 0;) {
      if (std::isfinite(parts[p])) largest = std::max(largest, std::abs(parts[p]));
    }
  }
  return largest;
}

std::string ElementText(const tensor::Array& array, size_t i) {
  double parts[2];
  const int count = FloatParts(array, i, parts);
  if (count == 1) return absl::StrCat(parts[0]);
  if (count == 2) return absl::StrCat("(", parts[0], ", ", parts[1], ")");
  int64_t bits = 0;
  const size_t width = static_cast<size_t>(tensor::ByteWidth(array.shape().type));
  std::memcpy(&bits, array.bytes().data() + i * width, std::min(width, sizeof(bits)));
  const int unused = 64 - 8 * static_cast<int>(std::min(width, sizeof(bits)));
  if (tensor::IsSigned(array.shape().type)) {
    bits = static_cast<int64_t>(static_cast<uint64_t>(bits) << unused) >> unused;
  }
  return absl::StrCat(bits);
}

bool Same(const tensor::Array& a, const tensor::Array& b, size_t i, double allowed) {
  double x[2], y[2];
  const int parts = FloatParts(a, i, x);
  FloatParts(b, i, y);
  if (parts == 0) {
    const size_t width = static_cast<size_t>(tensor::ByteWidth(a.shape().type));
    return std::memcmp(a.bytes().data() + i * width, b.bytes().data() + i * width, width) == 0;
  }
  for (int p = 0; p < parts; ++p) {
    const bool same = x[p] == y[p] || (std::isnan(x[p]) && std::isnan(y[p])) || std::abs(x[p] - y[p]) <= allowed;
    if (!same) return false;
  }
  return true;
}

std::optional<Difference> Comparer::Compare(const Instruction& instruction, const TensorSharding& sharding,
                                            const tensor::Array& whole,
                                            const std::vector<const tensor::Array*>& shards) const {
  const double allowed = tolerance_ * Largest(whole);
  for (int64_t device = 0; device < program_.mesh.devices(); ++device) {
    const tensor::Box box = BoxOf(whole.shape().dims, program_.mesh, sharding, device);
    const Dims sizes = box.sizes();
    const tensor::Array expected = tensor::ExtractBox(whole, box, sizes);
    const tensor::Array found = tensor::ExtractBox(*shards[static_cast<size_t>(device)],
                                                   tensor::Box{Dims(sizes.size(), 0), sizes}, sizes);
    Dims index(sizes.size(), 0);
    for (size_t i = 0; i < static_cast<size_t>(expected.elements()); ++i) {
      if (!Same(expected, found, i, allowed)) {
        Difference difference;
        const std::string place = whole_.module->SourceOf(instruction);
        difference.instruction = absl::StrCat(instruction.name(), " (", hlo::ToString(instruction.opcode()), ")",
                                              place.empty() ? "" : absl::StrCat(" at ", place));
        difference.device = device;
        for (size_t d = 0; d < index.size(); ++d) difference.index.push_back(box.lo[d] + index[d]);
        difference.whole = ElementText(expected, i);
        difference.partitioned = ElementText(found, i);
        return difference;
      }
      tensor::NextIndex(sizes, absl::MakeSpan(index));
    }
  }
  return std::nullopt;
}

// Steps a loop from `state` until an iteration's results differ, then looks into that iteration.
absl::StatusOr<std::optional<Difference>> Comparer::InsideLoop(const Instruction& loop, const Instruction& local,
                                                               Literal state, std::vector<Literal> local_state) {
  const Extract condition(*loop.called()[0], 1), body(*loop.called()[1], 1);
  const Extract local_body(*local.called()[1], program_.mesh.devices());
  for (int64_t iteration = 0;; ++iteration) {
    XLAD_ASSIGN_OR_RETURN(const Literal goes_on, hlo::Evaluate(*condition.module, {state}));
    if (goes_on.array.bytes()[0] == std::byte{0}) return std::nullopt;
    std::vector<Inputs> local_inputs;
    for (const Literal& shard : local_state) local_inputs.push_back({shard});
    XLAD_ASSIGN_OR_RETURN(std::optional<Difference> found,
                          Run(*loop.called()[1], *local.called()[1], {state}, local_inputs));
    if (found) {
      found->inside.insert(found->inside.begin(), absl::StrCat("iteration ", iteration, " of ", loop.name()));
      return found;
    }
    XLAD_ASSIGN_OR_RETURN(state, hlo::Evaluate(*body.module, {state}));
    XLAD_ASSIGN_OR_RETURN(local_state, Evaluate(*local_body.module, local_inputs));
  }
}

absl::StatusOr<std::optional<Difference>> Comparer::InsideBranch(const Instruction& branch, const Instruction& local,
                                                                 const Literal& operands,
                                                                 const std::vector<Literal>& shards) {
  int64_t chosen = 0;
  const tensor::Array& predicate = operands.tuple[0].array;
  const int64_t count = static_cast<int64_t>(branch.called().size());
  if (predicate.shape().type == tensor::ElementType::kPred) {
    chosen = predicate.bytes()[0] != std::byte{0} ? 0 : 1;
  } else {
    chosen = predicate.values<int32_t>()[0];
    if (chosen < 0 || chosen >= count) chosen = count - 1;
  }
  std::vector<Inputs> local_inputs;
  for (const Literal& shard : shards) local_inputs.push_back({shard.tuple[static_cast<size_t>(chosen) + 1]});
  XLAD_ASSIGN_OR_RETURN(std::optional<Difference> found,
                        Run(*branch.called()[static_cast<size_t>(chosen)], *local.called()[static_cast<size_t>(chosen)],
                            {operands.tuple[static_cast<size_t>(chosen) + 1]}, local_inputs));
  if (found) {
    found->inside.insert(found->inside.begin(), absl::StrCat("branch ", chosen, " of ", branch.name()));
  }
  return found;
}

absl::StatusOr<std::optional<Difference>> Comparer::Run(const Computation& source, const Computation& local,
                                                        const Inputs& inputs, const std::vector<Inputs>& local_inputs) {
  Extract whole(source, 1), part(local, program_.mesh.devices());
  struct Compared {
    const Instruction* instruction;
    bool inside;  // What goes into a loop or branch; else an array.
  };
  std::vector<Compared> compared;
  std::vector<Instruction*> outputs, local_outputs;
  for (const Instruction* instruction : LiveInstructions(source)) {
    const auto array = trace_.arrays.find(instruction);
    const auto control = trace_.control.find(instruction);
    if (control != trace_.control.end() && part.copies.contains(control->second)) {
      hlo::Builder builder(whole.module->entry()), local_builder(part.module->entry());
      outputs.push_back(builder.Tuple(whole.copies.at(instruction)->operands()));
      local_outputs.push_back(local_builder.Tuple(part.copies.at(control->second)->operands()));
      compared.push_back({instruction, true});
    }
    if (array != trace_.arrays.end() && part.copies.contains(array->second.local)) {
      outputs.push_back(whole.copies.at(instruction));
      local_outputs.push_back(Reduced(part, part.copies.at(array->second.local), array->second.sharding.unreduced));
      compared.push_back({instruction, false});
    }
  }
  whole.SetOutputs(outputs);
  part.SetOutputs(local_outputs);
  XLAD_ASSIGN_OR_RETURN(const Literal values, hlo::Evaluate(*whole.module, inputs));
  XLAD_ASSIGN_OR_RETURN(const std::vector<Literal> shards, Evaluate(*part.module, local_inputs));
  for (size_t i = 0; i < compared.size(); ++i) {
    const Instruction& instruction = *compared[i].instruction;
    std::optional<Difference> found;
    if (!compared[i].inside) {
      std::vector<const tensor::Array*> arrays;
      for (const Literal& shard : shards) arrays.push_back(&shard.tuple[i].array);
      found = Compare(instruction, trace_.arrays.at(&instruction).sharding, values.tuple[i].array, arrays);
    } else {
      std::vector<Literal> operands;
      for (const Literal& shard : shards) operands.push_back(shard.tuple[i]);
      const Instruction& inner = *trace_.control.at(&instruction);
      if (instruction.opcode() == Opcode::kWhile) {
        for (Literal& operand : operands) operand = Literal(operand.tuple[0]);
        XLAD_ASSIGN_OR_RETURN(found, InsideLoop(instruction, inner, values.tuple[i].tuple[0], std::move(operands)));
      } else {
        XLAD_ASSIGN_OR_RETURN(found, InsideBranch(instruction, inner, values.tuple[i], operands));
      }
    }
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace

std::string Difference::ToString() const {
  const std::string place = inside.empty() ? "" : absl::StrCat(", in ", absl::StrJoin(inside, ", "));
  return absl::StrCat(instruction, place, ": device ", device, ", element [", absl::StrJoin(index, ","), "]: expected ",
                      whole, ", found ", partitioned);
}

absl::StatusOr<std::optional<Difference>> FirstDifference(const ShardedModule& whole, const PartitionedProgram& program,
                                                          const Trace& trace, const std::vector<Literal>& inputs,
                                                          double tolerance) {
  for (const auto& computation : whole.module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (!instruction->frontend_attributes().contains("xlad.manual_axes")) continue;
      return absl::UnimplementedError(absl::StrCat(
          instruction->name(), ": found a manual computation, expected a program without: that can be compared by "
          "instruction"));
    }
  }
  return Comparer(whole, program, trace, tolerance)
      .Run(*whole.module->entry(), *program.variants[0].module->entry(), inputs, ShardInputs(program, inputs));
}

}  // namespace xlad::sharding
