#include "sharding/proof/check_instances.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"
#include "sharding/partition/ops/families.h"
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

// Whether the op has instances: its operands are arrays, it has a sharding rule, and something is split. Sources, data
// flow and control flow have nothing to prove.
bool HasInstance(const ShardedModule& program, const Instruction& instruction) {
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

// A scalar constant stays a constant, because its value decides how a reduction starts.
bool StaysConstant(const Instruction& operand) {
  return operand.opcode() == Opcode::kConstant && operand.shape().is_scalar();
}

// The module of one op, with the program's shardings.
ShardedModule MakeInstance(const ShardedModule& program, const Instruction& instruction, const InstanceSizes& sizes,
                           const SmallMesh& mesh) {
  ShardedModule instance;
  instance.mesh = mesh.mesh();
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
    instance.shardings[made] = mesh.Shortened(*ShardingsOf(program, operand));
    operands.push_back(made);
  }
  std::unique_ptr<Instruction> op = instruction.CloneWithoutOperands();
  size_t next = 0;
  if (op->shape().is_array()) op->mutable_shape() = hlo::Shape(op->shape().type(), sizes.results[next]);
  else for (hlo::Shape& leaf : op->mutable_shape().tuple()) leaf = hlo::Shape(leaf.type(), sizes.results[next++]);
  if (sizes.window) op->mutable_attributes().window = sizes.window;
  for (size_t d = 0; d < op->attributes().slice.size(); ++d) {
    // A dimension that the slice does not cut may have become smaller.
    const int64_t size = sizes.operands[0][d];
    if (size != instruction.operand(0)->shape().dims()[d]) op->mutable_attributes().slice[d] = {0, size, 1};
  }
  for (hlo::Computation*& called : op->mutable_called()) {
    called = instance.module->CloneComputation(*called, called->name());
  }
  Instruction* root = entry->Add(std::move(op), operands);
  root->set_name("op");
  entry->set_root(root);
  instance.shardings[root] = mesh.Shortened(*ShardingsOf(program, instruction));
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

// Which results of an op must be exact.
Exactness ExactnessOf(Opcode opcode) {
  switch (opcode) {
    case Opcode::kBitcastConvert:
    case Opcode::kBroadcast:
    case Opcode::kConcatenate:
    case Opcode::kCopy:
    case Opcode::kDynamicSlice:
    case Opcode::kDynamicUpdateSlice:
    case Opcode::kGather:
    case Opcode::kPad:
    case Opcode::kReshape:
    case Opcode::kReverse:
    case Opcode::kSelect:
    case Opcode::kSlice:
    case Opcode::kTranspose: return Exactness::kBits;
    case Opcode::kConvolution:
    case Opcode::kDot:
    case Opcode::kRaggedDot:
    case Opcode::kReduce:
    case Opcode::kReduceWindow:
    case Opcode::kScaledDot:
    case Opcode::kScatter:
    case Opcode::kSelectAndScatter: return Exactness::kSums;
    default: return Exactness::kArithmetic;
  }
}

absl::Status Prove(const ShardedModule& instance, bool* skipped) {
  const Exactness exactness = ExactnessOf(instance.module->entry()->root()->opcode());
  std::vector<hlo::Literal> inputs = SampleInputs(*instance.module, 17);
  if (exactness == Exactness::kBits) inputs = WithSpecialValues(std::move(inputs));
  absl::StatusOr<hlo::Literal> whole = hlo::Evaluate(*instance.module, inputs);
  if (whole.status().code() == absl::StatusCode::kUnimplemented) {
    *skipped = true;
    return absl::OkStatus();
  }
  XLAD_RETURN_IF_ERROR(whole.status());
  XLAD_ASSIGN_OR_RETURN(const PartitionedProgram partitioned, Partition(instance, FamilyOf));
  XLAD_ASSIGN_OR_RETURN(const hlo::Literal joined, EvaluatePartitioned(partitioned, inputs));
  return CompareValues(joined, *whole, 1e-4, exactness);
}

// Partitioning assumes laws of reducers that no proof covers.
std::string HintFor(const Instruction& instruction) {
  const bool reduces = instruction.opcode() == Opcode::kReduce || instruction.opcode() == Opcode::kReduceWindow ||
                       instruction.opcode() == Opcode::kScatter || instruction.opcode() == Opcode::kSelectAndScatter;
  if (!reduces) return "";
  return absl::StrCat("; the partitioner assumes that the reducer ", instruction.called().back()->name(),
                      " is associative and that its initial value is its identity: either this reducer is not "
                      "what the partitioner may assume, or its partitioning has a fault");
}

// The error for an instance that was partitioned wrongly.
absl::Status InstanceError(const ShardedModule& program, const Instruction& instruction, const absl::Status& status) {
  const std::string source = program.module->SourceOf(instruction);
  std::vector<std::string> operands;
  for (const Instruction* operand : instruction.operands()) {
    operands.push_back(ToString(program.mesh, (*ShardingsOf(program, *operand))[0]));
  }
  return absl::InternalError(absl::StrCat(
      "partitioning of ", instruction.name(), source.empty() ? "" : absl::StrCat(" (", source, ")"), ", ",
      hlo::ToString(instruction.opcode()), " of ", absl::StrJoin(operands, ", "), " -> ",
      ToString(program.mesh, (*ShardingsOf(program, instruction))[0]), " over ", program.mesh.ToString(),
      ", is wrong on a small instance: ", std::string(status.message()), HintFor(instruction), " [instance]"));
}

}  // namespace

absl::StatusOr<InstanceCounts> CheckInstances(const ShardedModule& program) {
  InstanceCounts counts;
  for (const auto& computation : program.module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (!HasInstance(program, *instruction)) continue;
      const SmallMesh mesh(program, *instruction);
      const std::optional<InstanceSizes> sizes = SmallSizes(program, *instruction, mesh);
      if (!sizes) {
        ++counts.skipped;
        continue;
      }
      const ShardedModule instance = MakeInstance(program, *instruction, *sizes, mesh);
      if (!FirstTime(Signature(instance))) {
        ++counts.known;
        continue;
      }
      bool skipped = false;
      const absl::Status status = Prove(instance, &skipped);
      if (!status.ok()) return InstanceError(program, *instruction, status);
      ++(skipped ? counts.skipped : counts.proven);
    }
  }
  return counts;
}

}  // namespace xlad::sharding
