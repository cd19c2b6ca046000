#include "compiler/codegen/tpu/element_code.h"

#include <bit>
#include <cstring>
#include <limits>
#include <map>

#include "compiler/analysis/plain_reducer.h"
#include "machine/llo/vector_ops.h"
#include "tensor/small_float.h"

namespace xlad::compiler {
namespace {

using machine::LloType;

// The kind of arithmetic of a type.
enum class Words { kFloat, kSigned, kUnsigned, kPred };
Words WordsOf(ElementType type) {
  if (tensor::IsFloating(type)) return Words::kFloat;
  if (type == ElementType::kPred) return Words::kPred;
  const bool is_signed = type == ElementType::kS32 || type == ElementType::kS16 || type == ElementType::kS8;
  return is_signed ? Words::kSigned : Words::kUnsigned;
}

// Rounds a word that is an f32 to a narrow float, or wraps a word that is a 32-bit integer to a narrow integer.
int Narrowed(ElementType type, int value, LloBuilder* builder) {
  if (type == ElementType::kBF16) return builder->Vector(LloOp::kFRoundBf16, {value});
  if (type == ElementType::kF16) return builder->Vector(LloOp::kFRoundF16, {value});
  if (type == ElementType::kF8E4M3FN) return builder->Vector(LloOp::kFRoundE4m3, {value});
  if (type == ElementType::kF8E5M2) return builder->Vector(LloOp::kFRoundE5m2, {value});
  const auto bits = static_cast<uint32_t>(tensor::BitWidth(type));
  if (type == ElementType::kF32 || WordsOf(type) == Words::kPred || bits == 32) return value;
  if (WordsOf(type) == Words::kUnsigned) {
    return builder->Vector(LloOp::kIAnd, {value, builder->Constant((uint32_t{1} << bits) - 1)});
  }
  const int by = builder->Constant(32 - bits);
  return builder->Vector(LloOp::kIShr, {builder->Vector(LloOp::kIShl, {value, by}), by});
}

// Sign-extends the low bits of a word, which are an integer as wide as `type`, if `as_signed`; otherwise zero-extends
// them.
int Extended(ElementType type, bool as_signed, int value, LloBuilder* builder) {
  const bool is_16 = tensor::BitWidth(type) == 16;
  if (tensor::BitWidth(type) == 32) return value;
  return Narrowed(
      as_signed ? (is_16 ? ElementType::kS16 : ElementType::kS8) : (is_16 ? ElementType::kU16 : ElementType::kU8),
      value, builder);
}

using Codes = std::map<Opcode, LloOp>;

// HLO instructions that become one instruction of the chip, with operands of the same type.
const Codes& CodesOf(Words words) {
  static const auto* const floats = new Codes{
      {Opcode::kAbs, LloOp::kFAbs},           {Opcode::kNegate, LloOp::kFNeg},
      {Opcode::kCeil, LloOp::kFCeil},         {Opcode::kFloor, LloOp::kFFloor},
      {Opcode::kCosine, LloOp::kFCos},        {Opcode::kSine, LloOp::kFSin},
      {Opcode::kExponential, LloOp::kFExp},   {Opcode::kExponentialMinusOne, LloOp::kFExpm1},
      {Opcode::kLog, LloOp::kFLog},           {Opcode::kLogPlusOne, LloOp::kFLog1p},
      {Opcode::kLogistic, LloOp::kFLogistic}, {Opcode::kRoundNearestEven, LloOp::kFRoundEven},
      {Opcode::kRsqrt, LloOp::kFRsqrt},       {Opcode::kSqrt, LloOp::kFSqrt},
      {Opcode::kCbrt, LloOp::kFCbrt},         {Opcode::kTanh, LloOp::kFTanh},
      {Opcode::kErf, LloOp::kFErf},           {Opcode::kSign, LloOp::kFSign},
      {Opcode::kIsFinite, LloOp::kFIsFinite}, {Opcode::kAdd, LloOp::kFAdd},
      {Opcode::kSubtract, LloOp::kFSub},      {Opcode::kMultiply, LloOp::kFMul},
      {Opcode::kDivide, LloOp::kFDiv},        {Opcode::kRemainder, LloOp::kFRem},
      {Opcode::kPower, LloOp::kFPow},         {Opcode::kMaximum, LloOp::kFMax},
      {Opcode::kMinimum, LloOp::kFMin},       {Opcode::kAtan2, LloOp::kFAtan2},
  };
  static const auto* const integers = new Codes{
      {Opcode::kAdd, LloOp::kIAdd},
      {Opcode::kSubtract, LloOp::kISub},
      {Opcode::kMultiply, LloOp::kIMul},
      {Opcode::kDivide, LloOp::kIDiv},
      {Opcode::kRemainder, LloOp::kIRem},
      {Opcode::kMaximum, LloOp::kIMax},
      {Opcode::kMinimum, LloOp::kIMin},
      {Opcode::kAnd, LloOp::kIAnd},
      {Opcode::kOr, LloOp::kIOr},
      {Opcode::kXor, LloOp::kIXor},
      {Opcode::kShiftLeft, LloOp::kIShl},
      {Opcode::kShiftRightArithmetic, LloOp::kIShr},
      {Opcode::kShiftRightLogical, LloOp::kUShr},
  };
  static const auto* const unsigneds = [] {
    auto* const codes = new Codes(*integers);
    codes->insert_or_assign(Opcode::kDivide, LloOp::kUDiv);
    codes->insert_or_assign(Opcode::kRemainder, LloOp::kURem);
    codes->insert_or_assign(Opcode::kMaximum, LloOp::kUMax);
    codes->insert_or_assign(Opcode::kMinimum, LloOp::kUMin);
    return codes;
  }();
  static const auto* const preds =
      new Codes{{Opcode::kAnd, LloOp::kIAnd}, {Opcode::kOr, LloOp::kIOr}, {Opcode::kXor, LloOp::kIXor}};
  switch (words) {
    case Words::kFloat:
      return *floats;
    case Words::kSigned:
      return *integers;
    case Words::kUnsigned:
      return *unsigneds;
    default:
      return *preds;
  }
}

// The instruction for a comparison. "Greater" is "less" with swapped operands.
struct ComparisonCode {
  LloOp op;
  bool is_swapped;
};
ComparisonCode CodeOf(hlo::Comparison comparison, Words words) {
  const bool is_float = words == Words::kFloat, is_signed = words == Words::kSigned;
  const LloOp less = is_float ? LloOp::kFLt : is_signed ? LloOp::kILt : LloOp::kULt;
  const LloOp at_most = is_float ? LloOp::kFLe : is_signed ? LloOp::kILe : LloOp::kULe;
  switch (comparison) {
    case hlo::Comparison::kEq:
      return {is_float ? LloOp::kFEq : LloOp::kIEq, false};
    case hlo::Comparison::kNe:
      return {is_float ? LloOp::kFNe : LloOp::kINe, false};
    case hlo::Comparison::kLt:
      return {less, false};
    case hlo::Comparison::kLe:
      return {at_most, false};
    case hlo::Comparison::kGt:
      return {less, true};
    default:
      return {at_most, true};
  }
}

int EmitConvert(const Instruction& convert, int x, LloBuilder* builder) {
  const Words from = WordsOf(convert.operand(0)->shape().type()), to = WordsOf(convert.shape().type());
  if (to == Words::kPred && from != Words::kPred) {
    const int zero = builder->Constant(0);
    return builder->Vector(from == Words::kFloat ? LloOp::kFNe : LloOp::kINe, {x, zero});
  }
  if (from == Words::kFloat && to != Words::kFloat) {
    const bool is_signed = to == Words::kSigned;
    const int word = builder->Vector(is_signed ? LloOp::kFToI : LloOp::kFToU, {x});
    const int64_t bits = tensor::BitWidth(convert.shape().type());
    if (bits == 32) return word;
    // The conversion saturates.
    const int64_t values = int64_t{1} << bits;
    const int most = builder->Constant(static_cast<uint32_t>(is_signed ? values / 2 - 1 : values - 1));
    if (!is_signed) return builder->Vector(LloOp::kUMin, {word, most});
    const int least = builder->Constant(static_cast<uint32_t>(-values / 2));
    return builder->Vector(LloOp::kIMax, {builder->Vector(LloOp::kIMin, {word, most}), least});
  }
  if (from != Words::kFloat && to == Words::kFloat) {
    return builder->Vector(from == Words::kUnsigned ? LloOp::kUToF : LloOp::kIToF, {x});
  }
  return x;
}

int EmitUnrounded(const Instruction& i, const std::vector<int>& v, LloBuilder* builder) {
  const Words words = WordsOf(i.operand(0)->shape().type());
  switch (i.opcode()) {
    case Opcode::kConvert:
      return EmitConvert(i, v[0], builder);
    case Opcode::kBitcastConvert:
      return v[0];
    case Opcode::kReducePrecision:
      return builder->Vector(LloOp::kFRoundBf16, {v[0]});
    case Opcode::kSelect:
      return builder->Vector(LloOp::kVSelect, {v[0], v[1], v[2]});
    case Opcode::kClamp: {
      const Codes& codes = CodesOf(WordsOf(i.shape().type()));
      const int low = builder->Vector(codes.at(Opcode::kMaximum), {v[0], v[1]});
      return builder->Vector(codes.at(Opcode::kMinimum), {low, v[2]});
    }
    case Opcode::kCompare: {
      const ComparisonCode code = CodeOf(i.attributes().comparison, words);
      return code.is_swapped ? builder->Vector(code.op, {v[1], v[0]}) : builder->Vector(code.op, {v[0], v[1]});
    }
    case Opcode::kNot:
      return builder->Vector(LloOp::kIXor, {v[0], builder->Constant(words == Words::kPred ? 1 : ~uint32_t{0})});
    default:
      break;
  }
  if (words == Words::kSigned && (i.opcode() == Opcode::kNegate || i.opcode() == Opcode::kAbs)) {
    const int negative = builder->Vector(LloOp::kISub, {builder->Constant(0), v[0]});
    return i.opcode() == Opcode::kNegate ? negative : builder->Vector(LloOp::kIMax, {v[0], negative});
  }
  if (i.opcode() == Opcode::kShiftRightLogical || i.opcode() == Opcode::kShiftRightArithmetic) {
    const bool as_signed = i.opcode() == Opcode::kShiftRightArithmetic;
    const int from = Extended(i.shape().type(), as_signed, v[0], builder);
    return builder->Vector(as_signed ? LloOp::kIShr : LloOp::kUShr, {from, v[1]});
  }
  if (words == Words::kUnsigned && i.opcode() == Opcode::kNegate) {
    return builder->Vector(LloOp::kISub, {builder->Constant(0), v[0]});
  }
  const LloOp op = CodesOf(words).at(i.opcode());
  return v.size() == 1 ? builder->Vector(op, {v[0]}) : builder->Vector(op, {v[0], v[1]});
}

bool HasCode(const Instruction& i, Words words) {
  const bool is_integer = words == Words::kSigned || words == Words::kUnsigned;
  switch (i.opcode()) {
    case Opcode::kConvert:
    case Opcode::kSelect:
      return true;
    case Opcode::kBitcastConvert:
      if (tensor::BitWidth(i.shape().type()) != tensor::BitWidth(i.operand(0)->shape().type())) return false;
      return tensor::BitWidth(i.shape().type()) == 32 ||
             (is_integer && WordsOf(i.shape().type()) != Words::kFloat && WordsOf(i.shape().type()) != Words::kPred);
    case Opcode::kReducePrecision:
      return i.attributes().exponent_bits == 8 && i.attributes().mantissa_bits == 7;
    case Opcode::kClamp:
      return WordsOf(i.shape().type()) != Words::kPred;
    case Opcode::kCompare:
      return words != Words::kFloat || i.attributes().comparison_type != hlo::ComparisonType::kFloatTotalOrder;
    case Opcode::kNot:
      return words != Words::kFloat;
    case Opcode::kNegate:
      return words == Words::kFloat || is_integer;
    case Opcode::kAbs:
      return words == Words::kFloat || words == Words::kSigned;
    default:
      return CodesOf(words).contains(i.opcode());
  }
}

}  // namespace

LloType LloTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return LloType::kF32;
    case ElementType::kBF16:
      return LloType::kBf16;
    case ElementType::kS32:
      return LloType::kS32;
    case ElementType::kU32:
      return LloType::kU32;
    case ElementType::kPred:
      return LloType::kPred;
    case ElementType::kF16:
      return LloType::kF16;
    case ElementType::kS16:
      return LloType::kS16;
    case ElementType::kU16:
      return LloType::kU16;
    case ElementType::kS8:
      return LloType::kS8;
    case ElementType::kU8:
      return LloType::kU8;
    case ElementType::kF8E4M3FN:
      return LloType::kE4m3;
    case ElementType::kF8E5M2:
      return LloType::kE5m2;
    default:
      return LloType::kOther;
  }
}

