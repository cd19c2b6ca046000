// Integers of fewer than 8 bits, and bits of integers of any width.
#pragma once

#include <cstdint>

#include "tensor/element_type.h"

namespace xlad::tensor {

// The low `width` bits of a number, 1 <= width <= 64, as an unsigned number: LowBits(-1, 4) is 15.
inline uint64_t LowBits(uint64_t bits, int width) { return bits & (~uint64_t{0} >> (64 - width)); }

// The low `width` bits as a two's complement number: SignExtend(15, 4) is -1.
inline int64_t SignExtend(uint64_t bits, int width) {
  const int64_t shifted = bits << (64 - width);
  return shifted >> (64 - width);
}

// The byte that represents `value`, wrapped to a type of at most 8 bits, in an array of this type: the low bits of
// `value`, sign-extended for signed integers and zero-extended otherwise. WrapSubByte(s4, 8) is -8, WrapSubByte(u4, -1)
// is 15.
inline int8_t WrapSubByte(ElementType type, int8_t value) {
  const int width = BitWidth(type);
  return IsSigned(type) ? SignExtend(value, width) : LowBits(value, width);
}

}  // namespace xlad::tensor
