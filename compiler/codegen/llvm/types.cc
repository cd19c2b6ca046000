#include "compiler/codegen/llvm/types.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Instructions.h>

#include <cstring>
#include <optional>

#include "base/status.h"
#include "compiler/codegen/llvm/small_float.h"
#include "tensor/small_float.h"

namespace xlad::compiler {
namespace {

// Converts an f16 NaN to the bits of an f32. LLVM's conversions would make a signaling NaN quiet.
uint64_t FloatBitsOfHalfNan(uint64_t bits) { return (bits & 0x8000) << 16 | 0x7f800000 | (bits & 0x3ff) << 13; }

// The inverse conversion: the f16 bits of a constant if it is a signaling NaN of f16, and nullopt otherwise.
std::optional<uint16_t> HalfBitsOfSignalingNan(const llvm::Value* value) {
  const auto* const constant = llvm::dyn_cast<llvm::ConstantFP>(value);
  if (constant == nullptr || !constant->getValueAPF().isSignaling()) return std::nullopt;
  const uint64_t bits = constant->getValueAPF().bitcastToAPInt().getZExtValue();
  const auto half = static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x7c00 | (bits >> 13 & 0x3ff));
  return FloatBitsOfHalfNan(half) == bits ? std::optional<uint16_t>(half) : std::nullopt;
}

// Converts a small float in an f32 register to an integer of the width of the small float. SmallFloatFromBits is the
// inverse.
llvm::Value* SmallFloatToBits(IrBuilder& b, ElementType type, llvm::Value* value) {
  if (type == ElementType::kF16) {
    // A value that was only moved keeps its bits: a conversion would make a signaling NaN quiet.
    auto* const extended = llvm::dyn_cast<llvm::FPExtInst>(value);
    if (extended != nullptr && extended->getSrcTy()->isHalfTy()) {
      return b.CreateBitCast(extended->getOperand(0), b.getInt16Ty());
    }
    if (const std::optional<uint16_t> bits = HalfBitsOfSignalingNan(value)) return b.getInt16(*bits);
    return b.CreateBitCast(b.CreateFPTrunc(value, b.getHalfTy()), b.getInt16Ty());
  }
  if (type == ElementType::kBF16) {
    // Registers hold exact bf16 values, so the upper half of the bits is the result.
    return b.CreateTrunc(b.CreateLShr(b.CreateBitCast(value, b.getInt32Ty()), 16), b.getInt16Ty());
  }
  return EncodeSmallFloat(b, type, value, Nans::kKeep);
}

llvm::Value* SmallFloatFromBits(IrBuilder& b, ElementType type, llvm::Value* bits) {
  if (type == ElementType::kF16) return b.CreateFPExt(b.CreateBitCast(bits, b.getHalfTy()), b.getFloatTy());
  if (type == ElementType::kBF16) {
    return b.CreateBitCast(b.CreateShl(b.CreateZExt(bits, b.getInt32Ty()), 16), b.getFloatTy());
  }
  return DecodeSmallFloat(b, type, bits);
}

llvm::Value* RoundToBf16(IrBuilder& b, llvm::Value* value) {
  llvm::Value* bits = b.CreateBitCast(value, b.getInt32Ty());
  llvm::Value* odd = b.CreateAnd(b.CreateLShr(bits, 16), b.getInt32(1));
  llvm::Value* rounded = b.CreateAdd(bits, b.CreateAdd(odd, b.getInt32(0x7fff)));
  llvm::Value* quiet = b.CreateOr(bits, b.getInt32(0x400000));
  llvm::Value* chosen = b.CreateSelect(b.CreateFCmpUNO(value, value), quiet, rounded);
  return b.CreateBitCast(b.CreateAnd(chosen, b.getInt32(0xffff0000u)), b.getFloatTy());
}

}  // namespace

