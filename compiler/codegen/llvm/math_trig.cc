// Sine and cosine of f32, for arguments of any size.
//
// Arguments below kLarge are reduced in f64 by subtracting a multiple of pi/2, which is given as the sum of two numbers
// (Cody and Waite, "Software manual for the elementary functions", 1980). A larger argument x = m 2^e is reduced
// exactly (Payne and Hanek, "Radian reduction for trigonometric functions", 1983). A table has 2^e / (2 pi) modulo 1 as
// a 96-bit fraction for every exponent e. The product of this fraction and the 24-bit m is the angle in turns.
//
// The exact reduction is several times as expensive, so it is in a branch that is taken only if the argument, or one
// element of a vector of arguments, is large or not finite. Such a branch would prevent LLVM from vectorizing the loops
// that call the function. Therefore there are functions for single numbers and for vectors, and an attribute tells LLVM
// that these correspond. They are inlined after vectorization (code_generator.cc). The result for an element of a
// vector does not depend on the other elements.
#include <llvm/IR/Constants.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/codegen/llvm/code_generator.h"
#include "compiler/codegen/llvm/float_ir.h"

namespace xlad::compiler {
namespace {

// 288 bits of 1 / (2 pi) after the binary point, from its hexadecimal digits.
constexpr std::array<uint32_t, 9> kInverseTurn = {0x28be60db, 0x9391054a, 0x7f09d5f4, 0x7d4d3770, 0x36d8a566,
                                                  0x4f10e410, 0x7f9458ea, 0xf7aef158, 0x6dc91b8e};

constexpr double kLarge = 0x1p26;
// The biased exponent of the first row of the table. The elements of a vector that have smaller exponents read the
// first row, and the result is not used.
constexpr int kFirstExponent = 120;

// Bits [from, from + count) of 1 / (2 pi) after the binary point; bits before the point are 0.
uint64_t InverseTurnBits(int from, int count) {
  uint64_t bits = 0;
  for (int i = from; i < from + count; ++i) {
    const uint32_t bit = i < 0 || i >= 288 ? 0 : (kInverseTurn[i / 32] >> (31 - i % 32)) & 1;
    bits = bits << 1 | bit;
  }
  return bits;
}

llvm::GlobalVariable* Table(llvm::Module& module, const char* name, int skip, int count) {
  llvm::GlobalVariable* table = module.getGlobalVariable(name, true);
  if (table != nullptr) return table;
  std::vector<uint64_t> rows;
  for (int exponent = kFirstExponent; exponent < 256; ++exponent) {
    // 2^(exponent - 150) / (2 pi) modulo 1: the fraction from bit exponent - 150 on.
    rows.push_back(InverseTurnBits(exponent - 150 + skip, count));
  }
  llvm::Constant* data = llvm::ConstantDataArray::get(module.getContext(), rows);
  table = new llvm::GlobalVariable(module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, name);
  table->setAlignment(llvm::Align(64));
  return table;
}

struct Angle {
  llvm::Value* quadrant;  // i32
  llvm::Value* rest;      // f32 in [-pi/4, pi/4], up to rounding.
};

// Reduces |x| < kLarge. The multiple n of pi/2 has at most 26 bits and the first part of pi/2 has 25, so that their
// product is exact with and without fused instructions. The sum of the two parts is within 2^-79 of pi/2.
Angle ReduceSmall(const Float& f, llvm::Value* size) {
  IrBuilder& b = f.b;
  llvm::Type* f64 = f.Of(b.getDoubleTy());
  const auto c = [&](double value) { return llvm::ConstantFP::get(f64, value); };
  // Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits.
  const double magic = 0x1.8p52;
  llvm::Value* x = b.CreateFPExt(size, f64);
  llvm::Value* shifted = f.Fma(x, c(0x1.45f306dc9c883p-1), c(magic));
  llvm::Value* n = b.CreateFSub(shifted, c(magic));
  llvm::Value* rest = f.Fma(n, c(-0x1.921fb5p+0), x);
  rest = f.Fma(n, c(-0x1.110b4611a6263p-26), rest);
  llvm::Value* quadrant = b.CreateTrunc(b.CreateBitCast(shifted, f.Of(b.getInt64Ty())), f.Of(b.getInt32Ty()));
  return {quadrant, b.CreateFPTrunc(rest, f.Of(b.getFloatTy()))};
}

llvm::Value* Lookup(const Float& f, llvm::GlobalVariable* table, llvm::Value* row) {
  IrBuilder& b = f.b;
  llvm::Value* place = b.CreateInBoundsGEP(b.getInt64Ty(), table, row);
  if (!row->getType()->isVectorTy()) return b.CreateLoad(b.getInt64Ty(), place);
  return b.CreateMaskedGather(row->getType(), place, llvm::Align(8));
}

// Reduces any finite |x| of at least 1/2.
Angle ReduceAny(llvm::Module& module, const Float& f, llvm::Value* size) {
  IrBuilder& b = f.b;
  llvm::Type* i64 = f.Of(b.getInt64Ty());
  const auto c = [&](uint64_t value) { return llvm::ConstantInt::get(i64, value); };
  llvm::Value* bits = f.Bits(size);
  llvm::Value* exponent = b.CreateLShr(bits, 23);
  llvm::Value* row = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b.CreateSub(exponent, f.I(kFirstExponent)), f.I(0));
  llvm::Value* at = b.CreateZExt(row, i64);
  llvm::Value* high = Lookup(f, Table(module, "xlad.turns.high", 0, 64), at);
  llvm::Value* low = Lookup(f, Table(module, "xlad.turns.low", 64, 32), at);
  llvm::Value* m = b.CreateZExt(b.CreateOr(b.CreateAnd(bits, f.I(0x7fffff)), f.I(0x800000)), i64);
  llvm::Value* turns = b.CreateAdd(b.CreateMul(m, high), b.CreateLShr(b.CreateMul(m, low), c(32)));
  // The nearest multiple of a quarter turn, and the remainder.
  llvm::Value* quarter = b.CreateLShr(b.CreateAdd(turns, c(uint64_t{1} << 61)), c(62));
  llvm::Value* rest = b.CreateSub(turns, b.CreateShl(quarter, c(62)));
  llvm::Type* f64 = f.Of(b.getDoubleTy());
  llvm::Value* radians = b.CreateFMul(b.CreateSIToFP(rest, f64), llvm::ConstantFP::get(f64, 0x1.921fb54442d18p-62));
  return {b.CreateTrunc(quarter, f.Of(b.getInt32Ty())), b.CreateFPTrunc(radians, f.Of(b.getFloatTy()))};
}

// sin(r + quadrant pi / 2)
llvm::Value* SineOf(const Float& f, const Angle& angle) {
  IrBuilder& b = f.b;
  llvm::Value* square = b.CreateFMul(angle.rest, angle.rest);
  llvm::Value* s = f.Polynomial(square, {-1.6666666642e-01, 8.3333293835e-03, -1.9839334072e-04, 2.7183041403e-06});
  s = f.Fma(b.CreateFMul(square, angle.rest), s, angle.rest);
  llvm::Value* c = f.Polynomial(square, {4.1666666623e-02, -1.3888883750e-03, 2.4799519170e-05, -2.7210167745e-07});
  c = f.Fma(b.CreateFMul(square, square), c, f.Fma(square, f.C(-0.5), f.C(1)));
  llvm::Value* odd = b.CreateTrunc(angle.quadrant, f.Of(b.getInt1Ty()));
  llvm::Value* sign = b.CreateShl(b.CreateAnd(angle.quadrant, f.I(2)), 30);
  return f.FromBits(b.CreateXor(f.Bits(f.Select(odd, c, s)), sign));
}

struct TrigFunction {
  const char* name;
  uint32_t quadrant;  // The function is sin(x + quadrant pi / 2).
  bool is_odd;        // The result has the sign of x.
};
constexpr TrigFunction kSine = {"xlad_sine", 0, true}, kCosine = {"xlad_cosine", 1, false};

// The widths of vectors for which a function is defined.
constexpr std::array<unsigned, 3> kWidths = {4, 8, 16};

std::string NameOf(const TrigFunction& which, unsigned width) {
  return width == 1 ? which.name : std::string(which.name) + "_" + std::to_string(width);
}

void EmitBody(llvm::Function* function, const TrigFunction& which) {
  llvm::LLVMContext& context = function->getContext();
  llvm::Value* x = function->getArg(0);
  IrBuilder b(llvm::BasicBlock::Create(context, "small", function));
  const Float f(b, x->getType());
  const auto finish = [&](Angle angle) {
    angle.quadrant = b.CreateAdd(angle.quadrant, f.I(which.quadrant));
    return SineOf(f, angle);
  };
  llvm::Value* size = f.Abs(x);
  llvm::Value* small = finish(ReduceSmall(f, size));
  llvm::Value* is_large = b.CreateFCmpUGE(size, f.C(kLarge));
  llvm::Value* any = x->getType()->isVectorTy() ? b.CreateOrReduce(is_large) : is_large;
  llvm::BasicBlock* const first = b.GetInsertBlock();
  llvm::BasicBlock* const large = llvm::BasicBlock::Create(context, "large", function);
  llvm::BasicBlock* const done = llvm::BasicBlock::Create(context, "done", function);
  b.CreateCondBr(any, large, done, llvm::MDBuilder(context).createBranchWeights(1, 2000));
  b.SetInsertPoint(large);
  llvm::Value* exact = finish(ReduceAny(*function->getParent(), f, size));
  llvm::Type* type = x->getType();
  exact = f.Select(b.CreateFCmpOLT(size, llvm::ConstantFP::getInfinity(type)), exact, llvm::ConstantFP::getNaN(type));
  exact = f.Select(is_large, exact, small);
  b.CreateBr(done);
  b.SetInsertPoint(done);
  llvm::PHINode* value = b.CreatePHI(type, 2);
  value->addIncoming(small, first);
  value->addIncoming(exact, large);
  if (!which.is_odd) {
    b.CreateRet(value);
    return;
  }
  llvm::Value* sign = b.CreateAnd(f.Bits(x), f.I(0x80000000u));
  b.CreateRet(f.FromBits(b.CreateXor(f.Bits(value), sign)));
}

llvm::Function* Define(llvm::Module& module, const TrigFunction& which, unsigned width) {
  llvm::Type* type = llvm::Type::getFloatTy(module.getContext());
  if (width > 1) type = llvm::FixedVectorType::get(type, width);
  llvm::Function* function = llvm::Function::Create(llvm::FunctionType::get(type, {type}, false),
                                                    llvm::GlobalValue::InternalLinkage, NameOf(which, width), module);
  for (const auto attribute : {llvm::Attribute::NoUnwind, llvm::Attribute::WillReturn, llvm::Attribute::NoFree,
                               llvm::Attribute::NoSync, llvm::Attribute::Speculatable, llvm::Attribute::NoInline}) {
    function->addFnAttr(attribute);
  }
  function->setDoesNotAccessMemory();
  function->addFnAttr(kInlineLate);
  EmitBody(function, which);
  return function;
}

llvm::Value* Call(Ir& ir, const TrigFunction& which, llvm::Value* x) {
  llvm::Module& module = ir.module();
  llvm::Function* function = module.getFunction(which.name);
  if (function == nullptr) {
    function = Define(module, which, 1);
    std::vector<llvm::GlobalValue*> used = {function};
    for (const unsigned width : kWidths) used.push_back(Define(module, which, width));
    llvm::appendToCompilerUsed(module, used);
  }
  // The names of the vector forms follow LLVM's documentation of vector-function-abi-variant.
  std::vector<std::string> forms;
  for (const unsigned width : kWidths) {
    forms.push_back(absl::StrCat("_ZGV_LLVM_N", width, "v_", which.name, "(", NameOf(which, width), ")"));
  }
  llvm::CallInst* call = ir.b.CreateCall(function, {x});
  call->addFnAttr(llvm::Attribute::get(ir.context(), "vector-function-abi-variant", absl::StrJoin(forms, ",")));
  return call;
}

}  // namespace

llvm::Value* EmitSineF32(Ir& ir, llvm::Value* x) { return Call(ir, kSine, x); }

llvm::Value* EmitCosineF32(Ir& ir, llvm::Value* x) { return Call(ir, kCosine, x); }

}  // namespace xlad::compiler
