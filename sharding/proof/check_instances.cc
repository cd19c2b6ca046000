#include "sharding/proof/check_instances.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"
#include "sharding/proof/equivalence.h"
#include "sharding/proof/instance_sizes.h"
#include "sharding/rules/op_rule.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

const ValueSharding* ShardingsOf(const ShardedModule& program, const Instruction& instruction) {
  const auto found = program.shardings.find(&instruction);
  return found == program.shardings.end() ? nullptr : &found->second;
}

// Ops that are tried: arrays in, arrays out, with a rule; sources, data flow and control flow have nothing to prove.
bool IsTried(const ShardedModule& program, const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kParameter:
    case Opcode::kConstant:
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
    case Opcode::kWhile:
    case Opcode::kConditional:
    case Opcode::kCustomCall:
    case Opcode::kOptBarrier: return false;
    default: break;
  }
  const ValueSharding* own = ShardingsOf(program, instruction);
  if (own == nullptr || RuleOf(instruction).results.empty() || hlo::IsCollective(instruction.opcode())) return false;
  bool split = std::any_of(own->begin(), own->end(), [](const TensorSharding& s) { return !s.IsReplicated(); });
  for (const Instruction* operand : instruction.operands()) {
    const ValueSharding* sharding = ShardingsOf(program, *operand);
    if (!operand->shape().is_array() || sharding == nullptr || sharding->size() != 1) return false;
    split |= !sharding->front().IsReplicated();
  }
  return split;
}

// A scalar constant stays one: what it is decides how reductions start.
bool StaysConstant(const Instruction& operand) {
  return operand.opcode() == Opcode::kConstant && operand.shape().is_scalar();
}

// The module of one op, with the program's shardings.
ShardedModule MakeInstance(const ShardedModule& program, const Instruction& instruction, const InstanceSizes& sizes) {
  ShardedModule instance;
  instance.mesh = program.mesh;
  instance.module = std::make_unique<hlo::Module>("instance");
  hlo::Computation* entry = instance.module->Add(std::make_unique<hlo::Computation>("main"));
  instance.module->set_entry(entry);
  hlo::Builder builder(entry);
  std::vector<Instruction*> operands;
  int64_t parameters = 0;
  for (int64_t i = 0; i < instruction.operand_count(); ++i) {
    const Instruction& operand = *instruction.operand(i);
    hlo::Shape shape(operand.shape().type(), sizes.operands[i]);
    Instruction* made = StaysConstant(operand) ? entry->Add(operand.CloneWithoutOperands())
                                               : builder.Parameter(parameters++, shape, absl::StrCat("operand", i));
    instance.shardings[made] = *ShardingsOf(program, operand);
    operands.push_back(made);
  }
  std::unique_ptr<Instruction> op = instruction.CloneWithoutOperands();
  size_t next = 0;
  if (op->shape().is_array()) op->mutable_shape() = hlo::Shape(op->shape().type(), sizes.results[next]);
  else for (hlo::Shape& leaf : op->mutable_shape().tuple()) leaf = hlo::Shape(leaf.type(), sizes.results[next++]);
  if (sizes.window) op->mutable_attributes().window = sizes.window;
  for (size_t d = 0; d < op->attributes().slice.size(); ++d) {
    // Dimensions that are taken whole may have become smaller.
    const int64_t size = sizes.operands[0][d];
    if (size != instruction.operand(0)->shape().dims()[d]) op->mutable_attributes().slice[d] = {0, size, 1};
  }
  for (hlo::Computation*& called : op->mutable_called()) {
    called = instance.module->CloneComputation(*called, called->name());
  }
  Instruction* root = entry->Add(std::move(op), operands);
  root->set_name("op");
  entry->set_root(root);
  instance.shardings[root] = *ShardingsOf(program, instruction);
  instance.results = instance.shardings[root];
  instance.module->SortComputations();
  return instance;
}

std::string Signature(const ShardedModule& instance) {
  const hlo::Computation& entry = *instance.module->entry();
  std::string signature = absl::StrCat(instance.mesh.ToString(), "|", entry.root()->ToString());
  for (const hlo::Computation* computation : entry.root()->called()) {
    for (const auto& instruction : computation->instructions()) {
      absl::StrAppend(&signature, ";", hlo::ToString(instruction->opcode()));
    }
  }
  for (const auto& instruction : entry.instructions()) {
    absl::StrAppend(&signature, "|", instruction->shape().ToString(false));
    for (const TensorSharding& sharding : instance.shardings.at(instruction.get())) {
      absl::StrAppend(&signature, " ", ToString(instance.mesh, sharding));
    }
  }
  return signature;
}

// True the first time in this process.
bool FirstTime(const std::string& signature) {
  static std::mutex mutex;
  static auto* seen = new absl::flat_hash_set<std::string>();
  std::lock_guard<std::mutex> lock(mutex);
  return seen->insert(signature).second;
}

absl::Status Prove(const ShardedModule& instance, bool* skipped) {
  const std::vector<hlo::Literal> inputs = SampleInputs(*instance.module, 17);
  absl::StatusOr<hlo::Literal> whole = hlo::Evaluate(*instance.module, inputs);
  if (whole.status().code() == absl::StatusCode::kUnimplemented) {
    *skipped = true;
    return absl::OkStatus();
  }
  XLAD_RETURN_IF_ERROR(whole.status());
  XLAD_ASSIGN_OR_RETURN(const PartitionedProgram partitioned, Partition(instance));
  XLAD_ASSIGN_OR_RETURN(const hlo::Literal joined, EvaluatePartitioned(partitioned, inputs));
  return CompareValues(joined, *whole, 1e-4);
}

absl::Status Blame(const ShardedModule& program, const Instruction& instruction, const absl::Status& status) {
  const std::string source = program.module->SourceOf(instruction);
  std::vector<std::string> operands;
  for (const Instruction* operand : instruction.operands()) {
    operands.push_back(ToString(program.mesh, (*ShardingsOf(program, *operand))[0]));
  }
  return absl::InternalError(absl::StrCat(
      "partitioning of ", instruction.name(), source.empty() ? "" : absl::StrCat(" (", source, ")"), ", ",
      hlo::ToString(instruction.opcode()), " of ", absl::StrJoin(operands, ", "), " -> ",
      ToString(program.mesh, (*ShardingsOf(program, instruction))[0]), " over ", program.mesh.ToString(),
      ", is wrong on a small instance: ", std::string(status.message()), " [instance]"));
}

}  // namespace

absl::StatusOr<InstanceCounts> CheckInstances(const ShardedModule& program) {
  InstanceCounts counts;
  for (const auto& computation : program.module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (!IsTried(program, *instruction)) continue;
      const std::optional<InstanceSizes> sizes = SmallSizes(program, *instruction);
      if (!sizes) {
        ++counts.skipped;
        continue;
      }
      const ShardedModule instance = MakeInstance(program, *instruction, *sizes);
      if (!FirstTime(Signature(instance))) {
        ++counts.known;
        continue;
      }
      bool skipped = false;
      const absl::Status status = Prove(instance, &skipped);
      if (!status.ok()) return Blame(program, *instruction, status);
      ++(skipped ? counts.skipped : counts.proven);
    }
  }
  return counts;
}

}  // namespace xlad::sharding