llvm::Type* RegisterType(llvm::LLVMContext& context, ElementType type) {
  if (type == ElementType::kPred) return llvm::Type::getInt1Ty(context);
  if (tensor::IsInteger(type)) return llvm::Type::getIntNTy(context, static_cast<unsigned>(tensor::BitWidth(type)));
  if (type == ElementType::kF64) return llvm::Type::getDoubleTy(context);
  if (tensor::IsComplex(type)) {
    llvm::Type* part = RegisterType(context, tensor::RealPartOf(type));
    return llvm::StructType::get(context, {part, part});
  }
  XLAD_CHECK(tensor::IsFloating(type)) << static_cast<int>(type);
  return llvm::Type::getFloatTy(context);
}

llvm::Type* StorageType(llvm::LLVMContext& context, ElementType type) {
  if (tensor::IsComplex(type) || type == ElementType::kF32 || type == ElementType::kF64) {
    return RegisterType(context, type);
  }
  return llvm::Type::getIntNTy(context, static_cast<unsigned>(8 * tensor::ByteWidth(type)));
}

llvm::Value* ToBits(IrBuilder& b, ElementType type, llvm::Value* value) {
  if (type == ElementType::kPred) return b.CreateZExt(value, b.getInt8Ty());
  if (type == ElementType::kF32) return b.CreateBitCast(value, b.getInt32Ty());
  if (type == ElementType::kF64) return b.CreateBitCast(value, b.getInt64Ty());
  if (tensor::IsSmallFloat(type)) return SmallFloatToBits(b, type, value);
  if (tensor::IsComplex(type)) {
    const unsigned half = static_cast<unsigned>(tensor::BitWidth(type)) / 2;
    llvm::Type* whole = b.getIntNTy(2 * half);
    llvm::Value* low = b.CreateZExt(ToBits(b, tensor::RealPartOf(type), Real(b, value)), whole);
    llvm::Value* high = b.CreateZExt(ToBits(b, tensor::RealPartOf(type), Imag(b, value)), whole);
    return b.CreateOr(low, b.CreateShl(high, half));
  }
  return value;
}

llvm::Value* FromBits(IrBuilder& b, ElementType type, llvm::Value* bits) {
  if (type == ElementType::kPred) return b.CreateICmpNE(bits, b.getInt8(0));
  if (type == ElementType::kF32) return b.CreateBitCast(bits, b.getFloatTy());
  if (type == ElementType::kF64) return b.CreateBitCast(bits, b.getDoubleTy());
  if (tensor::IsSmallFloat(type)) return SmallFloatFromBits(b, type, bits);
  if (tensor::IsComplex(type)) {
    const unsigned half = static_cast<unsigned>(tensor::BitWidth(type)) / 2;
    llvm::Value* low = b.CreateTrunc(bits, b.getIntNTy(half));
    llvm::Value* high = b.CreateTrunc(b.CreateLShr(bits, half), b.getIntNTy(half));
    return MakeComplex(b, FromBits(b, tensor::RealPartOf(type), low), FromBits(b, tensor::RealPartOf(type), high));
  }
  return bits;
}

llvm::Value* LoadElement(IrBuilder& b, ElementType type, llvm::Value* address) {
  llvm::LLVMContext& context = b.getContext();
  const llvm::Align align(tensor::ByteWidth(tensor::RealPartOf(type)));
  if (tensor::IsComplex(type)) {
    llvm::Type* part = RegisterType(context, tensor::RealPartOf(type));
    llvm::Value* real = b.CreateAlignedLoad(part, address, align);
    llvm::Value* imag = b.CreateAlignedLoad(part, b.CreateConstInBoundsGEP1_64(part, address, 1), align);
    return MakeComplex(b, real, imag);
  }
  llvm::Value* stored = b.CreateAlignedLoad(StorageType(context, type), address, align);
  if (type == ElementType::kF32 || type == ElementType::kF64) return stored;
  if (tensor::BitWidth(type) < 8 && type != ElementType::kPred) {
    stored = b.CreateTrunc(stored, b.getIntNTy(static_cast<unsigned>(tensor::BitWidth(type))));
  }
  return FromBits(b, type, stored);
}

