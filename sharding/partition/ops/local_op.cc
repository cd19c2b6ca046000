// The table of families, the common one, and helpers that families share.
#include "sharding/partition/op_family.h"

#include <limits>

#include "absl/container/flat_hash_map.h"

namespace xlad::sharding {

using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

hlo::Shape LocalShape(const LocalArray& array) {
  return hlo::Shape(array.global.type, LocalDims(array.global.dims, array.sharding));
}

hlo::Shape LocalResultShape(const LocalOp& op) {
  if (op.source->shape().is_array()) return LocalShape(op.results[0]);
  std::vector<hlo::Shape> shapes;
  for (const LocalArray& result : op.results) shapes.push_back(LocalShape(result));
  return hlo::Shape::Tuple(std::move(shapes));
}

void SetResults(Emitter& emitter, LocalOp& op, Instruction* local) {
  if (local->shape().is_array()) {
    op.results[0].local = local;
    return;
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    op.results[i].local = emitter.builder().GetTupleElement(local, i);
  }
}

std::vector<Instruction*> Locals(const std::vector<LocalArray>& arrays) {
  std::vector<Instruction*> locals;
  for (const LocalArray& array : arrays) locals.push_back(array.local);
  return locals;
}

namespace {

std::vector<bool> Occurring(const std::vector<TensorFactors>& tensors, size_t factors) {
  std::vector<bool> result(factors, false);
  for (const TensorFactors& tensor : tensors) {
    for (const DimensionFactors& dimension : tensor) {
      for (int f : dimension) result[f] = true;
    }
  }
  return result;
}

// What a result has of its own (new dimensions of a broadcast, an iota's): any shard of it can be made in place.
std::vector<bool> SplitFreely(const Instruction& instruction, const OpRule& rule) {
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
  const std::vector<bool> out = Occurring(rule.results, rule.factors.size());
  std::vector<bool> result;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    result.push_back(in[f] && out[f] && rule.factors[f].kind == FactorKind::kPassThrough);
  }
  return result;
}

std::vector<bool> SplitThroughAndReduced(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result = SplitThrough(instruction, rule);
  for (size_t f = 0; f < result.size(); ++f) {
    const Factor& factor = rule.factors[f];
    if (factor.kind == FactorKind::kReduction) result[f] = factor.reduction != Opcode::kReduce;
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

namespace {

template <typename T>
tensor::Array ScalarArray(ElementType type, T value) {
  return tensor::Array::FromValues<T>(type, {}, {value});
}

// The largest or smallest value of an integer type.
Instruction* IntegerLimit(Emitter& emitter, ElementType type, bool largest) {
  switch (type) {
    case ElementType::kS64:
      return emitter.builder().Constant(ScalarArray(
          type, largest ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min()));
    case ElementType::kU64:
      return emitter.builder().Constant(
          ScalarArray(type, largest ? std::numeric_limits<uint64_t>::max() : uint64_t{0}));
    default: break;
  }
  const int bits = tensor::BitWidth(type);
  const double span = static_cast<double>(uint64_t{1} << (tensor::IsSigned(type) ? bits - 1 : bits));
  if (largest) return emitter.builder().Scalar(type, span - 1);
  return emitter.builder().Scalar(type, tensor::IsSigned(type) ? -span : 0);
}

// Only ordered types with a greatest and a least value have an identity for max and min.
bool HasLimits(ElementType type) {
  return type == ElementType::kPred || tensor::IsInteger(type) || type == ElementType::kF16 ||
         type == ElementType::kBF16 || type == ElementType::kF32 || type == ElementType::kF64;
}

Instruction* Limit(Emitter& emitter, ElementType type, bool largest) {
  if (type == ElementType::kPred) return emitter.builder().Scalar(type, largest ? 1 : 0);
  if (tensor::IsInteger(type)) return IntegerLimit(emitter, type, largest);
  const double infinity = std::numeric_limits<double>::infinity();
  return emitter.builder().Scalar(type, largest ? infinity : -infinity);
}

}  // namespace

bool HasIdentity(Opcode reduction, ElementType type) {
  switch (reduction) {
    case Opcode::kAdd:
    case Opcode::kMultiply: return true;
    case Opcode::kOr:
    case Opcode::kXor:
    case Opcode::kAnd: return type == ElementType::kPred || tensor::IsInteger(type);
    case Opcode::kMaximum:
    case Opcode::kMinimum: return HasLimits(type);
    default: return false;
  }
}

Instruction* IdentityOf(Emitter& emitter, Opcode reduction, ElementType type) {
  switch (reduction) {
    case Opcode::kAdd:
    case Opcode::kOr:
    case Opcode::kXor: return emitter.builder().Scalar(type, 0);
    case Opcode::kMultiply: return emitter.builder().Scalar(type, 1);
    case Opcode::kMaximum: return Limit(emitter, type, /*largest=*/false);
    case Opcode::kMinimum: return Limit(emitter, type, /*largest=*/true);
    case Opcode::kAnd:
      if (type == ElementType::kPred || tensor::IsUnsigned(type)) return Limit(emitter, type, true);
      return emitter.builder().Scalar(type, -1);
    default: return nullptr;
  }
}

absl::Status EmitSame(Emitter& emitter, LocalOp& op) {
  SetResults(emitter, op, emitter.CloneLocal(*op.source, LocalResultShape(op), Locals(op.operands)));
  return absl::OkStatus();
}

namespace {

// Every device computes the whole and takes its part.
std::vector<bool> SplitNone(const Instruction& instruction, const OpRule& rule) {
  return std::vector<bool>(rule.factors.size(), false);
}

}  // namespace

const OpFamily& FamilyOf(Opcode opcode) {
  static const OpFamily* const same = new OpFamily{SplitThrough, EmitSame};
  static const auto* const families = new absl::flat_hash_map<Opcode, OpFamily>{
      {Opcode::kSlice, {SplitMoving, EmitSlice, SliceHalos}},
      {Opcode::kReshape, {SplitThrough, EmitReshape}},
      {Opcode::kPad, {SplitMoving, EmitPad, PadHalos}},
      {Opcode::kReverse, {SplitMoving, EmitReverse, ReverseHalos}},
      {Opcode::kConcatenate, {SplitMoving, EmitConcatenate, ConcatenateHalos}},
      {Opcode::kDynamicSlice, {SplitThroughAndReduced, EmitDynamicSlice}},
      {Opcode::kDynamicUpdateSlice, {SplitThrough, EmitDynamicUpdateSlice}},
      {Opcode::kDot, {SplitThroughAndReduced, EmitDot}},
      {Opcode::kScaledDot, {SplitThroughAndReduced, EmitDot}},
      {Opcode::kRaggedDot, {SplitThroughAndReduced, EmitDot}},
      {Opcode::kConvolution, {SplitConvolution, EmitConvolution, ConvolutionHalos}},
      {Opcode::kReduceWindow, {SplitReduceWindow, EmitReduceWindow, ReduceWindowHalos}},
      {Opcode::kSelectAndScatter, {SplitSelectAndScatter, EmitSelectAndScatter, SelectAndScatterHalos}},
      {Opcode::kReduce, {SplitReduce, EmitReduce}},
      {Opcode::kBroadcast, {SplitFreely, EmitSame}},
      {Opcode::kIota, {SplitFreely, EmitIota}},
      {Opcode::kRngBitGenerator, {SplitNone, EmitSame}},
      {Opcode::kRng, {SplitNone, EmitSame}},
      {Opcode::kConstant, {SplitFreely, EmitConstant}},
      {Opcode::kGather, {SplitGather, EmitGather}},
      {Opcode::kScatter, {SplitScatter, EmitScatter}},
      {Opcode::kAllReduce, {SplitThrough, EmitCollective}},
      {Opcode::kReduceScatter, {SplitThrough, EmitCollective}},
      {Opcode::kAllGather, {SplitThrough, EmitCollective}},
      {Opcode::kAllToAll, {SplitThrough, EmitCollective}},
      {Opcode::kCollectivePermute, {SplitThrough, EmitCollective}},
      {Opcode::kCollectiveBroadcast, {SplitThrough, EmitCollective}},
  };
  const auto found = families->find(opcode);
  return found == families->end() ? *same : found->second;
}

}  // namespace xlad::sharding
