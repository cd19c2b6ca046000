// The table of op rules, and their text.
#include "sharding/rules/op_rule.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/build/builder.h"
#include "sharding/rules/rules.h"

namespace xlad::sharding {

RuleBuilder::RuleBuilder(const hlo::Instruction& instruction) {
  const auto enter = [](const hlo::Shape& shape, std::vector<Dims>* shapes, std::vector<TensorFactors>* factors) {
    for (const hlo::Shape* leaf : ArrayLeaves(shape)) {
      shapes->push_back(leaf->dims());
      factors->emplace_back(leaf->dims().size());
    }
  };
  for (const hlo::Instruction* operand : instruction.operands()) {
    enter(operand->shape(), &operand_shapes_, &rule_.operands);
  }
  enter(instruction.shape(), &result_shapes_, &rule_.results);
}

int RuleBuilder::Add(int64_t size, FactorKind kind, bool blocked) {
  rule_.factors.push_back({size, kind, blocked, hlo::Opcode::kAdd});
  return static_cast<int>(rule_.factors.size()) - 1;
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
  const auto kind_of = [](int64_t size, FactorKind kind) { return size == 1 ? FactorKind::kPassThrough : kind; };
  for (size_t leaf = 0; leaf < rule_.operands.size(); ++leaf) {
    for (size_t d = 0; d < rule_.operands[leaf].size(); ++d) {
      if (!rule_.operands[leaf][d].empty()) continue;
      rule_.operands[leaf][d].push_back(
          Add(operand_shapes_[leaf][d], kind_of(operand_shapes_[leaf][d], FactorKind::kNeedReplication)));
    }
  }
  for (size_t leaf = 0; leaf < rule_.results.size(); ++leaf) {
    for (size_t d = 0; d < rule_.results[leaf].size(); ++d) {
      if (!rule_.results[leaf][d].empty()) continue;
      rule_.results[leaf][d].push_back(Add(result_shapes_[leaf][d], kind_of(result_shapes_[leaf][d], results)));
    }
  }
  return std::move(rule_);
}

namespace {

void CollectLeaves(const hlo::Shape& shape, std::vector<const hlo::Shape*>* leaves) {
  if (shape.is_array()) leaves->push_back(&shape);
  if (shape.is_tuple()) {
    for (const hlo::Shape& element : shape.tuple()) CollectLeaves(element, leaves);
  }
}

}  // namespace

std::vector<const hlo::Shape*> ArrayLeaves(const hlo::Shape& shape) {
  std::vector<const hlo::Shape*> leaves;
  CollectLeaves(shape, &leaves);
  return leaves;
}

hlo::Opcode ReductionOf(const hlo::Computation& reducer) {
  return hlo::ReducerOpcode(reducer).value_or(hlo::Opcode::kReduce);
}

namespace {

using hlo::Opcode;
using RuleFunction = OpRule (*)(const hlo::Instruction&);

struct Row {
  Opcode opcode;
  RuleFunction rule;
};

// Besides these, every elementwise opcode has the elementwise rule.
constexpr Row kRules[] = {
    {Opcode::kBitcastConvert, BitcastConvertRule},
    {Opcode::kBroadcast, BroadcastRule},
    {Opcode::kReshape, ReshapeRule},
    {Opcode::kTranspose, TransposeRule},
    {Opcode::kSlice, SliceRule},
    {Opcode::kReverse, ReverseRule},
    {Opcode::kCopy, ElementwiseRule},
    {Opcode::kDynamicSlice, DynamicSliceRule},
    {Opcode::kDynamicUpdateSlice, DynamicUpdateSliceRule},
    {Opcode::kConcatenate, ConcatenateRule},
    {Opcode::kPad, PadRule},
    {Opcode::kGather, GatherRule},
    {Opcode::kScatter, ScatterRule},
    {Opcode::kIota, IotaRule},
    {Opcode::kConstant, IotaRule},
    {Opcode::kDot, DotRule},
    {Opcode::kConvolution, ConvolutionRule},
    {Opcode::kRaggedDot, RaggedDotRule},
    {Opcode::kScaledDot, DotRule},
    {Opcode::kReduce, ReduceRule},
    {Opcode::kReduceWindow, ReduceWindowRule},
    {Opcode::kScan, ScanRule},
    {Opcode::kSort, SortRule},
    {Opcode::kMap, ElementwiseRule},
    {Opcode::kSelectAndScatter, SelectAndScatterRule},
    {Opcode::kTopk, TopkRule},
    {Opcode::kFft, FftRule},
    {Opcode::kCholesky, MatrixRule},
    {Opcode::kTriangularSolve, MatrixRule},
    {Opcode::kBatchNormTraining, BatchNormRule},
    {Opcode::kBatchNormInference, BatchNormRule},
    {Opcode::kBatchNormGrad, BatchNormRule},
    {Opcode::kRng, RngRule},
    {Opcode::kRngBitGenerator, RngBitGeneratorRule},
    {Opcode::kCustomCall, CustomCallRule},
    {Opcode::kAllReduce, CollectiveRule},
    {Opcode::kReduceScatter, CollectiveRule},
    {Opcode::kCollectiveReduce, CollectiveRule},
    {Opcode::kAllGather, CollectiveRule},
    {Opcode::kAllToAll, CollectiveRule},
    {Opcode::kCollectivePermute, CollectiveRule},
    {Opcode::kCollectiveBroadcast, CollectiveRule},
};

// Opcodes without a rule, and why.
struct Reason {
  Opcode opcode;
  const char* because;
};

constexpr const char* kDataFlow = "data flow: propagation passes shardings on leaf by leaf";
constexpr const char* kScalarResult = "no dimension to split";
constexpr const char* kWhole = "needs its operands whole, and passes nothing on";
constexpr const char* kAfterPartitioning = "occurs after partitioning only";
constexpr const char* kDynamicShape = "dynamic sizes are not partitioned";

constexpr Reason kNoRule[] = {
    {Opcode::kBitcast, kAfterPartitioning},
    {Opcode::kDynamicReshape, kDynamicShape},
    {Opcode::kParameter, kDataFlow},
    {Opcode::kTuple, kDataFlow},
    {Opcode::kGetTupleElement, kDataFlow},
    {Opcode::kGetDimensionSize, kScalarResult},
    {Opcode::kSetDimensionSize, kDynamicShape},
    {Opcode::kShuffle, kWhole},
    {Opcode::kRngGetAndUpdateState, kWhole},
    {Opcode::kCall, kDataFlow},
    {Opcode::kFusion, kAfterPartitioning},
    {Opcode::kConditional, kDataFlow},
    {Opcode::kWhile, kDataFlow},
    {Opcode::kOptBarrier, kDataFlow},
    {Opcode::kAfterAll, kScalarResult},
    {Opcode::kAddDependency, kDataFlow},
    {Opcode::kDomain, kDataFlow},
    {Opcode::kInfeed, kWhole},
    {Opcode::kOutfeed, kWhole},
    {Opcode::kSend, kWhole},
    {Opcode::kSendDone, kWhole},
    {Opcode::kRecv, kWhole},
    {Opcode::kRecvDone, kWhole},
    {Opcode::kPartitionId, kScalarResult},
    {Opcode::kReplicaId, kScalarResult},
    {Opcode::kRaggedAllToAll, kWhole},
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

RuleFunction Find(Opcode opcode) {
  for (const Row& row : kRules) {
    if (row.opcode == opcode) return row.rule;
  }
  return hlo::IsElementwise(opcode) ? ElementwiseRule : nullptr;
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

void AppendKind(const OpRule& rule, FactorKind kind, const char* name, std::string* text) {
  std::vector<std::string> names;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (rule.factors[f].kind == kind) names.push_back(FactorName(static_cast<int>(f)));
  }
  if (!names.empty()) absl::StrAppend(text, " ", name, "={", absl::StrJoin(names, ", "), "}");
}

}  // namespace

OpRule RuleOf(const hlo::Instruction& instruction) {
  const RuleFunction rule = Find(instruction.opcode());
  return rule != nullptr ? rule(instruction) : OpRule{};
}

bool HasRule(hlo::Opcode opcode) {
  return Find(opcode) != nullptr ||
         std::any_of(std::begin(kNoRule), std::end(kNoRule), [&](const Reason& row) { return row.opcode == opcode; });
}

// i, j, ..., z, then z_1, z_2, ...
std::string FactorName(int factor) {
  constexpr int kLetters = 'z' - 'i' + 1;
  return factor < kLetters ? std::string(1, static_cast<char>('i' + factor))
                           : absl::StrCat("z_", factor - kLetters + 1);
}

std::string OpRule::ToString() const {
  std::string text = absl::StrCat(TensorsText(operands), "->", TensorsText(results), " {");
  for (size_t f = 0; f < factors.size(); ++f) {
    absl::StrAppend(&text, f > 0 ? ", " : "", FactorName(static_cast<int>(f)), "=", factors[f].size);
  }
  text += "}";
  AppendKind(*this, FactorKind::kReduction, "reduction", &text);
  AppendKind(*this, FactorKind::kNeedReplication, "need_replication", &text);
  AppendKind(*this, FactorKind::kPermutation, "permutation", &text);
  std::vector<std::string> blocked;
  for (size_t f = 0; f < factors.size(); ++f) {
    if (factors[f].blocked) blocked.push_back(FactorName(static_cast<int>(f)));
  }
  if (!blocked.empty()) absl::StrAppend(&text, " blocked_propagation={", absl::StrJoin(blocked, ", "), "}");
  return text;
}

}  // namespace xlad::sharding
