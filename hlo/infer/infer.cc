// Shape inference: the table of rules, one row per opcode, and the common helpers of the rules.
#include "hlo/infer/infer.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/infer/rules.h"

namespace xlad::hlo {
namespace {

struct InferRow {
  Opcode opcode;
  ShapeSource source;
  Inferred (*infer)(const Instruction&);
};

constexpr ShapeSource kO = ShapeSource::kOperands, kG = ShapeSource::kGiven;

// The rows of all elementwise opcodes with one and with two operands that are not in kInferRows. Their member `opcode`
// is not used.
constexpr InferRow kUnaryRow = {Opcode::kAbs, kO, InferUnary}, kBinaryRow = {Opcode::kAdd, kO, InferBinary};

constexpr InferRow kInferRows[] = {
    {Opcode::kConvert, kG, InferConvert},
    {Opcode::kBitcastConvert, kG, InferBitcastConvert},
    {Opcode::kComplex, kO, InferComplex},
    {Opcode::kCompare, kO, InferCompare},
    {Opcode::kStochasticConvert, kG, InferStochasticConvert},
    {Opcode::kClamp, kO, InferClamp},
    {Opcode::kSelect, kO, InferSelect},
    {Opcode::kBitcast, kG, InferBitcast},
    {Opcode::kBroadcast, kG, InferBroadcast},
    {Opcode::kReshape, kG, InferReshape},
    {Opcode::kTranspose, kO, InferTranspose},
    {Opcode::kSlice, kO, InferSlice},
    {Opcode::kReverse, kO, InferReverse},
    {Opcode::kCopy, kO, InferSameAsOperand},
    {Opcode::kDynamicSlice, kO, InferDynamicSlice},
    {Opcode::kDynamicUpdateSlice, kO, InferDynamicUpdateSlice},
    {Opcode::kConcatenate, kO, InferConcatenate},
    {Opcode::kDynamicReshape, kG, InferDynamicReshape},
    {Opcode::kPad, kO, InferPad},
    {Opcode::kGather, kO, InferGather},
    {Opcode::kScatter, kO, InferScatter},
    {Opcode::kIota, kG, InferIota},
    {Opcode::kConstant, kG, InferConstant},
    {Opcode::kParameter, kG, InferParameter},
    {Opcode::kTuple, kO, InferTuple},
    {Opcode::kGetTupleElement, kO, InferGetTupleElement},
    {Opcode::kGetDimensionSize, kO, InferGetDimensionSize},
    {Opcode::kSetDimensionSize, kO, InferSetDimensionSize},
    {Opcode::kDot, kG, InferDot},
    {Opcode::kConvolution, kG, InferConvolution},
    {Opcode::kRaggedDot, kG, InferRaggedDot},
    {Opcode::kScaledDot, kG, InferScaledDot},
    {Opcode::kReduce, kO, InferReduce},
    {Opcode::kReduceWindow, kO, InferReduceWindow},
    {Opcode::kScan, kO, InferScan},
    {Opcode::kSort, kO, InferSort},
    {Opcode::kMap, kO, InferMap},
    {Opcode::kSelectAndScatter, kO, InferSelectAndScatter},
    {Opcode::kTopk, kO, InferTopk},
    {Opcode::kFft, kO, InferFft},
    {Opcode::kCholesky, kO, InferCholesky},
    {Opcode::kTriangularSolve, kO, InferTriangularSolve},
    {Opcode::kBatchNormTraining, kO, InferBatchNormTraining},
    {Opcode::kBatchNormInference, kO, InferBatchNormInference},
    {Opcode::kBatchNormGrad, kO, InferBatchNormGrad},
    {Opcode::kShuffle, kO, InferSameAsOperand},
    {Opcode::kRng, kG, InferRng},
    {Opcode::kRngBitGenerator, kG, InferRngBitGenerator},
    {Opcode::kRngGetAndUpdateState, kO, InferRngGetAndUpdateState},
    {Opcode::kCall, kO, InferCall},
    {Opcode::kFusion, kO, InferCall},
    {Opcode::kConditional, kO, InferConditional},
    {Opcode::kWhile, kO, InferWhile},
    {Opcode::kCustomCall, kG, InferCustomCall},
    {Opcode::kOptBarrier, kO, InferSameAsOperand},
    {Opcode::kAfterAll, kO, InferAfterAll},
    {Opcode::kAddDependency, kO, InferAddDependency},
    {Opcode::kDomain, kO, InferSameAsOperand},
    {Opcode::kInfeed, kG, InferInfeed},
    {Opcode::kOutfeed, kO, InferOutfeed},
    {Opcode::kSend, kO, InferSend},
    {Opcode::kSendDone, kO, InferSendDone},
    {Opcode::kRecv, kG, InferRecv},
    {Opcode::kRecvDone, kO, InferRecvDone},
    {Opcode::kPartitionId, kO, InferDeviceId},
    {Opcode::kReplicaId, kO, InferDeviceId},
    {Opcode::kAllReduce, kO, InferAllReduce},
    {Opcode::kReduceScatter, kG, InferReduceScatter},
    {Opcode::kCollectiveReduce, kO, InferAllReduce},
    {Opcode::kAllGather, kG, InferAllGather},
    {Opcode::kAllToAll, kO, InferAllToAll},
    {Opcode::kRaggedAllToAll, kO, InferRaggedAllToAll},
    {Opcode::kCollectivePermute, kO, InferCollectivePermute},
    {Opcode::kCollectiveBroadcast, kG, InferCollectiveBroadcast},
    {Opcode::kAllReduceStart, kO, InferAllReduce},
    {Opcode::kAllReduceDone, kO, InferSameAsOperand},
    {Opcode::kAllGatherStart, kG, InferAllGatherStart},
    {Opcode::kCollectivePermuteStart, kG, InferCollectivePermuteStart},
    {Opcode::kAllGatherDone, kO, InferAllGatherDone},
    {Opcode::kCollectivePermuteDone, kO, InferCollectivePermuteDone},
    {Opcode::kCopyStart, kO, InferCopyStart},
    {Opcode::kCopyDone, kO, InferCopyDone},
    {Opcode::kAsyncStart, kG, InferAsyncStart},
    {Opcode::kAsyncUpdate, kO, InferAsyncUpdate},
    {Opcode::kAsyncDone, kO, InferAsyncDone},
};

// The rows, indexed by opcode.
const std::vector<const InferRow*>& Table() {
  static const auto* const table = [] {
    auto* const by_opcode = new std::vector<const InferRow*>(OpcodeCount(), nullptr);
    for (int i = 0; i < OpcodeCount(); ++i) {
      const auto opcode = static_cast<Opcode>(i);
      if (!IsElementwise(opcode)) continue;
      if (Arity(opcode) == 1) (*by_opcode)[i] = &kUnaryRow;
      if (Arity(opcode) == 2) (*by_opcode)[i] = &kBinaryRow;
    }
    for (const InferRow& row : kInferRows) (*by_opcode)[Index(row.opcode)] = &row;
    return by_opcode;
  }();
  return *table;
}

struct TypeKindName {
  int kind;
  const char* name;
};
constexpr TypeKindName kKindNames[] = {{kPreds, "pred"},
                                       {kSigneds, "signed integer"},
                                       {kUnsigneds, "unsigned integer"},
                                       {kFloats, "float"},
                                       {kComplexes, "complex"}};

// Reducers may compute in floats of a different width than their inputs and initial values.
bool SameIgnoringFloatWidth(ElementType a, ElementType b) {
  return a == b || (tensor::IsFloating(a) && tensor::IsFloating(b));
}

}  // namespace

absl::StatusOr<Shape> InferShape(const Instruction& instruction) {
  const InferRow* const row = Table()[Index(instruction.opcode())];
  XLAD_CHECK(row != nullptr) << "no inference for " << ToString(instruction.opcode());
  const int arity = Arity(instruction.opcode());
  if (arity != kVariadic && instruction.operand_count() != arity) {
    return Violation("operand-count", Counted(instruction.operand_count(), "operand"), absl::StrCat(arity));
  }
  return row->infer(instruction);
}

ShapeSource ShapeSourceOf(Opcode opcode) { return Table()[Index(opcode)]->source; }
bool HasInference(Opcode opcode) { return Table()[Index(opcode)] != nullptr; }

absl::Status Violation(absl::string_view label, absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("found ", found, ", expected ", expected, " [", label, "]"));
}

