// Arithmetic, comparisons, logic and moves.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "tests/cuda_driver_double/ptx_program.h"

namespace xlad::cuda_double {
namespace {

using f16 = _Float16;  // NOLINT: as PTX calls it.
using Table = std::unordered_map<std::string, Step>;

template <typename T, auto F>
const Instruction* Unary(const Instruction* i, Thread& t) {
  t.Set<T>(i->r[0], static_cast<T>(F(t.Get<T>(i->r[1]))));
  return i + 1;
}
template <typename T, auto F>
const Instruction* Binary(const Instruction* i, Thread& t) {
  t.Set<T>(i->r[0], static_cast<T>(F(t.Get<T>(i->r[1]), t.Get<T>(i->r[2]))));
  return i + 1;
}
template <typename T, auto F>
const Instruction* Ternary(const Instruction* i, Thread& t) {
  t.Set<T>(i->r[0], static_cast<T>(F(t.Get<T>(i->r[1]), t.Get<T>(i->r[2]), t.Get<T>(i->r[3]))));
  return i + 1;
}
// A shift: the second operand is a number of bits.
template <typename T, auto F>
const Instruction* Shift(const Instruction* i, Thread& t) {
  t.Set<T>(i->r[0], static_cast<T>(F(t.Get<T>(i->r[1]), t.Get<uint32_t>(i->r[2]))));
  return i + 1;
}
template <typename T, auto F>
const Instruction* Compare(const Instruction* i, Thread& t) {
  t.Set<uint8_t>(i->r[0], F(t.Get<T>(i->r[1]), t.Get<T>(i->r[2])) ? 1 : 0);
  return i + 1;
}
template <typename T>
const Instruction* Select(const Instruction* i, Thread& t) {
  t.Set<T>(i->r[0], t.Get<uint8_t>(i->r[3]) != 0 ? t.Get<T>(i->r[1]) : t.Get<T>(i->r[2]));
  return i + 1;
}
template <typename From, typename To>
const Instruction* MultiplyWide(const Instruction* i, Thread& t) {
  t.Set<To>(i->r[0], static_cast<To>(static_cast<To>(t.Get<From>(i->r[1])) * static_cast<To>(t.Get<From>(i->r[2]))));
  return i + 1;
}
template <typename From, typename To>
const Instruction* MultiplyAddWide(const Instruction* i, Thread& t) {
  const To product = static_cast<To>(t.Get<From>(i->r[1])) * static_cast<To>(t.Get<From>(i->r[2]));
  t.Set<To>(i->r[0], static_cast<To>(product + t.Get<To>(i->r[3])));
  return i + 1;
}
// Bit fields: r[1] is the value, r[2] the number of the first bit, and r[3] the number of bits.
template <typename T>
const Instruction* ExtractBits(const Instruction* i, Thread& t) {
  using U = std::make_unsigned_t<T>;
  constexpr uint32_t kBits = sizeof(T) * 8;
  const uint32_t first = t.Get<uint32_t>(i->r[2]) & 0xff, count = t.Get<uint32_t>(i->r[3]) & 0xff;
  const T value = t.Get<T>(i->r[1]);
  U field = first >= kBits ? 0 : static_cast<U>(value) >> first;
  if (count == 0) field = 0;
  if (count > 0 && count < kBits) field &= (U{1} << count) - 1;
  if (std::is_signed_v<T> && count > 0) {
    const uint32_t sign_at = std::min(first + count - 1, kBits - 1);
    const bool is_negative = (static_cast<U>(value) >> sign_at & 1) != 0;
    const uint32_t kept = first >= kBits ? 0 : std::min(count, kBits - first);
    if (is_negative && kept < kBits) field |= static_cast<U>(~U{0}) << kept;
  }
  t.Set<U>(i->r[0], field);
  return i + 1;
}
// Inserts the low r[4] bits of r[1] into r[2], beginning at bit r[3].
template <typename U>
const Instruction* InsertBits(const Instruction* i, Thread& t) {
  constexpr uint32_t kBits = sizeof(U) * 8;
  const uint32_t first = t.Get<uint32_t>(i->r[3]) & 0xff, count = t.Get<uint32_t>(i->r[4]) & 0xff;
  const U all = count >= kBits ? ~U{0} : (U{1} << count) - 1;
  const U mask = first >= kBits ? 0 : static_cast<U>(all << first);
  const U field = first >= kBits ? 0 : static_cast<U>(t.Get<U>(i->r[1]) << first);
  t.Set<U>(i->r[0], static_cast<U>((t.Get<U>(i->r[2]) & ~mask) | (field & mask)));
  return i + 1;
}
// Selects bytes of r[1] and r[2] by the nibbles of r[3].
const Instruction* Permute(const Instruction* i, Thread& t) {
  const uint64_t bytes = t.Get<uint32_t>(i->r[1]) | uint64_t{t.Get<uint32_t>(i->r[2])} << 32;
  const uint32_t selector = t.Get<uint32_t>(i->r[3]);
  uint32_t result = 0;
  for (uint32_t b = 0; b < 4; ++b) {
    const uint32_t choice = selector >> (4 * b) & 0xf;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (choice & 7))) & 0xff;
    if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * b);
  }
  t.Set<uint32_t>(i->r[0], result);
  return i + 1;
}
// Splits a register into halves (mov.b64 {low, high}, from), or joins halves.
template <typename Half, typename Whole>
const Instruction* Split(const Instruction* i, Thread& t) {
  const Whole whole = t.Get<Whole>(i->r[2]);
  t.Set<Half>(i->r[0], static_cast<Half>(whole));
  t.Set<Half>(i->r[1], static_cast<Half>(whole >> (8 * sizeof(Half))));
  return i + 1;
}
template <typename Half, typename Whole>
const Instruction* Join(const Instruction* i, Thread& t) {
  const Whole high = static_cast<Whole>(t.Get<Half>(i->r[2]));
  t.Set<Whole>(i->r[0], static_cast<Whole>(t.Get<Half>(i->r[1]) | high << (8 * sizeof(Half))));
  return i + 1;
}
// Additions and subtractions that write the carry, and also read it if `kReads` is true.
template <typename U, bool kReads, bool kSubtracts>
const Instruction* AddCarry(const Instruction* i, Thread& t) {
  const U a = t.Get<U>(i->r[1]), b = t.Get<U>(i->r[2]);
  const unsigned __int128 carry = kReads && t.carry ? 1 : 0;
  const unsigned __int128 wide =
      kSubtracts ? static_cast<unsigned __int128>(a) - b - carry : static_cast<unsigned __int128>(a) + b + carry;
  t.carry = (wide >> (8 * sizeof(U)) & 1) != 0;
  t.Set<U>(i->r[0], static_cast<U>(wide));
  return i + 1;
}
// An addition or subtraction that reads the carry and does not change it.
template <typename U, bool kSubtracts>
const Instruction* AddLastCarry(const Instruction* i, Thread& t) {
  const bool carry = t.carry;
  const Instruction* const next = AddCarry<U, true, kSubtracts>(i, t);
  t.carry = carry;
  return next;
}

