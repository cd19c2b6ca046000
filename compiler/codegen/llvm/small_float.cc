// Conversions of floats of at most 32 bits. The code is the same for all formats of a table, and differs for f8e8m0fnu.
#include "compiler/codegen/llvm/small_float.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"

namespace xlad::compiler {
namespace {

using tensor::ElementType;

enum class Special {
  kIeee,          // Codes with the largest exponent are infinities and NaNs.
  kFinite,        // "FN": only the code with all bits set is NaN.
  kUnsignedZero,  // "FNUZ": the code of negative zero is the only NaN.
  kNone,          // Every code is a number.
};

struct Format {
  ElementType type;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  Special special;
};

constexpr Format kFormats[] = {
    {ElementType::kF16, 5, 10, 15, Special::kIeee},
    {ElementType::kBF16, 8, 7, 127, Special::kIeee},
    {ElementType::kF32, 8, 23, 127, Special::kIeee},
    {ElementType::kF8E5M2, 5, 2, 15, Special::kIeee},
    {ElementType::kF8E4M3, 4, 3, 7, Special::kIeee},
    {ElementType::kF8E3M4, 3, 4, 3, Special::kIeee},
    {ElementType::kF8E4M3FN, 4, 3, 7, Special::kFinite},
    {ElementType::kF8E4M3B11FNUZ, 4, 3, 11, Special::kUnsignedZero},
    {ElementType::kF8E5M2FNUZ, 5, 2, 16, Special::kUnsignedZero},
    {ElementType::kF8E4M3FNUZ, 4, 3, 8, Special::kUnsignedZero},
    {ElementType::kF4E2M1FN, 2, 1, 1, Special::kNone},
};

const Format& FormatOf(ElementType type) {
  for (const Format& format : kFormats) {
    if (format.type == type) return format;
  }
  XLAD_CHECK(false) << "found type " << tensor::ToString(type) << ", expected a float of at most 32 bits";
  return kFormats[0];
}

// f8e8m0fnu has neither a sign nor a zero: its bits are an exponent, and 0xff is NaN.
float E8M0ToFloat(uint32_t bits) {
  return bits == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, static_cast<int>(bits) - 127);
}

// Ties round up, as in ml_dtypes and XLA. Subnormal floats of at most 2^-127 have code 0.
llvm::Value* EncodeE8M0(IrBuilder& b, llvm::Value* value) {
  llvm::Value* bits = b.CreateBitCast(value, b.getInt32Ty());
  llvm::Value* is_normal = b.CreateZExt(b.CreateICmpUGE(bits, b.getInt32(0x00800000)), b.getInt32Ty());
  llvm::Value* rounded = b.CreateLShr(b.CreateAdd(bits, b.CreateAdd(is_normal, b.getInt32(0x3fffff))), 23);
  // Zero, negative numbers, infinities and NaNs become NaN. As unsigned integers, the bits of all of these except zero
  // are at least 0x7f800000. After the subtraction, zero is larger than that too, because it wraps around.
  llvm::Value* bad = b.CreateICmpUGE(b.CreateSub(bits, b.getInt32(1)), b.getInt32(0x7f800000 - 1));
  return b.CreateTrunc(b.CreateSelect(bad, b.getInt32(0xff), rounded), b.getInt8Ty());
}

struct Codes {
  uint32_t largest;   // The largest finite magnitude.
  uint32_t overflow;  // The result of overflow.
  uint32_t nan;
};

Codes CodesOf(const Format& f) {
  const uint32_t ones = (1u << (f.exponent_bits + f.mantissa_bits)) - 1;
  const uint32_t infinity = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  switch (f.special) {
    case Special::kIeee:
      return {infinity - 1, infinity, infinity | (1u << (f.mantissa_bits - 1))};
    case Special::kFinite:
      return {ones - 1, ones, ones};
    case Special::kUnsignedZero:
      return {ones, ones + 1, ones + 1};
    case Special::kNone:
      return {ones, ones, ones + 1};  // As in ml_dtypes: a positive NaN becomes -0, and a negative NaN +0.
  }
  return {};
}

std::string DecodeTableName(ElementType type) { return "xlad.decode." + std::to_string(static_cast<int>(type)); }

// The bits that DecodeSmallFloat converted to `value`, or null if `value` is something else.
llvm::Value* DecodedBits(ElementType type, llvm::Value* value) {
  const auto* const load = llvm::dyn_cast<llvm::LoadInst>(value);
  if (load == nullptr) return nullptr;
  const auto* const address = llvm::dyn_cast<llvm::GetElementPtrInst>(load->getPointerOperand());
  if (address == nullptr || address->getPointerOperand()->getName() != DecodeTableName(type)) return nullptr;
  const auto* const index = llvm::dyn_cast<llvm::ZExtInst>(address->getOperand(2));
  return index == nullptr ? nullptr : index->getOperand(0);
}

}  // namespace