std::string Brief(const Shape& shape) {
  constexpr size_t kMaxLength = 160;
  std::string text = shape.ToString(/*layouts=*/false);
  if (text.size() > kMaxLength) text = absl::StrCat(text.substr(0, kMaxLength), " ...");
  return text;
}

std::string Setting(absl::string_view name, absl::string_view value) {
  return value.empty() ? absl::StrCat("no ", name) : absl::StrCat(name, "=", value);
}

std::string Brief(absl::Span<const int64_t> numbers) {
  constexpr size_t kMaxNumbers = 16;
  const auto shown = numbers.subspan(0, std::min(numbers.size(), kMaxNumbers));
  return absl::StrCat("{", absl::StrJoin(shown, ","), numbers.size() > kMaxNumbers ? ", ..." : "", "}");
}

int KindOf(ElementType type) {
  if (type == ElementType::kPred) return kPreds;
  if (tensor::IsSigned(type)) return kSigneds;
  if (tensor::IsUnsigned(type)) return kUnsigneds;
  if (tensor::IsFloating(type)) return kFloats;
  if (tensor::IsComplex(type)) return kComplexes;
  return 0;
}

std::string TypeSetName(int set) {
  std::vector<std::string> names;
  for (const TypeKindName& kind : kKindNames) {
    if ((set & kind.kind) != 0) names.push_back(kind.name);
  }
  if ((set & kIntegers) == kIntegers) {
    names.erase(std::find(names.begin(), names.end(), "signed integer"));
    *std::find(names.begin(), names.end(), "unsigned integer") = "integer";
  }
  const std::string last = names.back();
  names.pop_back();
  return absl::StrCat("element type ", absl::StrJoin(names, ", "), names.empty() ? "" : " or ", last);
}

