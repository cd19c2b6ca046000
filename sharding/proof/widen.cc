#include "sharding/proof/widen.h"

#include "absl/strings/match.h"
#include "hlo/build/builder.h"
#include "hlo/eval/evaluate.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Literal;
using hlo::Opcode;
using tensor::ElementType;

ElementType Wide(ElementType type) {
  return tensor::IsFloating(type) || tensor::IsComplex(type) ? tensor::DoublePrecisionOf(type) : type;
}

void WidenShape(hlo::Shape* shape) {
  if (shape->is_array()) shape->array().type = Wide(shape->type());
  for (hlo::Shape& element : shape->tuple()) WidenShape(&element);
}

absl::StatusOr<Literal> WidenLiteral(const Literal& literal) {
  Literal wide;
  wide.is_tuple = literal.is_tuple;
  wide.elided = literal.elided;
  for (const Literal& element : literal.tuple) {
    XLAD_ASSIGN_OR_RETURN(wide.tuple.emplace_back(), WidenLiteral(element));
  }
  if (literal.is_tuple) return wide;
  const tensor::Shape& shape = literal.array.shape();
  if (Wide(shape.type) == shape.type) return literal;
  hlo::Module module("widen");
  hlo::Builder builder(module.Add(std::make_unique<hlo::Computation>("main")));
  const Instruction* convert = builder.Convert(Wide(shape.type), builder.Parameter(0, hlo::Shape(shape)));
  XLAD_ASSIGN_OR_RETURN(const Literal converted, hlo::EvaluateInstruction(*convert, {&literal}));
  wide.array = converted.array;
  return wide;
}

// Surrounds an instruction that reads or writes the bits of a narrow type with conversions.
void KeepBits(Instruction* bits, ElementType from, ElementType to) {
  hlo::Builder builder(bits->parent());
  if (Wide(from) != from) bits->ReplaceOperand(0, builder.Convert(from, bits->operand(0)));
  if (Wide(to) == to) return;
  bits->mutable_shape().array().type = to;
  Instruction* wide = builder.Convert(Wide(to), bits);
  bits->ReplaceAllUsesWith(wide);
}

bool ReadsBits(const Instruction& instruction) {
  if (instruction.opcode() == Opcode::kBitcastConvert) return true;
  return instruction.opcode() == Opcode::kBitcast && instruction.shape().is_array() &&
         instruction.shape().type() != instruction.operand(0)->shape().type();
}

// The names of LAPACK routines contain a letter for the type: "lapack_sgetrf_ffi" becomes "lapack_dgetrf_ffi".
void WidenTarget(std::string* target) {
  constexpr absl::string_view kPrefix = "lapack_";
  if (!absl::StartsWith(*target, kPrefix) || target->size() == kPrefix.size()) return;
  char& letter = (*target)[kPrefix.size()];
  letter = letter == 's' ? 'd' : letter == 'c' ? 'z' : letter;
}

struct Bits {
  Instruction* instruction;
  ElementType from, to;
};

}  // namespace

absl::Status Widen(hlo::Module* module) {
  std::vector<Bits> bits;
  for (const auto& computation : module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (ReadsBits(*instruction)) {
        bits.push_back({instruction.get(), instruction->operand(0)->shape().type(), instruction->shape().type()});
      }
    }
  }
  for (const auto& computation : module->computations()) {
    for (const auto& instruction : computation->instructions()) {
      WidenShape(&instruction->mutable_shape());
      if (instruction->literal() != nullptr) {
        XLAD_ASSIGN_OR_RETURN(Literal wide, WidenLiteral(*instruction->literal()));
        instruction->set_literal(std::make_shared<const Literal>(std::move(wide)));
      }
      if (instruction->opcode() == Opcode::kReducePrecision) {
        instruction->mutable_attributes().exponent_bits = 11;
        instruction->mutable_attributes().mantissa_bits = 52;
      }
      if (instruction->opcode() == Opcode::kCustomCall) {
        WidenTarget(&instruction->mutable_attributes().custom_call_target);
      }
      if (!instruction->attributes().algorithm.empty()) instruction->mutable_attributes().algorithm.clear();
      for (size_t i = 0; i < instruction->attributes().operand_layout_constraints.size(); ++i) {
        WidenShape(&instruction->mutable_attributes().operand_layout_constraints[i]);
      }
    }
  }
  for (const Bits& one : bits) KeepBits(one.instruction, one.from, one.to);
  for (const auto& computation : module->computations()) computation->SortTopologically();
  for (hlo::Shape& shape : module->entry_parameter_layouts) WidenShape(&shape);
  WidenShape(&module->entry_result_layout);
  return absl::OkStatus();
}

absl::Status Widen(PartitionedProgram* program) {
  for (Variant& variant : program->variants) XLAD_RETURN_IF_ERROR(Widen(variant.module.get()));
  for (tensor::Shape& shape : program->parameter_shapes) shape.type = Wide(shape.type);
  for (tensor::Shape& shape : program->result_shapes) shape.type = Wide(shape.type);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Literal>> Widen(const std::vector<Literal>& values) {
  std::vector<Literal> wide;
  for (const Literal& value : values) {
    XLAD_ASSIGN_OR_RETURN(wide.emplace_back(), WidenLiteral(value));
  }
  return wide;
}

}  // namespace xlad::sharding