void StoreElement(IrBuilder& b, ElementType type, llvm::Value* value, llvm::Value* address) {
  const llvm::Align align(tensor::ByteWidth(tensor::RealPartOf(type)));
  if (tensor::IsComplex(type)) {
    llvm::Type* part = RegisterType(b.getContext(), tensor::RealPartOf(type));
    b.CreateAlignedStore(Real(b, value), address, align);
    b.CreateAlignedStore(Imag(b, value), b.CreateConstInBoundsGEP1_64(part, address, 1), align);
    return;
  }
  if (type != ElementType::kF32 && type != ElementType::kF64) {
    value = ToBits(b, type, value);
    llvm::Type* storage = StorageType(b.getContext(), type);
    value = tensor::IsSigned(type) ? b.CreateSExt(value, storage) : b.CreateZExt(value, storage);
  }
  b.CreateAlignedStore(value, address, align);
}

llvm::Value* RoundTo(IrBuilder& b, ElementType type, llvm::Value* value) {
  if (!tensor::IsSmallFloat(type)) return value;
  if (type == ElementType::kBF16) return RoundToBf16(b, value);
  if (type == ElementType::kF16) return SmallFloatFromBits(b, type, SmallFloatToBits(b, type, value));
  return SmallFloatFromBits(b, type, EncodeSmallFloat(b, type, value, Nans::kQuiet));
}

llvm::Constant* ConstantOf(llvm::LLVMContext& context, ElementType type, absl::Span<const std::byte> bytes) {
  if (tensor::IsComplex(type)) {
    const size_t half = bytes.size() / 2;
    return llvm::ConstantStruct::get(llvm::cast<llvm::StructType>(RegisterType(context, type)),
                                     {ConstantOf(context, tensor::RealPartOf(type), bytes.subspan(0, half)),
                                      ConstantOf(context, tensor::RealPartOf(type), bytes.subspan(half))});
  }
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data(), bytes.size());
  const unsigned width = static_cast<unsigned>(tensor::BitWidth(type));
  if (type == ElementType::kPred) return llvm::ConstantInt::get(llvm::Type::getInt1Ty(context), bits != 0);
  if (tensor::IsInteger(type)) return llvm::ConstantInt::get(context, llvm::APInt(64, bits).trunc(width));
  if (type == ElementType::kF64) {
    return llvm::ConstantFP::get(context, llvm::APFloat(llvm::APFloat::IEEEdouble(), llvm::APInt(64, bits)));
  }
  if (type == ElementType::kF16) {
    llvm::APFloat half(llvm::APFloat::IEEEhalf(), llvm::APInt(16, bits));
    if (half.isSignaling()) {
      const llvm::APInt float_bits(32, FloatBitsOfHalfNan(bits));
      return llvm::ConstantFP::get(context, llvm::APFloat(llvm::APFloat::IEEEsingle(), float_bits));
    }
    bool loses_information = false;
    half.convert(llvm::APFloat::IEEEsingle(), llvm::APFloat::rmNearestTiesToEven, &loses_information);
    return llvm::ConstantFP::get(context, half);
  }
  // For bf16, the shift is an exact conversion that keeps the payload of a NaN.
  uint32_t float_bits = static_cast<uint32_t>(bits) << 16;
  if (type != ElementType::kBF16) {
    const float value = SmallFloatToFloat(type, static_cast<uint32_t>(bits));
    std::memcpy(&float_bits, &value, sizeof(value));
  }
  return llvm::ConstantFP::get(context, llvm::APFloat(llvm::APFloat::IEEEsingle(), llvm::APInt(32, float_bits)));
}

llvm::Value* MakeComplex(IrBuilder& b, llvm::Value* real, llvm::Value* imag) {
  llvm::Type* type = llvm::StructType::get(b.getContext(), {real->getType(), imag->getType()});
  llvm::Value* half = b.CreateInsertValue(llvm::PoisonValue::get(type), real, 0);
  return b.CreateInsertValue(half, imag, 1);
}

}  // namespace xlad::compiler