absl::Status ExpectArray(const Instruction& instruction, int64_t i, int set) {
  const Shape& shape = instruction.operand(i)->shape();
  if (!shape.is_array()) {
    return Violation("array-operand", absl::StrCat("operand ", i, " of shape ", Brief(shape)), "an array");
  }
  if ((KindOf(shape.type()) & set) == 0) {
    return Violation("operand-type", absl::StrCat("operand ", i, " of shape ", Brief(shape)), TypeSetName(set));
  }
  return absl::OkStatus();
}

absl::Status ExpectArrays(const Instruction& instruction) {
  for (int64_t i = 0; i < instruction.operand_count(); ++i) XLAD_RETURN_IF_ERROR(ExpectArray(instruction, i));
  return absl::OkStatus();
}

absl::Status ExpectOperandCount(const Instruction& instruction, int64_t minimum) {
  if (instruction.operand_count() >= minimum) return absl::OkStatus();
  return Violation("operand-count", Counted(instruction.operand_count(), "operand"),
                   absl::StrCat("at least ", minimum));
}

absl::Status ExpectInputsAndInits(const Instruction& instruction) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(instruction, 2));
  XLAD_RETURN_IF_ERROR(ExpectArrays(instruction));
  if (instruction.operand_count() % 2 == 0) return absl::OkStatus();
  return Violation("operand-count", Counted(instruction.operand_count(), "operand"), "N inputs, then N initial values");
}

absl::Status ExpectArrayResult(const Instruction& instruction) {
  if (instruction.shape().is_array()) return absl::OkStatus();
  return Violation("array-result", absl::StrCat("result ", Brief(instruction.shape())), "an array");
}

absl::Status ExpectDimension(absl::string_view label, int64_t dimension, int64_t ndim) {
  if (dimension >= 0 && dimension < ndim) return absl::OkStatus();
  return Violation(label, absl::StrCat("dimension ", dimension),
                   ndim == 0 ? std::string("none, of a scalar") : absl::StrCat("0 to ", ndim - 1));
}

absl::Status ExpectDimensions(absl::string_view label, absl::Span<const int64_t> dimensions, int64_t ndim) {
  std::vector<bool> seen(ndim);
  for (const int64_t d : dimensions) {
    XLAD_RETURN_IF_ERROR(ExpectDimension(label, d, ndim));
    if (seen[d]) {
      return Violation(label, absl::StrCat("dimension ", d, " twice in ", Brief(dimensions)), "each once");
    }
    seen[d] = true;
  }
  return absl::OkStatus();
}

Shape OneOrTuple(std::vector<Shape> shapes) {
  if (shapes.size() == 1) return std::move(shapes[0]);
  return Shape::Tuple(std::move(shapes));
}

