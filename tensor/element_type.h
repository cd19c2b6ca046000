// Element types, numbered as XLA's PrimitiveType so that protos are wire-compatible.
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

// "f32", "pred", "f8e4m3fn": HLO's spelling.
absl::string_view ToString(ElementType type);
std::optional<ElementType> ParseElementType(absl::string_view name);

// Bits of a value; types below 8 bits still take one byte an element in host arrays and buffers.
int BitWidth(ElementType type);
int64_t ByteWidth(ElementType type);  // Of one element in memory.

bool IsFloating(ElementType type);          // f8*, f4, f16, bf16, f32, f64
bool IsComplex(ElementType type);
bool IsSigned(ElementType type);            // Signed integers.
bool IsUnsigned(ElementType type);          // Unsigned integers; not pred.
inline bool IsInteger(ElementType type) { return IsSigned(type) || IsUnsigned(type); }

}  // namespace xlad::tensor
