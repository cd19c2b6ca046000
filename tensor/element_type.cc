#include "tensor/element_type.h"

#include <array>

namespace xlad::tensor {
namespace {

enum class Kind { kPred, kSigned, kUnsigned, kFloat, kComplex };

struct Row {
  ElementType type;
  absl::string_view name;
  int bits;
  Kind kind;
};

constexpr std::array kTypes = {
    Row{ElementType::kPred, "pred", 8, Kind::kPred},
    Row{ElementType::kS1, "s1", 1, Kind::kSigned},
    Row{ElementType::kS2, "s2", 2, Kind::kSigned},
    Row{ElementType::kS4, "s4", 4, Kind::kSigned},
    Row{ElementType::kS8, "s8", 8, Kind::kSigned},
    Row{ElementType::kS16, "s16", 16, Kind::kSigned},
    Row{ElementType::kS32, "s32", 32, Kind::kSigned},
    Row{ElementType::kS64, "s64", 64, Kind::kSigned},
    Row{ElementType::kU1, "u1", 1, Kind::kUnsigned},
    Row{ElementType::kU2, "u2", 2, Kind::kUnsigned},
    Row{ElementType::kU4, "u4", 4, Kind::kUnsigned},
    Row{ElementType::kU8, "u8", 8, Kind::kUnsigned},
    Row{ElementType::kU16, "u16", 16, Kind::kUnsigned},
    Row{ElementType::kU32, "u32", 32, Kind::kUnsigned},
    Row{ElementType::kU64, "u64", 64, Kind::kUnsigned},
    Row{ElementType::kF4E2M1FN, "f4e2m1fn", 4, Kind::kFloat},
    Row{ElementType::kF8E3M4, "f8e3m4", 8, Kind::kFloat},
    Row{ElementType::kF8E4M3, "f8e4m3", 8, Kind::kFloat},
    Row{ElementType::kF8E4M3B11FNUZ, "f8e4m3b11fnuz", 8, Kind::kFloat},
    Row{ElementType::kF8E4M3FN, "f8e4m3fn", 8, Kind::kFloat},
    Row{ElementType::kF8E4M3FNUZ, "f8e4m3fnuz", 8, Kind::kFloat},
    Row{ElementType::kF8E5M2, "f8e5m2", 8, Kind::kFloat},
    Row{ElementType::kF8E5M2FNUZ, "f8e5m2fnuz", 8, Kind::kFloat},
    Row{ElementType::kF8E8M0FNU, "f8e8m0fnu", 8, Kind::kFloat},
    Row{ElementType::kF16, "f16", 16, Kind::kFloat},
    Row{ElementType::kBF16, "bf16", 16, Kind::kFloat},
    Row{ElementType::kF32, "f32", 32, Kind::kFloat},
    Row{ElementType::kF64, "f64", 64, Kind::kFloat},
    Row{ElementType::kC64, "c64", 64, Kind::kComplex},
    Row{ElementType::kC128, "c128", 128, Kind::kComplex},
};

const Row* Find(ElementType type) {
  for (const Row& row : kTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

bool Is(ElementType type, Kind kind) {
  const Row* row = Find(type);
  return row != nullptr && row->kind == kind;
}

}  // namespace

absl::string_view ToString(ElementType type) {
  const Row* row = Find(type);
  return row == nullptr ? "invalid" : row->name;
}

std::optional<ElementType> ParseElementType(absl::string_view name) {
  for (const Row& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

int BitWidth(ElementType type) {
  const Row* row = Find(type);
  return row == nullptr ? 0 : row->bits;
}

int64_t ByteWidth(ElementType type) { return (BitWidth(type) + 7) / 8; }
bool IsFloating(ElementType type) { return Is(type, Kind::kFloat); }
bool IsComplex(ElementType type) { return Is(type, Kind::kComplex); }
bool IsSigned(ElementType type) { return Is(type, Kind::kSigned); }
bool IsUnsigned(ElementType type) { return Is(type, Kind::kUnsigned); }

ElementType RealPartOf(ElementType type) {
  if (type == ElementType::kC64) return ElementType::kF32;
  return type == ElementType::kC128 ? ElementType::kF64 : type;
}

ElementType DoublePrecisionOf(ElementType type) { return IsComplex(type) ? ElementType::kC128 : ElementType::kF64; }

ElementType UnsignedOfWidth(int bits) {
  for (const Row& row : kTypes) {
    if (row.kind == Kind::kUnsigned && row.bits == bits) return row.type;
  }
  return ElementType::kInvalid;
}

}  // namespace xlad::tensor