template <typename T>
T FloatMin(T a, T b, bool keeps_nan) {
  if (a != a) return keeps_nan ? a : b;
  if (b != b) return keeps_nan ? b : a;
  if (a == b) return std::signbit(static_cast<float>(a)) ? a : b;
  return a < b ? a : b;
}
template <typename T>
T FloatMax(T a, T b, bool keeps_nan) {
  if (a != a) return keeps_nan ? a : b;
  if (b != b) return keeps_nan ? b : a;
  if (a == b) return std::signbit(static_cast<float>(a)) ? b : a;
  return a > b ? a : b;
}

template <typename T>
void AddFloats(const std::string& type, Table* table) {
  Table& steps = *table;
  for (const std::string& rounding : {std::string("rn."), std::string()}) {
    steps["add." + rounding + type] = Binary<T, [](T a, T b) { return a + b; }>;
    steps["sub." + rounding + type] = Binary<T, [](T a, T b) { return a - b; }>;
    steps["mul." + rounding + type] = Binary<T, [](T a, T b) { return a * b; }>;
    steps["fma." + rounding + type] = Ternary<T, [](T a, T b, T c) {
      if constexpr (std::is_same_v<T, f16>) {
        return std::fma(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c));
      } else {
        return std::fma(a, b, c);
      }
    }>;
  }
  steps["div.rn." + type] = Binary<T, [](T a, T b) { return a / b; }>;
  steps["rcp.rn." + type] = Unary<T, [](T a) { return T(1) / a; }>;
  if constexpr (!std::is_same_v<T, f16>) steps["sqrt.rn." + type] = Unary<T, [](T a) { return std::sqrt(a); }>;
  steps["neg." + type] = Unary<T, [](T a) { return -a; }>;
  steps["abs." + type] = Unary<T, [](T a) { return static_cast<T>(std::fabs(static_cast<double>(a))); }>;
  steps["min." + type] = Binary<T, [](T a, T b) { return FloatMin(a, b, false); }>;
  steps["max." + type] = Binary<T, [](T a, T b) { return FloatMax(a, b, false); }>;
  steps["min.NaN." + type] = Binary<T, [](T a, T b) { return FloatMin(a, b, true); }>;
  steps["max.NaN." + type] = Binary<T, [](T a, T b) { return FloatMax(a, b, true); }>;
  // The result has the sign of the first operand and the magnitude of the second.
  steps["copysign." + type] =
      Binary<T, [](T a, T b) { return static_cast<T>(std::copysign(static_cast<double>(b), static_cast<double>(a))); }>;
  steps["setp.eq." + type] = Compare<T, [](T a, T b) { return a == b; }>;
  steps["setp.ne." + type] = Compare<T, [](T a, T b) { return a < b || a > b; }>;
  steps["setp.lt." + type] = Compare<T, [](T a, T b) { return a < b; }>;
  steps["setp.le." + type] = Compare<T, [](T a, T b) { return a <= b; }>;
  steps["setp.gt." + type] = Compare<T, [](T a, T b) { return a > b; }>;
  steps["setp.ge." + type] = Compare<T, [](T a, T b) { return a >= b; }>;
  steps["setp.equ." + type] = Compare<T, [](T a, T b) { return !(a < b || a > b); }>;
  steps["setp.neu." + type] = Compare<T, [](T a, T b) { return a != b; }>;
  steps["setp.ltu." + type] = Compare<T, [](T a, T b) { return !(a >= b); }>;
  steps["setp.leu." + type] = Compare<T, [](T a, T b) { return !(a > b); }>;
  steps["setp.gtu." + type] = Compare<T, [](T a, T b) { return !(a <= b); }>;
  steps["setp.geu." + type] = Compare<T, [](T a, T b) { return !(a < b); }>;
  steps["setp.num." + type] = Compare<T, [](T a, T b) { return a == a && b == b; }>;
  steps["setp.nan." + type] = Compare<T, [](T a, T b) { return a != a || b != b; }>;
}

