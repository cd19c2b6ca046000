#include "tests/nccl_double/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tensor/small_float.h"

namespace xlad::nccl_double {
namespace {

using namespace collectives::nccl;

struct Half {
  uint16_t bits;
  using Codec = tensor::SmallFloat<tensor::ElementType::kF16>;
  static float Decode(Half x) { return Codec::Decode(x.bits); }
  static Half Encode(float x) { return {Codec::Encode(x)}; }
};
struct Bfloat {
  uint16_t bits;
  static float Decode(Bfloat x) { return tensor::DecodeBf16(x.bits); }
  static Bfloat Encode(float x) { return {tensor::EncodeBf16(x)}; }
};

template <typename T>
T Combine(T a, T b, Op op) {
  if constexpr (std::is_class_v<T>) {
    return T::Encode(Combine(T::Decode(a), T::Decode(b), op));
  } else if constexpr (std::is_integral_v<T>) {
    // Overflows wrap.
    using U = std::make_unsigned_t<T>;
    if (op == kProduct) return static_cast<T>(static_cast<uint64_t>(static_cast<U>(a)) * static_cast<U>(b));
    if (op == kMax) return std::max(a, b);
    if (op == kMin) return std::min(a, b);
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    if (op == kProduct) return a * b;
    if (op == kMax) return std::max(a, b);
    if (op == kMin) return std::min(a, b);
    return a + b;
  }
}

template <typename T>
T Divided(T sum, size_t ranks) {
  if constexpr (std::is_class_v<T>) {
    return T::Encode(Divided(T::Decode(sum), ranks));
  } else {
    return static_cast<T>(sum / static_cast<T>(ranks));
  }
}

template <typename T>
std::vector<std::byte> ReducedAs(const std::vector<std::vector<std::byte>>& contributions, Op op) {
  const size_t count = contributions[0].size() / sizeof(T);
  std::vector<std::byte> out = contributions.back();
  for (size_t e = 0; e < count; ++e) {
    T sum, next;
    std::memcpy(&sum, out.data() + e * sizeof(T), sizeof(T));
    for (size_t rank = contributions.size() - 1; rank-- > 0;) {
      std::memcpy(&next, contributions[rank].data() + e * sizeof(T), sizeof(T));
      sum = Combine(sum, next, op);
    }
    if (op == kAverage) sum = Divided(sum, contributions.size());
    std::memcpy(out.data() + e * sizeof(T), &sum, sizeof(T));
  }
  return out;
}

struct TypeRow {
  DataType type;
  size_t bytes;
  std::vector<std::byte> (*reduced)(const std::vector<std::vector<std::byte>>&, Op);
};
constexpr TypeRow kTypes[] = {
    {kInt8, 1, ReducedAs<int8_t>},     {kUint8, 1, ReducedAs<uint8_t>}, {kInt32, 4, ReducedAs<int32_t>},
    {kUint32, 4, ReducedAs<uint32_t>}, {kInt64, 8, ReducedAs<int64_t>}, {kUint64, 8, ReducedAs<uint64_t>},
    {kFloat16, 2, ReducedAs<Half>},    {kFloat32, 4, ReducedAs<float>}, {kFloat64, 8, ReducedAs<double>},
    {kBfloat16, 2, ReducedAs<Bfloat>},
};

const TypeRow* Find(DataType type) {
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [type](const TypeRow& row) { return row.type == type; });
  return found == std::end(kTypes) ? nullptr : found;
}

}  // namespace

size_t BytesOf(DataType type) {
  const TypeRow* const row = Find(type);
  return row == nullptr ? 0 : row->bytes;
}

std::vector<std::byte> Reduced(const std::vector<std::vector<std::byte>>& contributions, DataType type, Op op) {
  return Find(type)->reduced(contributions, op);
}

}  // namespace xlad::nccl_double
