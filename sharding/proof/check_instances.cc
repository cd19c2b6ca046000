#include "sharding/proof/check_instances.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_join.h"
#include "hlo/analysis/constants.h"
#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "sharding/model/mesh.h"
#include "sharding/partition/ops/families.h"
#include "sharding/proof/equivalence.h"
#include "sharding/proof/instance_sizes.h"
#include "sharding/rules/op_rule.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

const ValueSharding* FindShardings(const ShardedModule& program, const Instruction& instruction) {
  const auto found = program.shardings.find(&instruction);
  return found == program.shardings.end() ? nullptr : &found->second;
}

// Whether the op is checked on an instance: its operands are arrays, it has a sharding rule, and an operand or result
// is split. Parameters, constants, data flow and control flow need no proof.
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
  const ValueSharding* own = FindShardings(program, instruction);
  if (own == nullptr || RuleOf(instruction).results.empty() || hlo::IsCollective(instruction.opcode())) return false;
  bool split = std::any_of(own->begin(), own->end(), [](const TensorSharding& s) { return !s.IsReplicated(); });
  for (const Instruction* operand : instruction.operands()) {
    const ValueSharding* sharding = FindShardings(program, *operand);
    if (!operand->shape().is_array() || sharding == nullptr || sharding->size() != 1) return false;
    split |= !sharding->front().IsReplicated();
  }
  return split;
}

// Whether the operand is a scalar constant, or repeats one. It stays constant in the instance, because its value
// decides how a reduction starts and whether the reducer's laws can be known.
bool StaysConstant(const ShardedModule& program, const Instruction& operand) {
  if (!operand.shape().is_scalar() || hlo::KnownLiteral(*hlo::RepeatedValue(&operand)) == nullptr) return false;
  for (const Instruction* value = &operand;; value = value->operand(0)) {
    const ValueSharding* sharding = FindShardings(program, *value);
    if (sharding == nullptr || !sharding->front().IsReplicated()) return false;
    if (value->opcode() == Opcode::kConstant) return true;
  }
}

// If the operand is an array from which a scatter starts, and it repeats a scalar constant, returns the constant;
// otherwise null. The constant must stay in the instance: if it is the reducer's identity, partial scatters start from
// the unchanged array.
const Instruction* RepeatedStart(const ShardedModule& program, const Instruction& instruction, int64_t operand) {
  if (instruction.opcode() != Opcode::kScatter || operand >= instruction.operand_count() / 2) return nullptr;
  const Instruction* start = instruction.operand(operand);
  const Instruction* scalar = hlo::RepeatedValue(start);
  const bool repeats = scalar != start && scalar->shape().is_scalar() && StaysConstant(program, *scalar);
  return repeats && FindShardings(program, *start)->front().unreduced.empty() ? scalar : nullptr;
}

// Copies an operand that stays constant, with the instructions between it and the constant.
Instruction* CopyConstant(const ShardedModule& program, const Instruction& operand, const SmallMesh& mesh,
                          ShardedModule* instance) {
  std::vector<Instruction*> operands;
  for (const Instruction* inner : operand.operands()) {
    operands.push_back(CopyConstant(program, *inner, mesh, instance));
  }
  Instruction* copy = instance->module->entry()->Add(operand.CloneWithoutOperands(), operands);
  instance->shardings[copy] = mesh.Shortened(*FindShardings(program, operand));
  return copy;
}

// Removes metadata and the names in called computations, which may differ between instances that are otherwise equal.
void RemoveProvenance(hlo::Module* module) {
  for (size_t c = 0; c < module->computations().size(); ++c) {
    hlo::Computation& computation = *module->computations()[c];
    const bool called = &computation != module->entry();
    if (called) computation.set_name(absl::StrCat("called", c));
    for (size_t i = 0; i < computation.instructions().size(); ++i) {
      Instruction& instruction = *computation.instructions()[i];
      instruction.set_metadata(nullptr);
      if (called) instruction.set_name(absl::StrCat("called", c, ".", i));
    }
  }
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
    if (StaysConstant(program, operand)) {
      operands.push_back(CopyConstant(program, operand, mesh, &instance));
      continue;
    }
    if (const Instruction* scalar = RepeatedStart(program, instruction, i)) {
      Instruction* constant = CopyConstant(program, *scalar, mesh, &instance);
      operands.push_back(builder.Broadcast(constant, sizes.operands[i], {}));
      instance.shardings[operands.back()] = mesh.Shortened(*FindShardings(program, operand));
      continue;
    }
    operands.push_back(builder.Parameter(parameters++, shape, absl::StrCat("operand", i)));
    instance.shardings[operands.back()] = mesh.Shortened(*FindShardings(program, operand));
  }
  std::unique_ptr<Instruction> op = instruction.CloneWithoutOperands();
  size_t next = 0;
  if (op->shape().is_array()) op->mutable_shape() = hlo::Shape(op->shape().type(), sizes.results[next]);
  else for (hlo::Shape& leaf : op->mutable_shape().tuple()) leaf = hlo::Shape(leaf.type(), sizes.results[next++]);
  if (sizes.window) op->mutable_attributes().window = sizes.window;
  for (size_t d = 0; d < op->attributes().slice.size(); ++d) {
    // A dimension that the slice does not cut may be smaller in the instance.
    const int64_t size = sizes.operands[0][d];
    if (size != instruction.operand(0)->shape().dims()[d]) op->mutable_attributes().slice[d] = {0, size, 1};
  }
  for (hlo::Computation*& called : op->mutable_called()) {
    called = instance.module->CloneComputation(*called, called->name());
  }
  Instruction* root = entry->Add(std::move(op), operands);
  root->set_name("op");
  entry->set_root(root);
  instance.shardings[root] = mesh.Shortened(*FindShardings(program, instruction));
  instance.results = instance.shardings[root];
  instance.module->SortComputations();
  RemoveProvenance(instance.module.get());
  return instance;
}