// The high half of a product.
template <typename T>
T HighProduct(T a, T b) {
  using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
}

// A division by 0 returns all bits set, as on GPUs. The smallest number divided by -1 wraps around.
template <typename T>
T Quotient(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(std::make_unsigned_t<T>(0) - a);
  return static_cast<T>(a / b);
}
template <typename T>
T Remainder(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}

template <typename T>
void AddIntegers(const std::string& type, Table* table) {
  using U = std::make_unsigned_t<T>;
  Table& steps = *table;
  steps["add." + type] = Binary<U, [](U a, U b) { return a + b; }>;
  steps["sub." + type] = Binary<U, [](U a, U b) { return a - b; }>;
  steps["mul.lo." + type] = Binary<U, [](U a, U b) { return static_cast<uint64_t>(a) * b; }>;
  steps["mad.lo." + type] = Ternary<U, [](U a, U b, U c) { return static_cast<uint64_t>(a) * b + c; }>;
  steps["mul.hi." + type] = Binary<T, [](T a, T b) { return HighProduct(a, b); }>;
  steps["div." + type] = Binary<T, [](T a, T b) { return Quotient(a, b); }>;
  steps["rem." + type] = Binary<T, [](T a, T b) { return Remainder(a, b); }>;
  steps["min." + type] = Binary<T, [](T a, T b) { return std::min(a, b); }>;
  steps["max." + type] = Binary<T, [](T a, T b) { return std::max(a, b); }>;
  steps["neg." + type] = Unary<U, [](U a) { return U{0} - a; }>;
  steps["abs." + type] = Unary<T, [](T a) { return a < 0 ? static_cast<T>(U{0} - static_cast<U>(a)) : a; }>;
  steps["shr." + type] = Shift<T, [](T a, uint32_t n) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    if (n >= kBits) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> n);
  }>;
  for (const std::string& kind : {type, "b" + type.substr(1)}) {
    steps["setp.eq." + kind] = Compare<T, [](T a, T b) { return a == b; }>;
    steps["setp.ne." + kind] = Compare<T, [](T a, T b) { return a != b; }>;
  }
  steps["setp.lt." + type] = Compare<T, [](T a, T b) { return a < b; }>;
  steps["setp.le." + type] = Compare<T, [](T a, T b) { return a <= b; }>;
  steps["setp.gt." + type] = Compare<T, [](T a, T b) { return a > b; }>;
  steps["setp.ge." + type] = Compare<T, [](T a, T b) { return a >= b; }>;
  if constexpr (sizeof(T) >= 4) steps["bfe." + type] = ExtractBits<T>;
}

