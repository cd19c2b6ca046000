// Conversions between element types, comparisons and reduced precision, of single elements.
#include "compiler/codegen/llvm/convert_ops.h"

#include <llvm/IR/Intrinsics.h>

#include <cmath>

#include "compiler/codegen/llvm/types.h"
#include "tensor/small_float.h"

namespace xlad::compiler {
namespace {

using hlo::Comparison;
using hlo::ComparisonType;

bool IsUnsignedLike(ElementType type) { return type == ElementType::kPred || tensor::IsUnsigned(type); }

llvm::Value* IsNotZero(IrBuilder& b, ElementType type, llvm::Value* value) {
  if (tensor::IsComplex(type)) {
    llvm::Value* zero = llvm::ConstantFP::get(Real(b, value)->getType(), 0.0);
    return b.CreateOr(b.CreateFCmpUNE(Real(b, value), zero), b.CreateFCmpUNE(Imag(b, value), zero));
  }
  if (tensor::IsFloating(type)) return b.CreateFCmpUNE(value, llvm::ConstantFP::get(value->getType(), 0.0));
  return b.CreateICmpNE(value, llvm::ConstantInt::get(value->getType(), 0));
}

// Converts between real floating-point types in register form.
llvm::Value* FloatToFloat(IrBuilder& b, ElementType to, llvm::Value* value) {
  if (to == ElementType::kF64) return value->getType()->isDoubleTy() ? value : b.CreateFPExt(value, b.getDoubleTy());
  if (value->getType()->isDoubleTy()) value = b.CreateFPTrunc(value, b.getFloatTy());
  return RoundTo(b, to, value);
}

llvm::Value* ToFloat(IrBuilder& b, ElementType from, ElementType to, llvm::Value* value) {
  if (tensor::IsFloating(from)) return FloatToFloat(b, to, value);
  llvm::Type* type = to == ElementType::kF64 ? b.getDoubleTy() : b.getFloatTy();
  llvm::Value* converted = IsUnsignedLike(from) ? b.CreateUIToFP(value, type) : b.CreateSIToFP(value, type);
  return RoundTo(b, to, converted);
}

llvm::Value* ToInteger(Ir& ir, ElementType from, ElementType to, llvm::Value* value) {
  llvm::Type* type = RegisterType(ir.context(), to);
  if (tensor::IsFloating(from)) {
    const auto id = tensor::IsUnsigned(to) ? llvm::Intrinsic::fptoui_sat : llvm::Intrinsic::fptosi_sat;
    return ir.b.CreateIntrinsic(id, {type, value->getType()}, {value});
  }
  return IsUnsignedLike(from) ? ir.b.CreateZExtOrTrunc(value, type) : ir.b.CreateSExtOrTrunc(value, type);
}

llvm::CmpInst::Predicate FloatPredicate(Comparison comparison) {
  switch (comparison) {
    case Comparison::kEq:
      return llvm::CmpInst::FCMP_OEQ;
    case Comparison::kNe:
      return llvm::CmpInst::FCMP_UNE;
    case Comparison::kGe:
      return llvm::CmpInst::FCMP_OGE;
    case Comparison::kGt:
      return llvm::CmpInst::FCMP_OGT;
    case Comparison::kLe:
      return llvm::CmpInst::FCMP_OLE;
    case Comparison::kLt:
      return llvm::CmpInst::FCMP_OLT;
  }
  return llvm::CmpInst::FCMP_FALSE;
}

llvm::CmpInst::Predicate IntegerPredicate(Comparison comparison, bool is_unsigned) {
  switch (comparison) {
    case Comparison::kEq:
      return llvm::CmpInst::ICMP_EQ;
    case Comparison::kNe:
      return llvm::CmpInst::ICMP_NE;
    case Comparison::kGe:
      return is_unsigned ? llvm::CmpInst::ICMP_UGE : llvm::CmpInst::ICMP_SGE;
    case Comparison::kGt:
      return is_unsigned ? llvm::CmpInst::ICMP_UGT : llvm::CmpInst::ICMP_SGT;
    case Comparison::kLe:
      return is_unsigned ? llvm::CmpInst::ICMP_ULE : llvm::CmpInst::ICMP_SLE;
    case Comparison::kLt:
      return is_unsigned ? llvm::CmpInst::ICMP_ULT : llvm::CmpInst::ICMP_SLT;
  }
  return llvm::CmpInst::ICMP_EQ;
}

}  // namespace

llvm::Value* TotalOrderKey(IrBuilder& b, ElementType type, llvm::Value* value) {
  // Some 8-bit types have no sign or only one NaN. The order of their values in registers is correct for all types.
  const bool is_tiny = tensor::BitWidth(type) <= 8;
  llvm::Value* bits = ToBits(b, is_tiny ? ElementType::kF32 : type, value);
  const unsigned width = bits->getType()->getIntegerBitWidth();
  llvm::Value* sign = b.CreateAShr(bits, width - 1);
  return b.CreateXor(bits, b.CreateLShr(sign, 1));
}

llvm::Value* EmitConvert(Ir& ir, ElementType from, ElementType to, llvm::Value* value) {
  if (from == to) return value;
  IrBuilder& b = ir.b;
  if (to == ElementType::kPred) return IsNotZero(b, from, value);
  if (tensor::IsComplex(to)) {
    const ElementType part = tensor::RealPartOf(to);
    if (tensor::IsComplex(from)) {
      return MakeComplex(b, FloatToFloat(b, part, Real(b, value)), FloatToFloat(b, part, Imag(b, value)));
    }
    llvm::Value* real = ToFloat(b, from, part, value);
    return MakeComplex(b, real, llvm::ConstantFP::get(real->getType(), 0.0));
  }
  if (tensor::IsComplex(from)) return EmitConvert(ir, tensor::RealPartOf(from), to, Real(b, value));
  return tensor::IsFloating(to) ? ToFloat(b, from, to, value) : ToInteger(ir, from, to, value);
}

llvm::Value* EmitStochasticConvert(Ir& ir, ElementType from, ElementType to, llvm::Value* value,
                                   llvm::Value* random) {
  IrBuilder& b = ir.b;
  const double range = std::ldexp(1.0, static_cast<int>(random->getType()->getIntegerBitWidth()));
  llvm::Value* x = ToFloat(b, from, ElementType::kF64, value);
  llvm::Value* magnitude = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  llvm::Value* floor = b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, magnitude);
  llvm::Value* fraction = b.CreateFMul(b.CreateFSub(magnitude, floor), llvm::ConstantFP::get(x->getType(), range));
  // Infinities and NaNs are not rounded up: x - floor(x) is NaN for them, and the comparison is false.
  llvm::Value* up = b.CreateFCmpOLT(b.CreateUIToFP(random, x->getType()), fraction);
  magnitude = b.CreateSelect(up, b.CreateFAdd(floor, llvm::ConstantFP::get(x->getType(), 1.0)), magnitude);
  return ToInteger(ir, ElementType::kF64, to, b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, x));
}

