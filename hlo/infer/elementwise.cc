// Inference for elementwise opcodes: operands and result have the same sizes, and each opcode accepts some element
// types. Exceptions: bitcast-convert may add or remove a last dimension, and the bounds of clamp and the predicate of
// select may be scalars.
#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"

namespace xlad::hlo {
namespace {

absl::Status ExpectSameShapes(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  for (const Instruction* const operand : i.operands()) {
    if (!operand->shape().SameIgnoringLayout(i.operand(0)->shape())) {
      return Violation("elementwise-same-shape",
                       absl::StrCat("operands ", Brief(i.operand(0)->shape()), " and ", Brief(operand->shape())),
                       "operands of the same shape");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Inferred InferUnary(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0, OperandTypes(i.opcode())));
  const Shape& x = i.operand(0)->shape();
  switch (i.opcode()) {
    case Opcode::kIsFinite:
      return Shape(ElementType::kPred, x.dims());
    case Opcode::kAbs:
    case Opcode::kReal:
    case Opcode::kImag:
      return Shape(tensor::RealPartOf(x.type()), x.dims());
    case Opcode::kReducePrecision:
      if (i.attributes().exponent_bits < 1 || i.attributes().mantissa_bits < 0) {
        return Violation("reduce-precision-bits",
                         absl::StrCat("exponent_bits=", i.attributes().exponent_bits,
                                      ", mantissa_bits=", i.attributes().mantissa_bits),
                         "exponent_bits of 1 or more and mantissa_bits of 0 or more");
      }
      [[fallthrough]];
    default:
      return Shape(x.type(), x.dims());
  }
}

Inferred InferConvert(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  return Shape(i.shape().type(), i.operand(0)->shape().dims());
}

Inferred InferBitcastConvert(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0));
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  const Shape& x = i.operand(0)->shape();
  const int from = tensor::BitWidth(x.type()), to = tensor::BitWidth(i.shape().type());
  if ((KindOf(x.type()) == kComplexes) != (KindOf(i.shape().type()) == kComplexes)) {
    return Violation("bitcast-convert-complex",
                     absl::StrCat(tensor::ToString(x.type()), " to ", tensor::ToString(i.shape().type())),
                     "both complex or neither");
  }
  Dims dims = x.dims();
  if (from > to) {  // Each element becomes several elements along a new last dimension.
    dims.push_back(from / to);
  } else if (from < to) {  // All elements along the last dimension become one element.
    if (dims.empty() || dims.back() != to / from) {
      return Violation("bitcast-convert-sizes", Brief(x),
                       absl::StrCat("a last dimension of size ", to / from, ", whose elements make one ",
                                    tensor::ToString(i.shape().type())));
    }
    dims.pop_back();
  }
  return Shape(i.shape().type(), std::move(dims));
}

Inferred InferBinary(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectSameShapes(i));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0, OperandTypes(i.opcode())));
  const Shape& x = i.operand(0)->shape();
  return Shape(x.type(), x.dims());
}

Inferred InferComplex(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectSameShapes(i));
  const Shape& x = i.operand(0)->shape();
  if (x.type() == ElementType::kF32) return Shape(ElementType::kC64, x.dims());
  if (x.type() == ElementType::kF64) return Shape(ElementType::kC128, x.dims());
  return Violation("complex-types", Brief(x), "f32 or f64 operands");
}

Inferred InferCompare(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectSameShapes(i));
  const Shape& x = i.operand(0)->shape();
  const int kind = KindOf(x.type());
  struct Fit {
    ComparisonType type;
    const char* name;
    int kinds;
  };
  constexpr Fit kFits[] = {
      {ComparisonType::kFloat, "FLOAT", kFloats | kComplexes},
      {ComparisonType::kFloatTotalOrder, "TOTALORDER", kFloats},
      {ComparisonType::kSigned, "SIGNED", kSigneds},
      {ComparisonType::kUnsigned, "UNSIGNED", kUnsigneds | kPreds},
  };
  for (const Fit& fit : kFits) {
    if (i.attributes().comparison_type == fit.type && (kind & fit.kinds) == 0) {
      return Violation("compare-type", absl::StrCat("type=", fit.name, " on ", Brief(x)),
                       absl::StrCat("operands of ", TypeSetName(fit.kinds)));
    }
  }
  const Comparison comparison = i.attributes().comparison;
  if (kind == kComplexes && comparison != Comparison::kEq && comparison != Comparison::kNe) {
    return Violation("compare-complex", "an order on complex numbers", "direction EQ or NE");
  }
  return Shape(ElementType::kPred, x.dims());
}

Inferred InferStochasticConvert(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 0, kFloats));
  XLAD_RETURN_IF_ERROR(ExpectArray(i, 1, kUnsigneds));
  XLAD_RETURN_IF_ERROR(ExpectArrayResult(i));
  const Shape& x = i.operand(0)->shape();
  const Shape& random = i.operand(1)->shape();
  if (x.dims() != random.dims() || tensor::BitWidth(x.type()) != tensor::BitWidth(random.type())) {
    return Violation("stochastic-convert-random", absl::StrCat(Brief(x), " with random bits ", Brief(random)),
                     "as many random bits in each element as the operand has");
  }
  return Shape(i.shape().type(), x.dims());
}

Inferred InferClamp(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  const Shape& x = i.operand(1)->shape();
  for (const int64_t bound : {0, 2}) {
    const Shape& limit = i.operand(bound)->shape();
    if (limit.type() != x.type() || (!limit.is_scalar() && limit.dims() != x.dims())) {
      return Violation("clamp-bounds", absl::StrCat("bound ", Brief(limit), " for operand ", Brief(x)),
                       "a scalar or the operand's shape, of the operand's type");
    }
  }
  return Shape(x.type(), x.dims());
}

Inferred InferSelect(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  const Shape& condition = i.operand(0)->shape();
  const Shape& yes = i.operand(1)->shape();
  const Shape& no = i.operand(2)->shape();
  if (!yes.SameIgnoringLayout(no)) {
    return Violation("select-same-shape", absl::StrCat("values ", Brief(yes), " and ", Brief(no)),
                     "values of the same shape");
  }
  if (condition.type() != ElementType::kPred || (!condition.is_scalar() && condition.dims() != yes.dims())) {
    return Violation("select-condition", absl::StrCat("condition ", Brief(condition), " for ", Brief(yes)),
                     "pred, as a scalar or with the values' sizes");
  }
  return Shape(yes.type(), yes.dims());
}

}  // namespace xlad::hlo