// Everything on which the outcome of Prove depends: the mesh, the shardings, and the text of the module with all
// attributes, literals and called computations.
std::string Signature(const ShardedModule& instance) {
  std::string signature = absl::StrCat(instance.mesh.ToString(), "\n", hlo::PrintText(*instance.module));
  for (const auto& instruction : instance.module->entry()->instructions()) {
    absl::StrAppend(&signature, instruction->name());
    for (const TensorSharding& sharding : instance.shardings.at(instruction.get())) {
      absl::StrAppend(&signature, " ", ToString(instance.mesh, sharding));
    }
    signature.push_back('\n');
  }
  return signature;
}

ProvenInstances& InstancesOfProcess() {
  static auto* const proven = new ProvenInstances();
  return *proven;
}

// How exactly the results of an op must agree.
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

absl::StatusOr<ProofOutcome> Prove(const ShardedModule& instance) {
  const Exactness exactness = ExactnessOf(instance.module->entry()->root()->opcode());
  std::vector<hlo::Literal> inputs = SampleInputs(*instance.module, 17);
  if (exactness == Exactness::kBits) inputs = WithSpecialValues(std::move(inputs));
  absl::StatusOr<hlo::Literal> whole = hlo::Evaluate(*instance.module, inputs);
  if (whole.status().code() == absl::StatusCode::kUnimplemented) return ProofOutcome::kSkipped;
  XLAD_RETURN_IF_ERROR(whole.status());
  XLAD_ASSIGN_OR_RETURN(const PartitionedProgram partitioned, Partition(instance, FamilyOf));
  XLAD_ASSIGN_OR_RETURN(const hlo::Literal joined, EvaluatePartitioned(partitioned, inputs));
  XLAD_RETURN_IF_ERROR(CompareValues(joined, *whole, 1e-4, exactness));
  return ProofOutcome::kProven;
}

// The hint for ops with reducers: partitioning assumes laws of reducers that it does not prove.
std::string HintFor(const Instruction& instruction) {
  const bool reduces = instruction.opcode() == Opcode::kReduce || instruction.opcode() == Opcode::kReduceWindow ||
                       instruction.opcode() == Opcode::kScatter || instruction.opcode() == Opcode::kSelectAndScatter;
  if (!reduces) return "";
  return absl::StrCat("; the partitioner assumes that the reducer ", instruction.called().back()->name(),
                      " is associative and that its initial value is its identity: either this reducer violates "
                      "the assumption, or its partitioning has a fault");
}

// The error for an instance that was partitioned wrongly.
absl::Status InstanceError(const ShardedModule& program, const Instruction& instruction, const absl::Status& status) {
  const std::string source = program.module->SourceOf(instruction);
  std::vector<std::string> operands;
  for (const Instruction* operand : instruction.operands()) {
    operands.push_back(ToString(program.mesh, (*FindShardings(program, *operand))[0]));
  }
  return absl::InternalError(absl::StrCat(
      "partitioning of ", instruction.name(), source.empty() ? "" : absl::StrCat(" (", source, ")"), ", ",
      hlo::ToString(instruction.opcode()), " of ", absl::StrJoin(operands, ", "), " -> ",
      ToString(program.mesh, (*FindShardings(program, instruction))[0]), " over ", program.mesh.ToString(),
      ", is wrong on a small instance: ", std::string(status.message()), HintFor(instruction), " [instance]"));
}

}  // namespace

absl::StatusOr<InstanceCounts> CheckInstances(const ShardedModule& program, ProvenInstances* proven) {
  if (proven == nullptr) proven = &InstancesOfProcess();
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
      const std::string signature = Signature(instance);
      if (const std::optional<ProofOutcome> known = proven->Find(signature)) {
        ++(*known == ProofOutcome::kSkipped ? counts.skipped : counts.known);
        continue;
      }
      const absl::StatusOr<ProofOutcome> outcome = Prove(instance);
      if (!outcome.ok()) return InstanceError(program, *instruction, outcome.status());
      ++(*outcome == ProofOutcome::kSkipped ? counts.skipped : counts.proven);
      proven->Enter(signature, *outcome);
    }
  }
  return counts;
}

}  // namespace xlad::sharding
