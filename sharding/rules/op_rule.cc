#include "sharding/rules/op_rule.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/build/builder.h"
#include "sharding/rules/rules.h"
#include "tensor/indices.h"

namespace xlad::sharding {

RuleBuilder::RuleBuilder(const hlo::Instruction& instruction) {
  const auto add = [](const hlo::Shape& shape, std::vector<Dims>* dims, std::vector<TensorFactors>* factors) {
    for (const hlo::Shape* leaf : ArrayLeaves(shape)) {
      dims->push_back(leaf->dims());
      factors->emplace_back(leaf->dims().size());
    }
  };
  for (const hlo::Instruction* operand : instruction.operands()) {
    add(operand->shape(), &operand_dims_, &rule_.operands);
  }
  add(instruction.shape(), &result_dims_, &rule_.results);
}

int RuleBuilder::Add(int64_t size, FactorKind kind, bool blocked) {
  rule_.factors.push_back({size, kind, blocked, hlo::Opcode::kAdd});
  return std::ssize(rule_.factors) - 1;
}

void RuleBuilder::Operand(int64_t leaf, int64_t dim, int factor) {
  rule_.operands[leaf][dim].push_back(factor);
}

void RuleBuilder::Result(int64_t leaf, int64_t dim, int factor) {
  rule_.results[leaf][dim].push_back(factor);
}

void RuleBuilder::Everywhere(int64_t dim, FactorKind kind, bool blocked) {
  const int factor = Add(result_dims(0)[dim], kind, blocked);
  for (int64_t leaf = 0; leaf < operand_count(); ++leaf) {
    if (operand_dims(leaf).size() == result_dims(0).size()) Operand(leaf, dim, factor);
  }
  for (int64_t leaf = 0; leaf < result_count(); ++leaf) Result(leaf, dim, factor);
}

OpRule RuleBuilder::Finish(FactorKind results) {
  const auto fill = [&](const std::vector<Dims>& dims, FactorKind kind, std::vector<TensorFactors>* tensors) {
    for (const int64_t leaf : tensor::Indices(dims)) {
      for (const int64_t d : tensor::Indices(dims[leaf])) {
        DimensionFactors& factors = (*tensors)[leaf][d];
        const int64_t size = dims[leaf][d];
        if (factors.empty()) factors.push_back(Add(size, size == 1 ? FactorKind::kPassThrough : kind));
      }
    }
  };
  fill(operand_dims_, FactorKind::kNeedReplication, &rule_.operands);
  fill(result_dims_, results, &rule_.results);
  return std::move(rule_);
}

hlo::Opcode ReductionOf(const hlo::Computation& reducer) {
  return hlo::ReducerOpcode(reducer).value_or(hlo::Opcode::kReduce);
}

namespace {

using hlo::Opcode;
using RuleFunction = OpRule (*)(const hlo::Instruction&);

// Opcodes without a rule, and the reason.
struct NoRule {
  Opcode opcode;
  const char* reason;
};

constexpr const char* kDataFlow = "data flow: propagation handles it leaf by leaf";
constexpr const char* kScalarResult = "has no dimension to split";
constexpr const char* kReplicated = "runs on replicated operands";
constexpr const char* kRefused = "is refused by the partitioner";
constexpr const char* kAfterPartitioning = "occurs only after partitioning";
constexpr const char* kInlined = "is replaced by its computation during import";
constexpr const char* kDynamicShape = "has dynamic sizes, which are not partitioned";

constexpr NoRule kNoRule[] = {
    {Opcode::kBitcast, kAfterPartitioning},
    {Opcode::kDynamicReshape, kDynamicShape},
    {Opcode::kParameter, kDataFlow},
    {Opcode::kTuple, kDataFlow},
    {Opcode::kGetTupleElement, kDataFlow},
    {Opcode::kGetDimensionSize, kScalarResult},
    {Opcode::kSetDimensionSize, kDynamicShape},
    {Opcode::kShuffle, kReplicated},
    {Opcode::kRngGetAndUpdateState, kReplicated},
    {Opcode::kCall, kInlined},
    {Opcode::kFusion, kInlined},
    {Opcode::kConditional, kDataFlow},
    {Opcode::kWhile, kDataFlow},
    {Opcode::kOptBarrier, kDataFlow},
    {Opcode::kAfterAll, kScalarResult},
    {Opcode::kAddDependency, kDataFlow},
    {Opcode::kDomain, kDataFlow},
    {Opcode::kInfeed, kRefused},
    {Opcode::kOutfeed, kRefused},
    {Opcode::kSend, kRefused},
    {Opcode::kSendDone, kRefused},
    {Opcode::kRecv, kRefused},
    {Opcode::kRecvDone, kRefused},
    {Opcode::kPartitionId, kScalarResult},
    {Opcode::kReplicaId, kScalarResult},
    {Opcode::kAllReduceStart, kAfterPartitioning},
    {Opcode::kAllReduceDone, kAfterPartitioning},
    {Opcode::kAllGatherStart, kAfterPartitioning},
    {Opcode::kAllGatherDone, kAfterPartitioning},
    {Opcode::kCollectivePermuteStart, kAfterPartitioning},
    {Opcode::kCollectivePermuteDone, kAfterPartitioning},
    {Opcode::kCopyStart, kAfterPartitioning},
    {Opcode::kCopyDone, kAfterPartitioning},
    {Opcode::kAsyncStart, kAfterPartitioning},
    {Opcode::kAsyncUpdate, kAfterPartitioning},
    {Opcode::kAsyncDone, kAfterPartitioning},
};

std::vector<RuleFunction> MakeTable() {
  std::vector<RuleFunction> table(hlo::OpcodeCount(), nullptr);
  for (const auto family : kRuleFamilies) {
    for (const RuleRow& row : family()) table[Index(row.opcode)] = row.rule;
  }
  return table;
}

// The rule's function, or null if the opcode has none. Elementwise opcodes need no row.
RuleFunction Find(Opcode opcode) {
  static const auto* const table = new std::vector<RuleFunction>(MakeTable());
  const RuleFunction rule = (*table)[Index(opcode)];
  return rule == nullptr && hlo::IsElementwise(opcode) ? ElementwiseRule : rule;
}

std::string TensorsText(const std::vector<TensorFactors>& tensors) {
  const auto dimension = [](std::string* out, const DimensionFactors& factors) {
    absl::StrAppend(out, absl::StrJoin(factors, "", [](std::string* o, int f) { o->append(FactorName(f)); }));
  };
  const auto tensor = [&](std::string* out, const TensorFactors& factors) {
    absl::StrAppend(out, "[", absl::StrJoin(factors, ", ", dimension), "]");
  };
  return absl::StrCat("(", absl::StrJoin(tensors, ", ", tensor), ")");
}

// Appends " label={i, k}", the factors for which `has` is true, if there are any.
template <typename Predicate>
void AppendFactors(const OpRule& rule, const char* label, Predicate has, std::string* text) {
  std::vector<std::string> names;
  for (int f = 0; f < std::ssize(rule.factors); ++f) {
    if (has(rule.factors[f])) names.push_back(FactorName(f));
  }
  if (!names.empty()) absl::StrAppend(text, " ", label, "={", absl::StrJoin(names, ", "), "}");
}

}  // namespace

OpRule RuleOf(const hlo::Instruction& instruction) {
  const RuleFunction rule = Find(instruction.opcode());
  return rule != nullptr ? rule(instruction) : OpRule{};
}

bool HasRule(hlo::Opcode opcode) {
  return Find(opcode) != nullptr ||
         std::any_of(std::begin(kNoRule), std::end(kNoRule), [&](const NoRule& row) { return row.opcode == opcode; });
}

std::string FactorName(int factor) {
  constexpr int kLetters = 'z' - 'i' + 1;
  return factor < kLetters ? std::string(1, 'i' + factor) : absl::StrCat("z_", factor - kLetters + 1);
}

std::string OpRule::ToString() const {
  std::string text = absl::StrCat(TensorsText(operands), "->", TensorsText(results), " {");
  for (int f = 0; f < std::ssize(factors); ++f) {
    absl::StrAppend(&text, f > 0 ? ", " : "", FactorName(f), "=", factors[f].size);
  }
  text += "}";
  const std::pair<FactorKind, const char*> kinds[] = {{FactorKind::kReduction, "reduction"},
                                                      {FactorKind::kNeedReplication, "need_replication"},
                                                      {FactorKind::kPermutation, "permutation"}};
  for (const auto& [kind, label] : kinds) {
    AppendFactors(*this, label, [kind = kind](const Factor& factor) { return factor.kind == kind; }, &text);
  }
  AppendFactors(*this, "blocked_propagation", [](const Factor& factor) { return factor.blocked; }, &text);
  return text;
}

}  // namespace xlad::sharding