template <typename U>
void AddBits(const std::string& bits, Table* table) {
  Table& steps = *table;
  const std::string type = "b" + bits;
  steps["and." + type] = Binary<U, [](U a, U b) { return a & b; }>;
  steps["or." + type] = Binary<U, [](U a, U b) { return a | b; }>;
  steps["xor." + type] = Binary<U, [](U a, U b) { return a ^ b; }>;
  steps["not." + type] = Unary<U, [](U a) { return ~a; }>;
  steps["shl." + type] = Shift<U, [](U a, uint32_t n) {
    return n >= 8 * sizeof(U) ? U{0} : static_cast<U>(static_cast<uint64_t>(a) << n);
  }>;
  for (const char* const kind : {"b", "u", "s", "f"}) {
    steps["mov." + (kind + bits)] = Unary<U, [](U a) { return a; }>;
    steps["selp." + (kind + bits)] = Select<U>;
  }
  if constexpr (sizeof(U) >= 4) {
    steps["bfi." + type] = InsertBits<U>;
    steps["brev." + type] = Unary<U, [](U a) {
      U reversed = 0;
      for (size_t b = 0; b < 8 * sizeof(U); ++b) reversed |= (a >> b & 1) << (8 * sizeof(U) - 1 - b);
      return reversed;
    }>;
    // The results of these two have 32 bits.
    steps["popc." + type] = Unary<U, [](U a) { return static_cast<U>(std::popcount(a)); }>;
    steps["clz." + type] = Unary<U, [](U a) { return static_cast<U>(std::countl_zero(a)); }>;
    for (const char* const sign : {"u", "s"}) {
      steps["add.cc." + (sign + bits)] = AddCarry<U, false, false>;
      steps["sub.cc." + (sign + bits)] = AddCarry<U, false, true>;
      steps["addc.cc." + (sign + bits)] = AddCarry<U, true, false>;
      steps["subc.cc." + (sign + bits)] = AddCarry<U, true, true>;
      steps["addc." + (sign + bits)] = AddLastCarry<U, false>;
      steps["subc." + (sign + bits)] = AddLastCarry<U, true>;
    }
  }
}

