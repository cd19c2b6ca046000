#include "tensor/not_finite.h"

#include <cmath>
#include <cstring>

#include "tensor/small_float.h"

namespace xlad::tensor {
namespace {

// `Stored` is the type in which a number is stored, and `decode` converts a stored number to a float or double. An
// element consists of `parts` numbers.
template <typename Stored, typename Decode>
NotFinite Find(absl::Span<const std::byte> bytes, int64_t parts, const Decode& decode) {
  NotFinite found;
  const int64_t count = bytes.size() / sizeof(Stored);
  for (int64_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof stored);
    const auto value = decode(stored);
    if (std::isfinite(value)) continue;
    int64_t& first = std::isnan(value) ? found.first_nan : found.first_infinity;
    if (first < 0) first = i / parts;
    if (found.first_nan >= 0 && found.first_infinity >= 0) break;
  }
  return found;
}

}  // namespace

NotFinite FindNotFinite(ElementType type, absl::Span<const std::byte> bytes) {
  const auto same = [](auto value) { return value; };
  const auto small = [&](auto value) { return DecodeSmallFloat(type, value); };
  switch (type) {
    case ElementType::kF32:
      return Find<float>(bytes, 1, same);
    case ElementType::kF64:
      return Find<double>(bytes, 1, same);
    case ElementType::kC64:
      return Find<float>(bytes, 2, same);
    case ElementType::kC128:
      return Find<double>(bytes, 2, same);
    default:
      break;
  }
  if (!IsSmallFloat(type)) return {};
  if (BitWidth(type) == 16) return Find<uint16_t>(bytes, 1, small);
  if (BitWidth(type) == 8) return Find<uint8_t>(bytes, 1, small);
  return {};
}

}  // namespace xlad::tensor