absl::StatusOr<Signature> SignatureOf(const Instruction& instruction, size_t i) {
  const Computation& called = *instruction.called()[i];
  if (called.root() == nullptr) {
    return Violation("computation-root", absl::StrCat("computation %", called.name(), " without root"), "one");
  }
  Signature signature{called.name(), {}, called.root()->shape()};
  signature.result.clear_layout();
  for (const Instruction* const parameter : called.parameters()) {
    if (parameter == nullptr) {
      return Violation("parameter-numbers", absl::StrCat("a gap in the parameters of %", called.name()),
                       "numbers 0, 1, ...");
    }
    signature.parameters.push_back(&parameter->shape());
  }
  return signature;
}

absl::Status ExpectCalled(const Instruction& instruction, int64_t count) {
  const auto found = std::ssize(instruction.called());
  if (found == count) return absl::OkStatus();
  return Violation("called-computations", Counted(found, "called computation"), absl::StrCat(count));
}

std::vector<const Shape*> Pointers(const std::vector<Shape>& shapes) {
  std::vector<const Shape*> pointers;
  for (const Shape& shape : shapes) pointers.push_back(&shape);
  return pointers;
}

std::vector<const Shape*> OperandShapes(const Instruction& instruction) {
  std::vector<const Shape*> shapes;
  for (const Instruction* operand : instruction.operands()) shapes.push_back(&operand->shape());
  return shapes;
}

absl::Status ExpectFewParts(const std::vector<const Shape*>& elements) {
  int64_t parts = 1;
  for (const Shape* const element : elements) {
    parts += element->part_count();
    if (parts > kMaxShapeParts) {
      return Violation("shape-parts", absl::StrCat("a tuple of more than ", kMaxShapeParts, " parts"), "fewer");
    }
  }
  return absl::OkStatus();
}

absl::Status ExpectTakes(absl::string_view label, const Signature& signature,
                         const std::vector<const Shape*>& arguments) {
  if (signature.parameters.size() != arguments.size()) {
    return Violation(
        label,
        absl::StrCat(Counted(std::ssize(signature.parameters), "parameter"), " of %", signature.name),
        absl::StrCat(arguments.size()));
  }
  for (size_t k = 0; k < arguments.size(); ++k) {
    if (!signature.parameters[k]->SameIgnoringLayout(*arguments[k])) {
      return Violation(
          label, absl::StrCat("parameter ", k, " of %", signature.name, " of shape ", Brief(*signature.parameters[k])),
          Brief(*arguments[k]));
    }
  }
  return absl::OkStatus();
}

absl::Status ExpectReducer(const Instruction& instruction, size_t called, const std::vector<ElementType>& inputs,
                           const std::vector<ElementType>& inits) {
  XLAD_ASSIGN_OR_RETURN(const Signature reducer, SignatureOf(instruction, called));
  const size_t n = inits.size();
  const auto bad = [](const std::string& found, const std::string& expected) {
    return Violation("reducer-signature", found, expected);
  };
  if (reducer.parameters.size() != 2 * n) {
    return bad(
        absl::StrCat(Counted(std::ssize(reducer.parameters), "parameter"), " of %", reducer.name),
        absl::StrCat(2 * n));
  }
  for (size_t k = 0; k < 2 * n; ++k) {
    const Shape& parameter = *reducer.parameters[k];
    const ElementType type = k < n ? inits[k] : inputs[k - n];
    if (!parameter.is_scalar() || !SameIgnoringFloatWidth(parameter.type(), type)) {
      return bad(absl::StrCat("parameter ", k, " of %", reducer.name, " of shape ", Brief(parameter)),
                 Brief(Shape(type, {})));
    }
  }
  const std::vector<Shape> results =
      n == 1 && !reducer.result.is_tuple() ? std::vector<Shape>{reducer.result} : reducer.result.tuple();
  bool fits = results.size() == n;
  for (size_t k = 0; fits && k < n; ++k) {
    fits = results[k].is_scalar() && SameIgnoringFloatWidth(results[k].type(), inits[k]);
  }
  if (!fits) {
    std::vector<Shape> expected;
    for (const ElementType type : inits) expected.emplace_back(type, Dims{});
    return bad(absl::StrCat("result ", Brief(reducer.result), " of %", reducer.name),
               Brief(OneOrTuple(std::move(expected))));
  }
  return absl::OkStatus();
}

}  // namespace xlad::hlo
