// Sine and cosine of f32, for arguments of any size.
//
// The argument x = m 2^e is reduced exactly (Payne and Hanek, "Radian reduction for trigonometric functions", 1983): a
// table has 2^e / (2 pi) modulo 1 as a 96-bit fraction for every exponent; its product with the 24-bit m is the angle
// in turns.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Module.h>

#include <array>
#include <string>
#include <vector>

#include "compiler/codegen/llvm/float_ir.h"

namespace xlad::compiler {
namespace {

// 288 bits of 1 / (2 pi) after the binary point, from its hexadecimal digits.
constexpr std::array<uint32_t, 9> kInverseTurn = {0x28be60db, 0x9391054a, 0x7f09d5f4, 0x7d4d3770, 0x36d8a566,
                                                  0x4f10e410, 0x7f9458ea, 0xf7aef158, 0x6dc91b8e};

constexpr int kFirstExponent = 120;  // Biased exponent of the first table row; below 126 (|x| < 1/2) it is not used.

// Bits [from, from + count) of 1 / (2 pi) after the binary point; bits before the point are 0.
uint64_t InverseTurnBits(int from, int count) {
  uint64_t bits = 0;
  for (int i = from; i < from + count; ++i) {
    const uint32_t bit = i < 0 || i >= 288 ? 0 : (kInverseTurn[i / 32] >> (31 - i % 32)) & 1;
    bits = bits << 1 | bit;
  }
  return bits;
}

llvm::GlobalVariable* Table(Ir& ir, const char* name, int skip, int count) {
  llvm::GlobalVariable* table = ir.module().getGlobalVariable(name, true);
  if (table != nullptr) return table;
  std::vector<uint64_t> rows;
  for (int exponent = kFirstExponent; exponent < 256; ++exponent) {
    // 2^(exponent - 150) / (2 pi) modulo 1: the fraction from bit exponent - 150 on.
    rows.push_back(InverseTurnBits(exponent - 150 + skip, count));
  }
  llvm::Constant* data = llvm::ConstantDataArray::get(ir.context(), rows);
  table = new llvm::GlobalVariable(ir.module(), data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, name);
  table->setAlignment(llvm::Align(64));
  return table;
}

struct Angle {
  llvm::Value* quadrant;  // i32
  llvm::Value* rest;      // f32 in [-pi/4, pi/4]
};

// Reduces |x|.
Angle Reduce(Ir& ir, const Float& f, llvm::Value* size) {
  IrBuilder& b = ir.b;
  llvm::Type* i64 = b.getInt64Ty();
  llvm::Value* bits = f.Bits(size);
  llvm::Value* exponent = b.CreateLShr(bits, 23);
  llvm::Value* row =
      b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b.CreateSub(exponent, b.getInt32(kFirstExponent)), b.getInt32(0));
  llvm::Value* at = b.CreateZExt(row, i64);
  llvm::Value* high = b.CreateLoad(i64, b.CreateInBoundsGEP(i64, Table(ir, "xlad.turns.high", 0, 64), at));
  llvm::Value* low = b.CreateLoad(i64, b.CreateInBoundsGEP(i64, Table(ir, "xlad.turns.low", 64, 32), at));
  llvm::Value* mantissa = b.CreateOr(b.CreateAnd(bits, b.getInt32(0x7fffff)), b.getInt32(0x800000));
  llvm::Value* m = b.CreateZExt(mantissa, i64);
  llvm::Value* turns = b.CreateAdd(b.CreateMul(m, high), b.CreateLShr(b.CreateMul(m, low), 32));
  // The nearest multiple of a quarter turn, and the rest.
  llvm::Value* quarter = b.CreateLShr(b.CreateAdd(turns, b.getInt64(uint64_t{1} << 61)), 62);
  llvm::Value* rest = b.CreateSub(turns, b.CreateShl(quarter, 62));
  llvm::Value* radians = b.CreateFMul(b.CreateSIToFP(rest, b.getDoubleTy()),
                                      llvm::ConstantFP::get(b.getDoubleTy(), 0x1.921fb54442d18p-62));
  llvm::Value* is_small = b.CreateFCmpOLT(size, f.C(0.785398163));
  return {b.CreateSelect(is_small, b.getInt32(0), b.CreateTrunc(quarter, b.getInt32Ty())),
          b.CreateSelect(is_small, size, b.CreateFPTrunc(radians, b.getFloatTy()))};
}

// sin(r + quadrant pi / 2)
llvm::Value* SineOf(const Float& f, const Angle& angle) {
  IrBuilder& b = f.b;
  llvm::Value* square = b.CreateFMul(angle.rest, angle.rest);
  llvm::Value* s = f.Polynomial(square, {-1.6666666642e-01, 8.3333293835e-03, -1.9839334072e-04, 2.7183041403e-06});
  s = f.Fma(b.CreateFMul(square, angle.rest), s, angle.rest);
  llvm::Value* c = f.Polynomial(square, {4.1666666623e-02, -1.3888883750e-03, 2.4799519170e-05, -2.7210167745e-07});
  c = f.Fma(b.CreateFMul(square, square), c, f.Fma(square, f.C(-0.5), f.C(1)));
  llvm::Value* odd = b.CreateTrunc(angle.quadrant, b.getInt1Ty());
  llvm::Value* sign = b.CreateShl(b.CreateAnd(angle.quadrant, b.getInt32(2)), 30);
  return f.FromBits(b.CreateXor(f.Bits(f.Select(odd, c, s)), sign));
}

llvm::Value* NanUnlessFinite(const Float& f, llvm::Value* size, llvm::Value* value) {
  llvm::Value* finite = f.b.CreateFCmpOLT(size, llvm::ConstantFP::getInfinity(f.b.getFloatTy()));
  return f.Select(finite, value, llvm::ConstantFP::getNaN(f.b.getFloatTy()));
}

}  // namespace

llvm::Value* EmitSineF32(Ir& ir, llvm::Value* x) {
  const Float f(ir);
  llvm::Value* size = f.Abs(x);
  llvm::Value* value = SineOf(f, Reduce(ir, f, size));
  llvm::Value* sign = f.b.CreateAnd(f.Bits(x), f.b.getInt32(0x80000000u));
  return NanUnlessFinite(f, size, f.FromBits(f.b.CreateXor(f.Bits(value), sign)));
}

llvm::Value* EmitCosineF32(Ir& ir, llvm::Value* x) {
  const Float f(ir);
  llvm::Value* size = f.Abs(x);
  Angle angle = Reduce(ir, f, size);
  angle.quadrant = f.b.CreateAdd(angle.quadrant, f.b.getInt32(1));
  return NanUnlessFinite(f, size, SineOf(f, angle));
}

}  // namespace xlad::compiler
