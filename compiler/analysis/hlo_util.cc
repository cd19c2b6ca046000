#include "compiler/analysis/hlo_util.h"

#include <cstring>
#include <string>

#include "absl/container/flat_hash_set.h"

namespace xlad::compiler {
namespace {

void Visit(Computation* computation, absl::flat_hash_set<Computation*>* seen, std::vector<Computation*>* order) {
  if (!seen->insert(computation).second) return;
  for (const auto& instruction : computation->instructions()) {
    if (instruction->opcode() != Opcode::kWhile && instruction->opcode() != Opcode::kConditional) continue;
    for (Computation* callee : instruction->called()) Visit(callee, seen, order);
  }
  order->push_back(computation);
}

template <typename T>
double First(const tensor::Array& array) {
  return static_cast<double>(array.values<T>()[0]);
}

float WidenBf16(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

bool FirstElement(const tensor::Array& array, double* value) {
  switch (array.shape().type) {
    case ElementType::kPred:
      *value = First<uint8_t>(array) != 0 ? 1 : 0;
      return true;
    case ElementType::kS8:
      *value = First<int8_t>(array);
      return true;
    case ElementType::kS16:
      *value = First<int16_t>(array);
      return true;
    case ElementType::kS32:
      *value = First<int32_t>(array);
      return true;
    case ElementType::kU8:
      *value = First<uint8_t>(array);
      return true;
    case ElementType::kU16:
      *value = First<uint16_t>(array);
      return true;
    case ElementType::kU32:
      *value = First<uint32_t>(array);
      return true;
    case ElementType::kF32:
      *value = First<float>(array);
      return true;
    case ElementType::kF64:
      *value = First<double>(array);
      return true;
    case ElementType::kBF16:
      *value = WidenBf16(array.values<uint16_t>()[0]);
      return true;
    default:
      return false;
  }
}

// Whether all elements have the bits of the first.
bool AllEqual(const tensor::Array& array) {
  auto bytes = array.bytes();
  if (bytes.empty()) return false;
  const size_t width = tensor::ByteWidth(array.shape().type);
  return bytes.size() == width || std::memcmp(bytes.data(), bytes.data() + width, bytes.size() - width) == 0;
}

}  // namespace

std::vector<Computation*> StepComputations(const Module& module) {
  absl::flat_hash_set<Computation*> seen;
  std::vector<Computation*> order;
  Visit(module.entry(), &seen, &order);
  return order;
}

std::vector<Instruction*> Snapshot(const Computation& computation) {
  std::vector<Instruction*> list;
  list.reserve(computation.instructions().size());
  for (const auto& instruction : computation.instructions()) list.push_back(instruction.get());
  return list;
}

void AppendLeaves(const Shape& shape, std::vector<const Shape*>* leaves) {
  if (!shape.is_tuple()) {
    leaves->push_back(&shape);
    return;
  }
  for (const Shape& element : shape.tuple()) AppendLeaves(element, leaves);
}

std::vector<const Shape*> Leaves(const Shape& shape) {
  std::vector<const Shape*> leaves;
  AppendLeaves(shape, &leaves);
  return leaves;
}

int64_t CountLeaves(const Shape& shape) {
  if (!shape.is_tuple()) return 1;
  int64_t count = 0;
  for (const Shape& element : shape.tuple()) count += CountLeaves(element);
  return count;
}

int64_t FirstLeaf(const Shape& tuple, int64_t index) {
  int64_t offset = 0;
  for (int64_t i = 0; i < index; ++i) offset += CountLeaves(tuple.tuple()[i]);
  return offset;
}

Instruction* CloneOn(const Instruction& instruction, absl::Span<Instruction* const> operands, Computation* to) {
  auto clone = instruction.CloneWithoutOperands();
  clone->set_name(instruction.name());
  return to->Add(std::move(clone), operands);
}

Instruction* InlineInto(const Computation& from, absl::Span<Instruction* const> arguments, Computation* to) {
  absl::flat_hash_map<const Instruction*, Instruction*> copies;
  for (const auto& instruction : from.instructions()) {
    if (instruction->opcode() == Opcode::kParameter) {
      copies[instruction.get()] = arguments[instruction->number()];
      continue;
    }
    std::vector<Instruction*> operands;
    for (const Instruction* operand : instruction->operands()) operands.push_back(copies.at(operand));
    Instruction* copy = CloneOn(*instruction, operands, to);
    for (const Instruction* before : instruction->control_predecessors())
      copy->AddControlPredecessor(copies.at(before));
    copies[instruction.get()] = copy;
  }
  return copies.at(from.root());
}

const hlo::Literal* SplatLiteral(const Instruction& instruction) {
  const Instruction* at = &instruction;
  while (at->opcode() == Opcode::kBroadcast || at->opcode() == Opcode::kReshape) at = at->operand(0);
  if (at->opcode() != Opcode::kConstant || !at->shape().is_array()) return nullptr;
  const hlo::Literal* literal = at->literal().get();
  if (literal == nullptr || literal->elided || !AllEqual(literal->array)) return nullptr;
  return literal;
}

bool SplatValue(const Instruction& instruction, double* value) {
  const hlo::Literal* literal = SplatLiteral(instruction);
  return literal != nullptr && FirstElement(literal->array, value);
}

bool ConstantInteger(const Instruction& instruction, int64_t* value) {
  if (!instruction.shape().is_scalar()) return false;
  const hlo::Literal* literal = SplatLiteral(instruction);
  if (literal == nullptr) return false;
  const tensor::Array& array = literal->array;
  if (array.shape().type == ElementType::kS64 || array.shape().type == ElementType::kU64) {
    *value = array.values<int64_t>()[0];
    return array.shape().type == ElementType::kS64 || *value >= 0;
  }
  double real = 0;
  if (!tensor::IsInteger(array.shape().type) && array.shape().type != ElementType::kPred) return false;
  if (!FirstElement(array, &real)) return false;
  *value = real;
  return true;
}

bool HasSideEffect(const Instruction& instruction) {
  if ((hlo::Flags(instruction.opcode()) & hlo::kSideEffect) != 0) return true;
  return instruction.opcode() == Opcode::kCustomCall && instruction.attributes().has_side_effect;
}

bool ContainsCollective(const Computation& computation) {
  for (const auto& instruction : computation.instructions()) {
    if (hlo::IsCollective(instruction->opcode())) return true;
    if (instruction->opcode() != Opcode::kWhile && instruction->opcode() != Opcode::kConditional) continue;
    for (const Computation* callee : instruction->called()) {
      if (ContainsCollective(*callee)) return true;
    }
  }
  return false;
}

std::string Describe(const Instruction& instruction) {
  std::string text = absl::StrCat("%", instruction.name(), " (", hlo::ToString(instruction.opcode()), ")");
  const Computation* computation = instruction.parent();
  if (computation != nullptr && computation->parent() != nullptr) {
    std::string source = computation->parent()->SourceOf(instruction);
    if (!source.empty()) absl::StrAppend(&text, " from ", source);
  }
  return text;
}

}  // namespace xlad::compiler
