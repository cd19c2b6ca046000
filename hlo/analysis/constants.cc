#include "hlo/analysis/constants.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/small_float.h"
#include "tensor/sub_byte.h"

namespace xlad::hlo {
namespace {

using tensor::ElementType;

// The bits of the first element, in the low bits of the result.
uint64_t FirstBits(const tensor::Array& array) {
  uint64_t bits = 0;
  std::memcpy(&bits, array.bytes().data(), std::min<size_t>(sizeof(bits), tensor::ByteWidth(array.shape().type)));
  return bits;
}

// The first element of an array of type pred or an integer type, or nullopt if int64_t cannot hold it.
std::optional<int64_t> FirstInteger(const tensor::Array& array) {
  const ElementType type = array.shape().type;
  const uint64_t bits = FirstBits(array);
  if (type == ElementType::kPred) return bits != 0 ? 1 : 0;
  // Types below 8 bits use the low bits of a byte.
  const int width = tensor::BitWidth(type);
  if (tensor::IsSigned(type)) return tensor::SignExtend(bits, width);
  const uint64_t value = tensor::LowBits(bits, width);
  return std::in_range<int64_t>(value) ? std::optional<int64_t>(value) : std::nullopt;
}

}  // namespace

bool IsElided(const Instruction& instruction) {
  return instruction.literal() != nullptr && instruction.literal()->elided;
}

const Literal* KnownLiteral(const Instruction& instruction) {
  const bool is_known = instruction.opcode() == Opcode::kConstant && instruction.shape().is_array() &&
                        instruction.literal() != nullptr && !instruction.literal()->elided;
  return is_known ? instruction.literal().get() : nullptr;
}

bool IsSplat(const tensor::Array& array) {
  const auto bytes = array.bytes();
  if (bytes.empty()) return false;
  // All elements are equal if every byte equals the byte at the same position of the next element.
  const size_t width = tensor::ByteWidth(array.shape().type);
  return std::memcmp(bytes.data(), bytes.data() + width, bytes.size() - width) == 0;
}

const Instruction* RepeatedValue(const Instruction* instruction) {
  while (instruction->opcode() == Opcode::kBroadcast || instruction->opcode() == Opcode::kReshape ||
         instruction->opcode() == Opcode::kCopy) {
    instruction = instruction->operand(0);
  }
  return instruction;
}

const Literal* SplatLiteral(const Instruction& instruction) {
  const Literal* literal = KnownLiteral(*RepeatedValue(&instruction));
  return literal != nullptr && IsSplat(literal->array) ? literal : nullptr;
}

std::optional<double> SplatValue(const Instruction& instruction) {
  const Literal* literal = SplatLiteral(instruction);
  if (literal == nullptr) return std::nullopt;
  const tensor::Array& array = literal->array;
  const ElementType type = array.shape().type;
  if (type == ElementType::kF64) return array.values<double>()[0];
  if (type == ElementType::kF32) return array.values<float>()[0];
  if (tensor::IsSmallFloat(type)) return tensor::DecodeSmallFloat(type, FirstBits(array));
  if (tensor::IsComplex(type) || tensor::BitWidth(type) == 64) return std::nullopt;
  return FirstInteger(array);
}

std::optional<int64_t> ConstantInteger(const Instruction& instruction) {
  const Shape& shape = instruction.shape();
  if (!shape.is_scalar() || (!tensor::IsInteger(shape.type()) && shape.type() != ElementType::kPred)) {
    return std::nullopt;
  }
  const Literal* literal = SplatLiteral(instruction);
  return literal == nullptr ? std::nullopt : FirstInteger(literal->array);
}

bool IsZero(const Instruction& instruction) {
  const Literal* literal = KnownLiteral(*RepeatedValue(&instruction));
  if (literal == nullptr) return false;
  const auto bytes = literal->array.bytes();
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace xlad::hlo