llvm::Value* EmitCompare(Ir& ir, ElementType type, const hlo::Attributes& attributes, llvm::Value* x, llvm::Value* y) {
  IrBuilder& b = ir.b;
  if (tensor::IsComplex(type)) {
    llvm::Value* equal = b.CreateAnd(b.CreateFCmpOEQ(Real(b, x), Real(b, y)), b.CreateFCmpOEQ(Imag(b, x), Imag(b, y)));
    return attributes.comparison == Comparison::kNe ? b.CreateNot(equal) : equal;
  }
  if (!tensor::IsFloating(type)) {
    return b.CreateICmp(IntegerPredicate(attributes.comparison, IsUnsignedLike(type)), x, y);
  }
  if (attributes.comparison_type == ComparisonType::kFloatTotalOrder) {
    return b.CreateICmp(IntegerPredicate(attributes.comparison, false), TotalOrderKey(b, type, x),
                        TotalOrderKey(b, type, y));
  }
  return b.CreateFCmp(FloatPredicate(attributes.comparison), x, y);
}

llvm::Value* EmitReducePrecision(Ir& ir, ElementType type, const hlo::Attributes& attributes, llvm::Value* value) {
  IrBuilder& b = ir.b;
  // The bits are those of the type itself if it has an IEEE format. In f32, the form in which a register holds such a
  // value, the subnormal numbers of the type would be normal numbers.
  const tensor::FloatFormat* format = tensor::FloatFormatOf(type);
  if (format == nullptr || format->specials != tensor::FloatFormat::Specials::kIeee) format = nullptr;
  const bool is_double = type == ElementType::kF64;
  const ElementType own = format != nullptr || is_double ? type : ElementType::kF32;
  const int mantissa = format != nullptr ? format->mantissa_bits : is_double ? 52 : 23;
  const int exponent = tensor::BitWidth(own) - 1 - mantissa;
  llvm::Value* bits = ToBits(b, own, value);
  const auto constant = [&](uint64_t v) { return llvm::ConstantInt::get(bits->getType(), v); };
  const uint64_t sign_mask = uint64_t{1} << (mantissa + exponent);
  const uint64_t infinity = ((uint64_t{1} << exponent) - 1) << mantissa;
  llvm::Value* sign = b.CreateAnd(bits, constant(sign_mask));
  llvm::Value* magnitude = b.CreateAnd(bits, constant(sign_mask - 1));
  llvm::Value* is_nan = b.CreateICmpUGT(magnitude, constant(infinity));
  if (attributes.mantissa_bits < mantissa) {
    const uint64_t shift = mantissa - attributes.mantissa_bits;
    llvm::Value* odd = b.CreateAnd(b.CreateLShr(magnitude, shift), constant(1));
    magnitude = b.CreateAdd(magnitude, b.CreateAdd(odd, constant((uint64_t{1} << (shift - 1)) - 1)));
    magnitude = b.CreateAnd(magnitude, constant(sign_mask - (uint64_t{1} << shift)));
  }
  if (attributes.exponent_bits < exponent) {
    // The exponents of the small format, with the bias of the type, range from bias - small_bias + 1 to bias +
    // small_bias.
    const uint64_t bias = (uint64_t{1} << (exponent - 1)) - 1;
    const uint64_t small_bias = (uint64_t{1} << (attributes.exponent_bits - 1)) - 1;
    const uint64_t top = (bias + small_bias + 1) << mantissa, bottom = (bias - small_bias + 1) << mantissa;
    magnitude = b.CreateSelect(b.CreateICmpUGE(magnitude, constant(top)), constant(infinity), magnitude);
    magnitude = b.CreateSelect(b.CreateICmpULT(magnitude, constant(bottom)), constant(0), magnitude);
  }
  llvm::Value* reduced = FromBits(b, own, b.CreateSelect(is_nan, bits, b.CreateOr(sign, magnitude)));
  return own == type ? reduced : RoundTo(b, type, reduced);
}

}  // namespace xlad::compiler
