// The table of op families, the family of ops that run unchanged on local shapes, and helpers that several families
// share.
#include "sharding/partition/ops/families.h"

#include "absl/container/flat_hash_map.h"
#include "hlo/analysis/constants.h"
#include "sharding/partition/identity.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

// Marks the factors that occur in at least one of the tensors.
std::vector<bool> Occurring(const std::vector<TensorFactors>& tensors, size_t factors) {
  std::vector<bool> result(factors, false);
  for (const TensorFactors& tensor : tensors) {
    for (const DimensionFactors& dimension : tensor) {
      for (int f : dimension) result[f] = true;
    }
  }
  return result;
}

// Marks all pass-through factors of the results. Some of these are not in any operand (the new dimensions of a
// broadcast, the dimensions of an iota); every device can compute its shard of such a dimension.
std::vector<bool> SplitResults(const Instruction&, const OpRule& rule) {
  const std::vector<bool> out = Occurring(rule.results, rule.factors.size());
  std::vector<bool> result;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    result.push_back(out[f] && rule.factors[f].kind == FactorKind::kPassThrough);
  }
  return result;
}

}  // namespace

std::vector<bool> SplitThrough(const Instruction& instruction, const OpRule& rule) {
  const std::vector<bool> in = Occurring(rule.operands, rule.factors.size());
  std::vector<bool> result = SplitResults(instruction, rule);
  for (size_t f = 0; f < result.size(); ++f) result[f] = result[f] && in[f];
  return result;
}

std::vector<bool> SplitThroughAndReduced(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  const tensor::ElementType type = LeafShapes(instruction.shape())[0].type;
  for (size_t f = 0; f < result.size(); ++f) {
    const Factor& factor = rule.factors[f];
    if (factor.kind == FactorKind::kReduction) result[f] = HasIdentity(factor.reduction, type);
  }
  return result;
}

Dims ReducedDims(const LocalOp& op, size_t leaf) {
  Dims dims;
  const TensorFactors& factors = op.rule->operands[leaf];
  for (size_t d = 0; d < factors.size(); ++d) {
    for (int f : factors[d]) {
      const bool reduced = op.rule->factors[f].kind == FactorKind::kReduction;
      if (reduced && !(*op.assignment)[f].axes.empty()) dims.push_back(d);
    }
  }
  return dims;
}

AxisList AxesOf(const Assignment& assignment, const DimensionFactors& factors) {
  return Project(assignment, {factors}).dims[0].axes;
}

bool RepeatsNeutralStart(const Instruction& x, Opcode reduction) {
  return IsNeutralStart(*hlo::RepeatedValue(&x), reduction);
}

hlo::Shape LocalResultShape(const LocalOp& op) {
  if (op.source->shape().is_array()) return LocalShape(op.results[0]);
  std::vector<hlo::Shape> shapes;
  for (const LocalArray& result : op.results) shapes.push_back(LocalShape(result));
  return hlo::Shape::Tuple(std::move(shapes));
}

void SetResults(LocalBuilder& local, LocalOp& op, Instruction* result) {
  if (result->shape().is_array()) {
    op.results[0].local = result;
    return;
  }
  for (size_t i = 0; i < op.results.size(); ++i) op.results[i].local = local.builder().GetTupleElement(result, i);
}

absl::Status EmitSame(LocalBuilder& local, LocalOp& op) {
  SetResults(local, op, local.CloneLocal(*op.source, LocalResultShape(op), Locals(op.operands)));
  return absl::OkStatus();
}

const OpFamily& FamilyOf(Opcode opcode) {
  static const OpFamily* const same = new OpFamily{SplitThrough, EmitSame};
  static const auto* const families = new absl::flat_hash_map<Opcode, OpFamily>{
      {Opcode::kSlice, {SplitMoving, EmitSlice, SliceHalos}},
      {Opcode::kReshape, {SplitThrough, EmitReshape, nullptr, RaggedDims}},
      {Opcode::kPad, {SplitMoving, EmitPad, PadHalos}},
      {Opcode::kReverse, {SplitMoving, EmitReverse, ReverseHalos}},
      {Opcode::kConcatenate, {SplitMoving, EmitConcatenate, ConcatenateHalos}},
      {Opcode::kDynamicSlice, {SplitDynamicSlice, EmitDynamicSlice}},
      {Opcode::kDynamicUpdateSlice, {SplitThrough, EmitDynamicUpdateSlice}},
      {Opcode::kDot, {SplitThroughAndReduced, EmitDot}},
      {Opcode::kScaledDot, {SplitThroughAndReduced, EmitDot}},
      {Opcode::kRaggedDot, {SplitThroughAndReduced, EmitDot}},
      {Opcode::kConvolution, {SplitConvolution, EmitConvolution, ConvolutionHalos}},
      {Opcode::kReduceWindow, {SplitReduceWindow, EmitReduceWindow, ReduceWindowHalos}},
      {Opcode::kSelectAndScatter, {SplitSelectAndScatter, EmitSelectAndScatter, SelectAndScatterHalos}},
      {Opcode::kReduce, {SplitReduce, EmitReduce}},
      {Opcode::kBroadcast, {SplitResults, EmitSame}},
      {Opcode::kIota, {SplitResults, EmitIota}},
      {Opcode::kRngBitGenerator, {SplitRandomBits, EmitRandomBits}},
      {Opcode::kConstant, {SplitResults, EmitConstant}},
      {Opcode::kGather, {SplitGather, EmitGather}},
      {Opcode::kScatter, {SplitScatter, EmitScatter}},
      {Opcode::kAllReduce, {SplitThrough, EmitCollective}},
      {Opcode::kReduceScatter, {SplitThrough, EmitCollective}},
      {Opcode::kAllGather, {SplitThrough, EmitCollective}},
      {Opcode::kAllToAll, {SplitThrough, EmitCollective}},
      {Opcode::kRaggedAllToAll, {SplitThrough, EmitCollective}},
      {Opcode::kCollectivePermute, {SplitThrough, EmitCollective}},
      {Opcode::kCollectiveBroadcast, {SplitThrough, EmitCollective}},
  };
  const auto found = families->find(opcode);
  return found == families->end() ? *same : found->second;
}

}  // namespace xlad::sharding
