// cvt: conversions between types.
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "tests/cuda_driver_double/ptx_program.h"

namespace xlad::cuda_double {
namespace {

using f16 = _Float16;  // NOLINT: as PTX calls it.

enum Rounding { kNone, kNearestEven, kNearestInteger, kTowardZero, kDown, kUp };

template <typename T>
constexpr bool kIsFloat = std::is_same_v<T, f16> || std::is_floating_point_v<T>;

double RoundToInteger(double value, int rounding) {
  switch (rounding) {
    case kNearestInteger:
      return std::nearbyint(value);
    case kTowardZero:
      return std::trunc(value);
    case kDown:
      return std::floor(value);
    case kUp:
      return std::ceil(value);
    default:
      return value;
  }
}

// A number out of range becomes the nearest number in range. NaN becomes 0 if neither type has 64 bits, and otherwise
// the number of which only the highest bit is set.
template <typename To, typename From>
To Saturate(double value) {
  constexpr bool kNanIsZero = sizeof(From) < 8 && sizeof(To) < 8;
  if (value != value) return kNanIsZero ? To{0} : static_cast<To>(uint64_t{1} << (8 * sizeof(To) - 1));
  const double low = static_cast<double>(std::numeric_limits<To>::min());
  // The first number that is too large for the type.
  const double high = std::ldexp(1.0, std::numeric_limits<To>::digits);
  if (value <= low) return std::numeric_limits<To>::min();
  if (value >= high) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

template <typename To, typename From>
const Instruction* Convert(const Instruction* i, Thread& t) {
  const From from = t.Get<From>(i->r[1]);
  if constexpr (kIsFloat<To> && kIsFloat<From>) {
    t.Set<To>(i->r[0], i->mode <= kNearestEven ? static_cast<To>(from)
                                               : static_cast<To>(RoundToInteger(static_cast<double>(from), i->mode)));
  } else if constexpr (kIsFloat<To>) {
    t.Set<To>(i->r[0], static_cast<To>(from));
  } else if constexpr (kIsFloat<From>) {
    t.Set<To>(i->r[0], Saturate<To, From>(RoundToInteger(static_cast<double>(from), i->mode)));
  } else {
    // A register may be wider than the type.
    using Wide = std::conditional_t<std::is_signed_v<To>, int64_t, uint64_t>;
    t.Set<Wide>(i->r[0], static_cast<Wide>(static_cast<To>(from)));
  }
  return i + 1;
}

using Table = std::unordered_map<std::string, Step>;

template <typename To>
void AddTo(const std::string& to, Table* table) {
  Table& steps = *table;
  steps[to + ".u8"] = Convert<To, uint8_t>;
  steps[to + ".s8"] = Convert<To, int8_t>;
  steps[to + ".u16"] = Convert<To, uint16_t>;
  steps[to + ".s16"] = Convert<To, int16_t>;
  steps[to + ".u32"] = Convert<To, uint32_t>;
  steps[to + ".s32"] = Convert<To, int32_t>;
  steps[to + ".u64"] = Convert<To, uint64_t>;
  steps[to + ".s64"] = Convert<To, int64_t>;
  steps[to + ".f16"] = Convert<To, f16>;
  steps[to + ".f32"] = Convert<To, float>;
  steps[to + ".f64"] = Convert<To, double>;
}

Table MakeConversionTable() {
  Table table;
  AddTo<uint8_t>("u8", &table);
  AddTo<int8_t>("s8", &table);
  AddTo<uint16_t>("u16", &table);
  AddTo<int16_t>("s16", &table);
  AddTo<uint32_t>("u32", &table);
  AddTo<int32_t>("s32", &table);
  AddTo<uint64_t>("u64", &table);
  AddTo<int64_t>("s64", &table);
  AddTo<f16>("f16", &table);
  AddTo<float>("f32", &table);
  AddTo<double>("f64", &table);
  return table;
}

}  // namespace

Step FindConversion(const std::string& name, int* mode) {
  static const auto* const table = new Table(MakeConversionTable());
  static const auto* const roundings = new std::unordered_map<std::string, int>{
      {"rn", kNearestEven}, {"rni", kNearestInteger}, {"rzi", kTowardZero}, {"rmi", kDown}, {"rpi", kUp}};
  if (name.rfind("cvt.", 0) != 0) return nullptr;
  std::string types = name.substr(4);
  const std::string first = types.substr(0, types.find('.'));
  if (const auto found = roundings->find(first); found != roundings->end()) {
    *mode = found->second;
    types = types.substr(first.size() + 1);
  }
  const auto found = table->find(types);
  return found == table->end() ? nullptr : found->second;
}

}  // namespace xlad::cuda_double
