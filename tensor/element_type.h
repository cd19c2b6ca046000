// Element types. They have the numbers of XLA's PrimitiveType, which makes protos wire-compatible with XLA's.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace xlad::tensor {

enum class ElementType : int {
  kInvalid = 0,
  kPred = 1, kS8 = 2, kS16 = 3, kS32 = 4, kS64 = 5, kU8 = 6, kU16 = 7, kU32 = 8, kU64 = 9,
  kF16 = 10, kF32 = 11, kF64 = 12, kC64 = 15, kBF16 = 16, kC128 = 18,
  kF8E5M2 = 19, kF8E4M3FN = 20, kS4 = 21, kU4 = 22, kF8E4M3B11FNUZ = 23, kF8E5M2FNUZ = 24, kF8E4M3FNUZ = 25,
  kS2 = 26, kU2 = 27, kF8E4M3 = 28, kF8E3M4 = 29, kS1 = 30, kU1 = 31, kF4E2M1FN = 32, kF8E8M0FNU = 33,
};

// HLO's name of a type: "f32", "pred", "f8e4m3fn"; "invalid" for kInvalid and all other numbers.
absl::string_view ToString(ElementType type);
// The type with that name, or nullopt if there is none. "invalid" is not a name.
std::optional<ElementType> ParseElementType(absl::string_view name);

// The number of bits of one value, which is 8 for pred. 0 for kInvalid and all other numbers.
int BitWidth(ElementType type);
// The number of bytes of one element in host arrays and device buffers. Types of less than 8 bits take one byte.
int64_t ByteWidth(ElementType type);

bool IsFloating(ElementType type);  // Real floating-point types: f4, f8, f16, bf16, f32, f64.
bool IsComplex(ElementType type);
// The type of the real and the imaginary part of a complex type. Returns all other types unchanged.
ElementType RealPartOf(ElementType type);
// f64, or c128 for complex types: the type in which linear algebra and references are computed.
ElementType DoublePrecisionOf(ElementType type);
bool IsSigned(ElementType type);    // Signed integers.
bool IsUnsigned(ElementType type);  // Unsigned integers; not pred.
// The unsigned integer type of `bits` bits, or kInvalid if there is none.
ElementType UnsignedOfWidth(int bits);
inline bool IsInteger(ElementType type) { return IsSigned(type) || IsUnsigned(type); }

}  // namespace xlad::tensor