float SmallFloatToFloat(ElementType type, uint32_t bits) {
  if (type == ElementType::kF32) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  if (type == ElementType::kF8E8M0FNU) return E8M0ToFloat(bits);
  const Format& f = FormatOf(type);
  const uint32_t sign_bit = 1u << (f.exponent_bits + f.mantissa_bits);
  const uint32_t magnitude = bits & (sign_bit - 1);
  const uint32_t exponent = magnitude >> f.mantissa_bits, mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  const bool negative = (bits & sign_bit) != 0;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (f.special == Special::kUnsignedZero && negative && magnitude == 0) return nan;
  float value;
  if (f.special == Special::kFinite && magnitude == sign_bit - 1) {
    value = nan;
  } else if (f.special == Special::kIeee && exponent == (1u << f.exponent_bits) - 1) {
    const uint32_t payload = 0x7f800000 | mantissa << (23 - f.mantissa_bits);  // An infinity if the mantissa is 0.
    std::memcpy(&value, &payload, sizeof(value));
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), 1 - f.bias - f.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<float>(mantissa | (1u << f.mantissa_bits)),
                       static_cast<int>(exponent) - f.bias - f.mantissa_bits);
  }
  return negative ? -value : value;
}

llvm::Value* EncodeSmallFloat(IrBuilder& b, ElementType type, llvm::Value* value, Nans nans) {
  if (nans == Nans::kKeep) {
    if (llvm::Value* bits = DecodedBits(type, value)) return bits;
  }
  if (type == ElementType::kF8E8M0FNU) return EncodeE8M0(b, value);
  const Format& f = FormatOf(type);
  const Codes codes = CodesOf(f);
  const auto u32 = [&](uint32_t v) { return b.getInt32(v); };
  const uint32_t shift = 23 - f.mantissa_bits;
  llvm::Value* bits = b.CreateBitCast(value, b.getInt32Ty());
  llvm::Value* magnitude = b.CreateAnd(bits, u32(0x7fffffff));
  // For normal numbers, round the mantissa in place and change the bias of the exponent.
  llvm::Value* odd = b.CreateAnd(b.CreateLShr(magnitude, shift), u32(1));
  llvm::Value* rounded = b.CreateLShr(b.CreateAdd(magnitude, b.CreateAdd(odd, u32((1u << (shift - 1)) - 1))), shift);
  llvm::Value* normal = b.CreateSub(rounded, u32(static_cast<uint32_t>(127 - f.bias) << f.mantissa_bits));
  // For subnormal numbers, add a power of two whose unit in the last place is the smallest number of the type. The sum
  // is rounded to a multiple of this number.
  const uint32_t magic = static_cast<uint32_t>(127 + 1 - f.bias - f.mantissa_bits + 23) << 23;
  llvm::Value* absolute = b.CreateBitCast(magnitude, b.getFloatTy());
  llvm::Value* sum = b.CreateFAdd(absolute, b.CreateBitCast(u32(magic), b.getFloatTy()));
  llvm::Value* subnormal = b.CreateSub(b.CreateBitCast(sum, b.getInt32Ty()), u32(magic));
  llvm::Value* is_small = b.CreateICmpULT(magnitude, u32(static_cast<uint32_t>(127 + 1 - f.bias) << 23));
  llvm::Value* code = b.CreateSelect(is_small, subnormal, normal);
  code = b.CreateSelect(b.CreateICmpUGT(code, u32(codes.largest)), u32(codes.overflow), code);
  code = b.CreateSelect(b.CreateICmpUGE(magnitude, u32(0x7f800000)), u32(codes.overflow), code);
  llvm::Value* nan = u32(codes.nan);
  if (nans == Nans::kKeep && f.special == Special::kIeee) {
    llvm::Value* payload = b.CreateAnd(b.CreateLShr(magnitude, shift), u32((1u << f.mantissa_bits) - 1));
    nan = b.CreateSelect(b.CreateICmpEQ(payload, u32(0)), nan, b.CreateOr(payload, u32(codes.overflow)));
  }
  code = b.CreateSelect(b.CreateICmpUGT(magnitude, u32(0x7f800000)), nan, code);
  llvm::Value* sign = b.CreateShl(b.CreateLShr(bits, 31), static_cast<uint64_t>(f.exponent_bits + f.mantissa_bits));
  if (f.special == Special::kUnsignedZero) sign = b.CreateSelect(b.CreateICmpEQ(code, u32(0)), u32(0), sign);
  llvm::Value* both = f.special == Special::kNone ? b.CreateXor(code, sign) : b.CreateOr(code, sign);
  return b.CreateTrunc(both, b.getIntNTy(static_cast<unsigned>(tensor::BitWidth(type))));
}

llvm::Value* DecodeSmallFloat(IrBuilder& b, ElementType type, llvm::Value* bits) {
  llvm::Module* module = b.GetInsertBlock()->getModule();
  const std::string name = DecodeTableName(type);
  llvm::GlobalVariable* table = module->getGlobalVariable(name, true);
  const uint32_t count = 1u << tensor::BitWidth(type);
  llvm::Type* table_type = llvm::ArrayType::get(b.getFloatTy(), count);
  if (table == nullptr) {
    std::vector<float> values(count);
    for (uint32_t i = 0; i < count; ++i) values[i] = SmallFloatToFloat(type, i);
    llvm::Constant* data = llvm::ConstantDataArray::get(b.getContext(), values);
    table = new llvm::GlobalVariable(*module, table_type, true, llvm::GlobalValue::PrivateLinkage, data, name);
  }
  llvm::Value* index = b.CreateZExt(bits, b.getInt64Ty());
  return b.CreateLoad(b.getFloatTy(), b.CreateInBoundsGEP(table_type, table, {b.getInt64(0), index}));
}

}  // namespace xlad::compiler