bool HasElementCode(const Instruction& instruction) {
  if (!hlo::IsElementwise(instruction.opcode()) || instruction.operand_count() == 0) return false;
  const auto is_known = [](const Shape& shape) {
    return shape.is_array() && LloTypeOf(shape.type()) != LloType::kOther;
  };
  if (!is_known(instruction.shape())) return false;
  for (const Instruction* operand : instruction.operands()) {
    if (!is_known(operand->shape())) return false;
    if (operand->shape().dims() != instruction.shape().dims() && operand->shape().elements() != 1) return false;
  }
  return HasCode(instruction, WordsOf(instruction.operand(0)->shape().type()));
}

int EmitElement(const Instruction& instruction, const std::vector<int>& operands, LloBuilder* builder) {
  const int value = EmitUnrounded(instruction, operands, builder);
  return instruction.opcode() == Opcode::kSelect ? value : Narrowed(instruction.shape().type(), value, builder);
}

int EmitNarrowed(ElementType type, int value, LloBuilder* builder) { return Narrowed(type, value, builder); }

uint32_t WordOf(const Instruction& constant) {
  const tensor::Array& array = constant.literal()->array;
  switch (constant.shape().type()) {
    case ElementType::kPred:
      return array.values<uint8_t>()[0] != 0 ? 1 : 0;
    case ElementType::kBF16:
    case ElementType::kF16:
    case ElementType::kS16:
    case ElementType::kU16:
      return machine::WordOfElement(LloTypeOf(constant.shape().type()), array.values<uint16_t>()[0]);
    case ElementType::kS8:
    case ElementType::kU8:
    case ElementType::kF8E4M3FN:
    case ElementType::kF8E5M2:
      return machine::WordOfElement(LloTypeOf(constant.shape().type()), array.values<uint8_t>()[0]);
    default:
      return array.values<uint32_t>()[0];
  }
}

