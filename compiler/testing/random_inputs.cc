#include "compiler/testing/random_inputs.h"

#include <cstring>

#include "hlo/analysis/leaves.h"
#include "tensor/small_float.h"
#include "tensor/sub_byte.h"

namespace xlad::compiler {
namespace {

using tensor::Array;
using tensor::ElementType;

// A random multiple of 1/8 in [-2, 2]. Half of the zeros are negative.
double SmallFloat(Random* random) {
  const int eighths = static_cast<int>(random->Below(34)) - 17;
  return eighths == -17 ? -0.0 : eighths / 8.0;
}

// The bits of a random floating-point number with the given numbers of exponent and mantissa bits.
uint64_t SpecialFloat(int exponent_bits, int mantissa_bits, Random* random) {
  const uint64_t mantissa = (uint64_t{1} << mantissa_bits) - 1, exponent = (uint64_t{1} << exponent_bits) - 1;
  const uint64_t infinity = exponent << mantissa_bits, quiet = uint64_t{1} << (mantissa_bits - 1);
  const uint64_t one = (exponent >> 1) << mantissa_bits;
  const uint64_t sign = random->Below(2) << (exponent_bits + mantissa_bits);
  switch (random->Below(11)) {
    case 0:
    case 1: return sign;
    case 2: return sign | infinity;
    case 3: return sign | infinity | quiet | (random->Next() & mantissa);  // NaN with a payload.
    case 4: return sign | 1;                                              // The smallest denormal number.
    case 5: return sign | mantissa;                                       // The largest denormal number.
    case 6: return sign | (uint64_t{1} << mantissa_bits);                 // The smallest normal number.
    case 7: return sign | (infinity - 1);                                 // The largest finite number.
    case 8: return sign | one;
    case 9: return sign | (one + (random->Next() & mantissa));
    default: {
      const uint64_t bits = sign | (random->Next() & (infinity | mantissa));
      const bool is_nan = (bits & infinity) == infinity && (bits & mantissa) != 0;
      // Signaling NaNs are avoided, because loading them into a register may make them quiet.
      return is_nan ? bits | quiet : bits;
    }
  }
}

uint64_t SpecialInteger(int bits, Random* random) {
  const uint64_t largest = (uint64_t{1} << (bits - 1)) - 1;
  switch (random->Below(8)) {
    case 0: return 0;
    case 1: return 1;
    case 2: return ~uint64_t{0};
    case 3: return largest;
    case 4: return largest + 1;
    case 5: return largest + 1 + random->Below(4);
    case 6: return random->Below(9) - 2;
    default: return random->Next() >> random->Below(64);
  }
}

uint64_t SpecialBits(tensor::ElementType type, Random* random) {
  switch (type) {
    case ElementType::kPred: return random->Below(2);
    case ElementType::kBF16: return SpecialFloat(8, 7, random);
    case ElementType::kF16: return SpecialFloat(5, 10, random);
    case ElementType::kF32:
    case ElementType::kC64: return SpecialFloat(8, 23, random);
    case ElementType::kF64:
    case ElementType::kC128: return SpecialFloat(11, 52, random);
    default: return SpecialInteger(tensor::BitWidth(type), random);
  }
}

// An element of a type of at most 8 bits. Other bits of its byte extend the sign or are zero.
std::byte WrappedByte(ElementType type, std::byte bits) {
  return static_cast<std::byte>(tensor::WrapSubByte(type, static_cast<int8_t>(bits)));
}

}  // namespace

Array RandomArray(const tensor::Shape& shape, Random* random) {
  Array array(shape);
  switch (shape.type) {
    case ElementType::kF32:
      for (float& value : array.values<float>()) value = static_cast<float>(SmallFloat(random));
      break;
    case ElementType::kF64:
      for (double& value : array.values<double>()) value = SmallFloat(random);
      break;
    case ElementType::kF16:
    case ElementType::kBF16:
      for (uint16_t& value : array.values<uint16_t>()) {
        value = tensor::EncodeSmallFloat(shape.type, SmallFloat(random));
      }
      break;
    case ElementType::kPred:
      for (uint8_t& value : array.values<uint8_t>()) value = static_cast<uint8_t>(random->Below(2));
      break;
    default: {
      const size_t width = tensor::ByteWidth(shape.type);
      for (size_t i = 0; i < array.bytes().size(); i += width) {
        array.bytes()[i] = WrappedByte(shape.type, static_cast<std::byte>(random->Below(8)));
      }
    }
  }
  return array;
}

Array RandomSpecialArray(const tensor::Shape& shape, Random* random) {
  Array array(shape);
  // The parts of a complex number are drawn separately.
  const size_t width = tensor::ByteWidth(shape.type) / (tensor::IsComplex(shape.type) ? 2 : 1);
  for (size_t i = 0; i < array.bytes().size(); i += width) {
    const uint64_t bits = SpecialBits(shape.type, random);
    std::memcpy(&array.bytes()[i], &bits, width);  // The low bytes come first (little-endian).
    if (width == 1) array.bytes()[i] = WrappedByte(shape.type, array.bytes()[i]);
  }
  return array;
}

std::vector<Array> RandomInputs(const hlo::Module& module, Random* random, const std::vector<bool>& special) {
  std::vector<Array> inputs;
  for (const hlo::Instruction* parameter : module.entry()->parameters()) {
    for (const hlo::Shape* leaf : hlo::Leaves(parameter->shape())) {
      const bool is_special = inputs.size() < special.size() && special[inputs.size()];
      inputs.push_back(is_special ? RandomSpecialArray(leaf->array(), random) : RandomArray(leaf->array(), random));
    }
  }
  return inputs;
}

}  // namespace xlad::compiler