template <typename From, typename To>
void AddWide(const std::string& type, Table* table) {
  (*table)["mul.wide." + type] = MultiplyWide<From, To>;
  (*table)["mad.wide." + type] = MultiplyAddWide<From, To>;
}

// A funnel shift of two registers: returns the high part of a left shift, and the low part of a right shift.
template <bool kLeft>
uint32_t Funnel(uint32_t low, uint32_t high, uint32_t n) {
  const uint64_t both = uint64_t{high} << 32 | low;
  return kLeft ? static_cast<uint32_t>(both << n >> 32) : static_cast<uint32_t>(both >> n);
}

void AddOthers(Table* table) {
  Table& steps = *table;
  using u32 = uint32_t;  // NOLINT
  steps["shf.l.wrap.b32"] = Ternary<u32, [](u32 a, u32 b, u32 n) { return Funnel<true>(a, b, n & 31); }>;
  steps["shf.r.wrap.b32"] = Ternary<u32, [](u32 a, u32 b, u32 n) { return Funnel<false>(a, b, n & 31); }>;
  steps["shf.l.clamp.b32"] = Ternary<u32, [](u32 a, u32 b, u32 n) { return Funnel<true>(a, b, std::min(n, 32u)); }>;
  steps["shf.r.clamp.b32"] = Ternary<u32, [](u32 a, u32 b, u32 n) { return Funnel<false>(a, b, std::min(n, 32u)); }>;
  steps["prmt.b32"] = Permute;
  using u8 = uint8_t;  // NOLINT
  steps["and.pred"] = Binary<u8, [](u8 a, u8 b) { return a & b; }>;
  steps["or.pred"] = Binary<u8, [](u8 a, u8 b) { return a | b; }>;
  steps["xor.pred"] = Binary<u8, [](u8 a, u8 b) { return a ^ b; }>;
  steps["not.pred"] = Unary<u8, [](u8 a) { return a ^ 1; }>;
  steps["mov.pred"] = Unary<u8, [](u8 a) { return a; }>;
  steps["selp.pred"] = Select<u8>;
  // The parser adds a mark to the names of instructions with vectors of registers.
  steps["split.b64"] = Split<uint32_t, uint64_t>;
  steps["split.b32"] = Split<uint16_t, uint32_t>;
  steps["join.b64"] = Join<uint32_t, uint64_t>;
  steps["join.b32"] = Join<uint16_t, uint32_t>;
}

Table MakeArithmeticTable() {
  Table table;
  AddIntegers<uint16_t>("u16", &table);
  AddIntegers<int16_t>("s16", &table);
  AddIntegers<uint32_t>("u32", &table);
  AddIntegers<int32_t>("s32", &table);
  AddIntegers<uint64_t>("u64", &table);
  AddIntegers<int64_t>("s64", &table);
  AddBits<uint16_t>("16", &table);
  AddBits<uint32_t>("32", &table);
  AddBits<uint64_t>("64", &table);
  AddWide<uint16_t, uint32_t>("u16", &table);
  AddWide<int16_t, int32_t>("s16", &table);
  AddWide<uint32_t, uint64_t>("u32", &table);
  AddWide<int32_t, int64_t>("s32", &table);
  AddFloats<f16>("f16", &table);
  AddFloats<float>("f32", &table);
  AddFloats<double>("f64", &table);
  AddOthers(&table);
  return table;
}

}  // namespace

Step FindArithmetic(const std::string& name) {
  static const auto* const table = new Table(MakeArithmeticTable());
  const auto found = table->find(name);
  return found == table->end() ? nullptr : found->second;
}

}  // namespace xlad::cuda_double