bool FindReducer(const Computation& reducer, LloReducer* found) {
  const std::optional<Opcode> opcode = PlainReducer(reducer);
  if (!opcode.has_value() || !reducer.root()->shape().is_array()) return false;
  const ElementType type = reducer.root()->shape().type();
  if (LloTypeOf(type) == LloType::kOther) return false;
  const Words words = WordsOf(type);
  const auto code = CodesOf(words).find(*opcode);
  if (code == CodesOf(words).end()) return false;
  found->op = code->second;
  const bool is_float = words == Words::kFloat, is_signed = words == Words::kSigned;
  const float infinity = std::numeric_limits<float>::infinity();
  switch (*opcode) {
    case Opcode::kAdd:
      found->neutral = is_float ? std::bit_cast<uint32_t>(-0.0f) : 0;
      return true;
    case Opcode::kMultiply:
      found->neutral = is_float ? std::bit_cast<uint32_t>(1.0f) : 1;
      return true;
    case Opcode::kMaximum:
      found->neutral = is_float ? std::bit_cast<uint32_t>(-infinity) : is_signed ? 0x80000000u : 0;
      return true;
    case Opcode::kMinimum:
      found->neutral = is_float ? std::bit_cast<uint32_t>(infinity) : is_signed ? 0x7fffffffu : ~uint32_t{0};
      return true;
    case Opcode::kAnd:
      found->neutral = ~uint32_t{0};
      return true;
    case Opcode::kOr:
      found->neutral = 0;
      return true;
    default:
      return false;
  }
}

}  // namespace xlad::compiler
