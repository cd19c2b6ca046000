// How closely two correct computations of an array agree. This is derived from the instructions that compute the array:
// some determine all bits of their results, others do not.
#include <algorithm>

#include "compiler/testing/random_values.h"

namespace xlad::compiler {
namespace {

// Instructions without arithmetic. Their results consist of elements of their operands, of parts or pairs of these
// elements (complex numbers), or of elements that are given (parameters, constants and iota).
bool MovesElements(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAllGather: case Opcode::kAllToAll: case Opcode::kBitcastConvert: case Opcode::kBroadcast:
    case Opcode::kCollectivePermute: case Opcode::kComplex: case Opcode::kConcatenate: case Opcode::kConstant:
    case Opcode::kCopy: case Opcode::kDynamicSlice: case Opcode::kDynamicUpdateSlice: case Opcode::kGather:
    case Opcode::kGetTupleElement: case Opcode::kImag: case Opcode::kIota: case Opcode::kOptBarrier: case Opcode::kPad:
    case Opcode::kParameter: case Opcode::kReal: case Opcode::kReshape: case Opcode::kReverse: case Opcode::kSelect:
    case Opcode::kSlice: case Opcode::kSort: case Opcode::kTopk: case Opcode::kTranspose: case Opcode::kTuple:
      return true;
    default:
      return false;
  }
}

bool IsAnnotation(const Instruction& instruction) {
  const std::string& target = instruction.attributes().custom_call_target;
  return instruction.opcode() == Opcode::kCustomCall && (target == "Sharding" || target.starts_with("xla.sdy."));
}

// Whether a reducer only selects elements of its operands, as the reducer of argmax does. Arithmetic on integers is
// allowed, because it is exact.
bool OnlySelects(const hlo::Computation& reducer) {
  return std::ranges::all_of(reducer.instructions(), [](const auto& instruction) {
    return MovesElements(instruction->opcode()) || instruction->shape().is_tuple() ||
           !(tensor::IsFloating(instruction->shape().type()) || tensor::IsComplex(instruction->shape().type()));
  });
}

// Whether f(a) + f(b) has the same zeros, with signs, as f(a + b), where f is the instruction. A negation does not:
// -(1) + -(-1) is +0, but -(1 + -1) is -0.
bool KeepsSignsOfSums(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case Opcode::kBroadcast: case Opcode::kCopy: case Opcode::kGetTupleElement: case Opcode::kReshape:
    case Opcode::kSlice: case Opcode::kTranspose: case Opcode::kTuple:
      return true;
    default:
      return IsAnnotation(instruction);
  }
}

bool Adds(const hlo::Computation& reducer) {
  return std::ranges::any_of(reducer.instructions(), [](const auto& instruction) {
    return instruction->opcode() == Opcode::kAdd || instruction->opcode() == Opcode::kSubtract ||
           instruction->opcode() == Opcode::kMultiply || instruction->opcode() == Opcode::kDivide;
  });
}

}  // namespace

Agreement RandomValues::InferAgreement(const Instruction& instruction) {
  Agreement operands = Agreement::kBits;
  for (const Instruction* operand : instruction.operands()) operands = std::max(operands, AgreementOf(operand));
  if (operands == Agreement::kSums && !KeepsSignsOfSums(instruction)) operands = Agreement::kMagnitudes;
  if (MovesElements(instruction.opcode()) || IsAnnotation(instruction)) return operands;
  switch (instruction.opcode()) {
    case Opcode::kReduce: case Opcode::kReduceWindow: case Opcode::kScatter: case Opcode::kMap: {
      const hlo::Computation& reducer = *instruction.called()[0];
      if (OnlySelects(reducer)) return operands;
      if (!options_.sums_split || !Adds(reducer)) return std::max(operands, Agreement::kNumbers);
      const bool reduces = instruction.opcode() == Opcode::kReduce;
      return std::max(operands, reduces ? Agreement::kSums : Agreement::kMagnitudes);
    }
    case Opcode::kAllReduce: case Opcode::kReduceScatter:
      return std::max(operands, Adds(*instruction.called()[0]) ? Agreement::kSums : Agreement::kNumbers);
    case Opcode::kConvolution: case Opcode::kCustomCall: case Opcode::kDot: case Opcode::kFft:
      return Agreement::kMagnitudes;
    case Opcode::kSelectAndScatter:
      return std::max(operands, options_.sums_split ? Agreement::kMagnitudes : Agreement::kNumbers);
    default:
      return std::max(operands, Agreement::kNumbers);
  }
}

Agreement RandomValues::AgreementOf(const Instruction* array) {
  const hlo::Shape& shape = array->shape();
  if (shape.is_array() && !tensor::IsFloating(shape.type()) && !tensor::IsComplex(shape.type())) {
    return Agreement::kBits;
  }
  const auto known = agreements_.find(array);
  if (known != agreements_.end()) return known->second;
  const Agreement inferred = InferAgreement(*array);
  agreements_[array] = inferred;
  return inferred;
}

bool RandomValues::HasCertainBits(const Sample& x) {
  const Agreement agreement = AgreementOf(x.array);
  return x.exact() && (agreement == Agreement::kBits || (agreement == Agreement::kNumbers && x.finite()));
}

}  // namespace xlad::compiler
