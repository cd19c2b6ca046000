// Compares reductions with slow references.
#include "collectives/exec/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tensor/small_float.h"

namespace xlad::collectives {
namespace {

using tensor::ElementType;
using ::testing::HasSubstr;

constexpr Reduction kAllReductions[] = {Reduction::kSum, Reduction::kProduct, Reduction::kMax, Reduction::kMin,
                                        Reduction::kAnd, Reduction::kOr,      Reduction::kXor, Reduction::kAverage};

template <typename T>
std::vector<T> ReduceAll(ElementType type, Reduction reduction, const std::vector<std::vector<T>>& operands) {
  std::vector<const void*> sources;
  for (const auto& operand : operands) sources.push_back(operand.data());
  std::vector<T> result(operands[0].size());
  const absl::StatusOr<ReduceFunction> function = FindReduceFunction(type, reduction);
  EXPECT_TRUE(function.ok()) << function.status();
  void* const dsts[] = {result.data()};
  (*function)(dsts, sources, std::ssize(result), StoreKind::kCached);
  return result;
}

// Reduces three operands of integers. The result must be the low bits of the 128-bit result.
template <typename T>
void CheckIntegers(ElementType type) {
  SCOPED_TRACE(std::string(tensor::ToString(type)));
  const std::unique_ptr<Random> random = SeededRandom(5);
  std::vector<std::vector<T>> operands(3, std::vector<T>(2500));
  for (auto& operand : operands) {
    for (T& value : operand) value = static_cast<T>(random->Next());
  }
  for (const Reduction reduction : kAllReductions) {
    const std::vector<T> result = ReduceAll<T>(type, reduction, operands);
    for (size_t i = 0; i < result.size(); ++i) {
      __int128 expected = operands[0][i];
      for (size_t k = 1; k < 3; ++k) {
        const __int128 next = operands[k][i];
        const bool adds = reduction == Reduction::kSum || reduction == Reduction::kAverage;
        expected = adds                               ? expected + next
                   : reduction == Reduction::kProduct ? static_cast<__int128>(static_cast<T>(expected)) * next
                   : reduction == Reduction::kMax     ? std::max(expected, next)
                   : reduction == Reduction::kMin     ? std::min(expected, next)
                   : reduction == Reduction::kAnd     ? expected & next
                   : reduction == Reduction::kXor     ? expected ^ next
                                                      : expected | next;
      }
      // The sum wraps around, and the quotient is rounded toward zero.
      if (reduction == Reduction::kAverage) expected = static_cast<__int128>(static_cast<T>(expected)) / 3;
      ASSERT_EQ(result[i], static_cast<T>(expected)) << ToString(reduction) << " at " << i;
    }
  }
}

TEST(Reduce, IntegersWrap) {
  CheckIntegers<int8_t>(ElementType::kS8);
  CheckIntegers<int16_t>(ElementType::kS16);
  CheckIntegers<int32_t>(ElementType::kS32);
  CheckIntegers<int64_t>(ElementType::kS64);
  CheckIntegers<uint8_t>(ElementType::kU8);
  CheckIntegers<uint16_t>(ElementType::kU16);
  CheckIntegers<uint32_t>(ElementType::kU32);
  CheckIntegers<uint64_t>(ElementType::kU64);
}

TEST(Reduce, NarrowIntegersStayInTheirRange) {
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(ReduceAll<uint8_t>(ElementType::kS4, Reduction::kSum, {{7}, {1}}), Bytes{0xf8});  // 8 wraps around to -8.
  EXPECT_EQ(ReduceAll<uint8_t>(ElementType::kS4, Reduction::kMin, {{3}, {0xff}}), Bytes{0xff});
  EXPECT_EQ(ReduceAll<uint8_t>(ElementType::kU4, Reduction::kSum, {{15}, {3}}), Bytes{2});
  EXPECT_EQ(ReduceAll<uint8_t>(ElementType::kU2, Reduction::kProduct, {{3}, {3}}), Bytes{1});
}

TEST(Reduce, PredIsLogical) {
  for (uint8_t a : {0, 1}) {
    for (uint8_t b : {0, 1}) {
      const uint8_t both = a & b, any = a | b;
      // In the order sum, product, max, min, and, or, xor.
      const std::vector<uint8_t> expected = {any, both, any, both, both, any, static_cast<uint8_t>(a ^ b)};
      for (int r = 1; r <= 7; ++r) {
        EXPECT_EQ(ReduceAll<uint8_t>(ElementType::kPred, static_cast<Reduction>(r), {{a}, {b}})[0], expected[r - 1]);
      }
    }
  }
}

TEST(Reduce, FloatsAreSummedFromLeftToRight) {
  const std::unique_ptr<Random> random = SeededRandom(3);
  std::vector<std::vector<float>> operands(5, std::vector<float>(3000));
  for (auto& operand : operands) {
    for (float& value : operand) value = static_cast<float>(random->Unit() * 1e6 - 5e5);
  }
  const std::vector<float> sums = ReduceAll<float>(ElementType::kF32, Reduction::kSum, operands);
  for (size_t i = 0; i < sums.size(); ++i) {
    float expected = operands[0][i];
    for (size_t k = 1; k < 5; ++k) expected += operands[k][i];
    ASSERT_EQ(sums[i], expected);
  }
}

TEST(Reduce, MaxAndMinPropagateNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Reduction reduction : {Reduction::kMax, Reduction::kMin}) {
    EXPECT_TRUE(std::isnan(ReduceAll<float>(ElementType::kF32, reduction, {{nan}, {1}})[0]));
    EXPECT_TRUE(std::isnan(ReduceAll<float>(ElementType::kF32, reduction, {{1}, {nan}})[0]));
    const uint16_t bf16_nan = tensor::EncodeBf16(nan);
    const auto result = ReduceAll<uint16_t>(ElementType::kBF16, reduction, {{bf16_nan}, {0x3f80}});
    EXPECT_TRUE(std::isnan(tensor::DecodeBf16(result[0])));
  }
}

TEST(Reduce, MaxAndMinOrderTheZeros) {
  for (const size_t count : {1, 64}) {  // One element is the rest of a block. 64 are whole blocks.
    const std::vector<float> plus(count, 0.0f), minus(count, -0.0f);
    for (const auto& [a, b] : {std::pair(plus, minus), std::pair(minus, plus)}) {
      for (const float zero : ReduceAll<float>(ElementType::kF32, Reduction::kMax, {a, b})) {
        EXPECT_FALSE(std::signbit(zero));
      }
      for (const float zero : ReduceAll<float>(ElementType::kF32, Reduction::kMin, {a, b})) {
        EXPECT_TRUE(std::signbit(zero));
      }
    }
  }
}

TEST(Reduce, ComplexNumbersAddAndMultiply) {
  using Complex = std::complex<float>;
  EXPECT_EQ(ReduceAll<Complex>(ElementType::kC64, Reduction::kSum, {{{1, 2}}, {{3, -5}}})[0], Complex(4, -3));
  EXPECT_EQ(ReduceAll<Complex>(ElementType::kC64, Reduction::kProduct, {{{1, 2}}, {{3, -5}}})[0], Complex(13, 1));
}

TEST(Reduce, ResultMayBeStoredInAnOperand) {
  std::vector<float> a(3000, 1.0f), b(3000, 2.0f), c(3000, 4.0f);
  for (std::vector<float>* dst : {&a, &b, &c}) {
    std::vector<float> copies[3] = {a, b, c};
    const void* sources[] = {a.data(), b.data(), c.data()};
    void* const dsts[] = {dst->data()};
    (*FindReduceFunction(ElementType::kF32, Reduction::kSum))(dsts, sources, 3000, StoreKind::kCached);
    for (int i = 0; i < 3000; ++i) ASSERT_EQ((*dst)[i], copies[0][i] + copies[1][i] + copies[2][i]);
  }
}

// Runs both kernels on the same random bits, with odd sizes and offsets, and with one and with several destinations.
void CompareWithScalar(ElementType type, Reduction reduction, StoreKind store) {
  SCOPED_TRACE(absl::StrCat(tensor::ToString(type), " ", ToString(reduction)));
  const ReduceFunction vector = FindVectorReduceKernels(type, reduction).reduce;
  const absl::StatusOr<ReduceFunction> scalar = FindScalarReduceFunction(type, reduction);
  if (vector == nullptr) return;
  ASSERT_TRUE(scalar.ok());
  const std::unique_ptr<Random> random = SeededRandom(7);
  const int64_t width = tensor::ByteWidth(type);
  for (const int64_t count : {0, 1, 3, 15, 16, 17, 63, 64, 65, 127, 1000, 4099}) {
    for (const int sources : {1, 2, 3, 8}) {
      std::vector<std::vector<uint8_t>> bytes(sources, std::vector<uint8_t>((count + 1) * width));
      std::vector<const void*> from;
      for (auto& source : bytes) {
        for (size_t i = 0; i < source.size(); i += 8) {
          const uint64_t bits = random->Next();
          std::memcpy(&source[i], &bits, std::min<size_t>(8, source.size() - i));
        }
        // The sum of two NaNs has the sign of one of them, which the compiler chooses. So bf16 operands are not NaN.
        if (type == ElementType::kBF16) {
          for (size_t i = 1; i < source.size(); i += 2) source[i] &= 0xBF;
        }
        from.push_back(source.data() + width * (count % 2));
      }
      std::vector<uint8_t> expected(count * width + 1), a(count * width + 64), b(count * width + 64);
      void* const expected_dsts[] = {expected.data()};
      (*scalar)(expected_dsts, from, count, StoreKind::kCached);
      void* const dsts[] = {a.data() + width, b.data() + width};
      vector(absl::MakeSpan(dsts).subspan(0, 1 + count % 2), from, count, store);
      ASSERT_EQ(std::memcmp(dsts[0], expected.data(), count * width), 0) << count << " elements of " << sources;
      if (count % 2 == 1) {
        ASSERT_EQ(std::memcmp(dsts[1], expected.data(), count * width), 0);
      }
    }
  }
}

TEST(Reduce, VectorKernelsHaveTheBitsOfScalarOnes) {
  std::map<Reduction, int> types;
  for (int type = 0; type < 64; ++type) {
    for (const Reduction reduction : kAllReductions) {
      const ElementType element = static_cast<ElementType>(type);
      if (FindVectorReduceKernels(element, reduction).reduce == nullptr) continue;
      ++types[reduction];
      const bool nan_bits_are_free = element == ElementType::kF32 || element == ElementType::kF64;
      if (!nan_bits_are_free) {
        CompareWithScalar(element, reduction, StoreKind::kCached);
        CompareWithScalar(element, reduction, StoreKind::kStreaming);
      }
    }
  }
  // All floats have averages, all integers and pred have logical operations, and all of these types have sums.
  EXPECT_EQ(types[Reduction::kAverage], 6);
  for (const Reduction reduction : {Reduction::kAnd, Reduction::kOr, Reduction::kXor}) EXPECT_EQ(types[reduction], 9);
  EXPECT_EQ(types[Reduction::kSum], 15);
}

TEST(Reduce, SmallKernelsHaveTheBitsOfTheOthers) {
  const std::unique_ptr<Random> random = SeededRandom(9);
  for (int type = 0; type < 64; ++type) {
    for (const Reduction reduction : kAllReductions) {
      const ReduceKernels kernels = FindVectorReduceKernels(static_cast<ElementType>(type), reduction);
      if (kernels.small == nullptr) continue;
      const int64_t width = tensor::ByteWidth(static_cast<ElementType>(type));
      std::vector<std::vector<uint8_t>> bytes(5, std::vector<uint8_t>(kSmallBytes));
      for (auto& source : bytes) {
        // A number whose bytes are all below 0x70 is not a NaN. The sign of a sum of two NaNs is that of either
        // operand.
        for (uint8_t& byte : source) byte = static_cast<uint8_t>(random->Below(0x70));
      }
      for (int64_t offset = 0; offset < kSmallBytes; offset += width) {
        for (int64_t size = 0; offset + size <= kSmallBytes; size += width) {
          std::vector<const void*> payloads, sources;
          for (auto& source : bytes) {
            payloads.push_back(source.data());
            sources.push_back(source.data() + offset);
          }
          std::vector<uint8_t> expected(kSmallBytes), found(kSmallBytes);
          void* const dsts[] = {expected.data()};
          kernels.reduce(dsts, sources, size / width, StoreKind::kCached);
          kernels.small(found.data(), payloads, offset, size);
          ASSERT_EQ(found, expected) << "type " << type << ", " << ToString(reduction) << ", [" << offset << ", +"
                                     << size << ")";
        }
      }
    }
  }
}

// The sum of two NaNs has the bits of one of them, depending on the order of the operands, which the compiler chooses.
// The operands are therefore finite.
TEST(Reduce, VectorKernelsOfF32AndF64HaveTheBitsOfScalarOnes) {
  const std::unique_ptr<Random> random = SeededRandom(8);
  for (const int64_t count : {1, 31, 64, 65, 4099}) {
    std::vector<float> narrow[3];
    std::vector<double> wide[3];
    for (int i = 0; i < 3; ++i) {
      for (int64_t k = 0; k < count; ++k) {
        narrow[i].push_back(static_cast<float>(random->Unit() * 8 - 4));
        wide[i].push_back(random->Unit() * 8 - 4);
      }
    }
    for (const Reduction r :
         {Reduction::kSum, Reduction::kProduct, Reduction::kMax, Reduction::kMin, Reduction::kAverage}) {
      std::vector<float> a(count + 16), b(count);
      std::vector<double> c(count + 16), d(count);
      void* const as[] = {a.data() + 3};
      void* const bs[] = {b.data()};
      void* const cs[] = {c.data() + 3};
      void* const ds[] = {d.data()};
      const void* const narrow_from[] = {narrow[0].data(), narrow[1].data(), narrow[2].data()};
      const void* const wide_from[] = {wide[0].data(), wide[1].data(), wide[2].data()};
      (*FindReduceFunction(ElementType::kF32, r))(as, narrow_from, count, StoreKind::kStreaming);
      (*FindScalarReduceFunction(ElementType::kF32, r))(bs, narrow_from, count, StoreKind::kCached);
      (*FindReduceFunction(ElementType::kF64, r))(cs, wide_from, count, StoreKind::kStreaming);
      (*FindScalarReduceFunction(ElementType::kF64, r))(ds, wide_from, count, StoreKind::kCached);
      ASSERT_EQ(std::memcmp(as[0], b.data(), count * sizeof(float)), 0) << ToString(r) << " of " << count;
      ASSERT_EQ(std::memcmp(cs[0], d.data(), count * sizeof(double)), 0) << ToString(r) << " of " << count;
    }
  }
}

TEST(Reduce, CopiesAtAnyAlignment) {
  constexpr int64_t kApart = 1 << 19;  // Some destinations begin a few bytes after the source, apart from whole pages.
  std::vector<uint8_t> buffer(2 * kApart);
  uint8_t* const from = buffer.data() + 5;
  for (const StoreKind store : {StoreKind::kCached, StoreKind::kStreaming}) {
    for (const int64_t bytes : {0, 1, 63, 64, 65, 2047, 2048, 4097, 9000, 400'000, 400'001}) {
      for (const int offset : {-5, 0, 1, 16, 17, 31, 32, 64}) {
        uint8_t* const to = from + kApart + offset;
        std::fill(buffer.begin() + kApart, buffer.end(), 0xEE);
        for (int64_t i = 0; i < bytes; ++i) from[i] = static_cast<uint8_t>(i * 31);
        CopyBytes(to, from, bytes, store);
        ASSERT_EQ(std::memcmp(to, from, bytes), 0) << bytes << " bytes, offset " << offset;
        ASSERT_TRUE(to[-1] == 0xEE || offset == -5) << bytes << " bytes, offset " << offset;
        ASSERT_EQ(to[bytes], 0xEE) << bytes << " bytes, offset " << offset;
      }
    }
  }
}

// The definition of OpKind::kReduceTree, in the type in which elements are accumulated.
template <typename T>
T TreeOf(absl::Span<const T> values, bool product) {
  if (values.size() == 1) return values[0];
  size_t half = 1;
  while (half * 2 < values.size()) half *= 2;
  const T left = TreeOf<T>(values.first(half), product), right = TreeOf<T>(values.subspan(half), product);
  return product ? left * right : left + right;
}

TEST(Reduce, AveragesOfNarrowIntegersOverManySources) {
  for (const ElementType type : {ElementType::kS8, ElementType::kU8}) {
    for (const int sources : {127, 128, 130, 255, 256, 257, 300}) {
      const std::vector<int8_t> ones(3, 1);
      const std::vector<const void*> from(sources, ones.data());
      const int8_t sum = static_cast<int8_t>(sources);  // Sums wrap around.
      const int wrapped = type == ElementType::kS8 ? sum : static_cast<uint8_t>(sum);
      std::vector<int8_t> result(3, 99);
      void* const dsts[] = {result.data()};
      (*FindReduceFunction(type, Reduction::kAverage))(dsts, from, 3, StoreKind::kCached);
      EXPECT_EQ(result, std::vector<int8_t>(3, static_cast<int8_t>(wrapped / sources)))
          << tensor::ToString(type) << " of " << sources;
    }
  }
}

// Random operands of very different magnitudes, so another order usually has another result.
template <typename T, typename Load, typename Store>
void CheckTrees(ElementType type, const Load& load, const Store& store) {
  using Wide = decltype(std::declval<Load>()(T()));
  const std::unique_ptr<Random> random = SeededRandom(11);
  for (const int sources : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 31, 64}) {
    std::vector<Wide> values(sources);
    for (const int64_t count : {0, 1, 7, 64, 65, 257, 1003}) {
      std::vector<std::vector<T>> bits(sources, std::vector<T>(count + 1));
      std::vector<const void*> from;
      const auto is_same = [&](T a, T b) {  // The sign of a NaN is not specified.
        return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(load(a)) && std::isnan(load(b)));
      };
      for (auto& source : bits) {
        for (T& value : source) value = store((random->Unit() - 0.5) * std::ldexp(1.0, random->Below(12)));
        from.push_back(source.data() + count % 2);
      }
      for (const Reduction reduction : {Reduction::kSum, Reduction::kAverage, Reduction::kProduct}) {
        SCOPED_TRACE(absl::StrCat(tensor::ToString(type), " ", ToString(reduction), " of ", sources, " x ", count));
        std::vector<T> scalar(count), vector(count + 16);
        void* const scalar_dsts[] = {scalar.data()};
        void* const vector_dsts[] = {vector.data() + 3};
        (*FindScalarTreeReduceFunction(type, reduction))(scalar_dsts, from, count, StoreKind::kCached);
        (*FindTreeReduceFunction(type, reduction))(vector_dsts, from, count,
                                                   count % 2 == 0 ? StoreKind::kStreaming : StoreKind::kCached);
        for (int64_t i = 0; i < count; ++i) {
          for (int k = 0; k < sources; ++k) values[k] = load(bits[k][i + count % 2]);
          Wide expected = TreeOf<Wide>(values, reduction == Reduction::kProduct);
          if (reduction == Reduction::kAverage) expected /= static_cast<Wide>(sources);
          const T stored = store(expected);
          ASSERT_TRUE(is_same(scalar[i], stored)) << "scalar, element " << i;
          ASSERT_TRUE(is_same(vector[i + 3], stored)) << "vector, element " << i;
        }
      }
    }
  }
}

template <ElementType kType>
void CheckSmallTrees() {
  using Codec = tensor::SmallFloat<kType>;
  CheckTrees<typename Codec::Storage>(kType, Codec::Decode,
                                      [](double value) { return Codec::Encode(static_cast<float>(value)); });
}

TEST(Reduce, TreesAreBalancedAndRoundOnce) {
  CheckTrees<float>(
      ElementType::kF32, [](float value) { return value; }, [](double value) { return static_cast<float>(value); });
  CheckTrees<double>(ElementType::kF64, [](double value) { return value; }, [](double value) { return value; });
  CheckSmallTrees<ElementType::kF16>();
  CheckSmallTrees<ElementType::kBF16>();
  CheckSmallTrees<ElementType::kF8E4M3FN>();
  CheckSmallTrees<ElementType::kF8E5M2>();
}

TEST(Reduce, TreesMayOverwriteASource) {
  for (int dst = 0; dst < 5; ++dst) {
    std::vector<std::vector<float>> operands(5, std::vector<float>(1000));
    std::vector<const void*> sources;
    for (int k = 0; k < 5; ++k) {
      for (int i = 0; i < 1000; ++i) operands[k][i] = static_cast<float>(i + k);
      sources.push_back(operands[k].data());
    }
    void* const dsts[] = {operands[dst].data()};
    (*FindTreeReduceFunction(ElementType::kF32, Reduction::kSum))(dsts, sources, 1000, StoreKind::kCached);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(operands[dst][i], static_cast<float>(5 * i + 10));
  }
}

TEST(Reduce, RefusesUnsupportedPairs) {
  EXPECT_THAT(std::string(FindReduceFunction(ElementType::kC64, Reduction::kMax).status().message()),
              HasSubstr("found a reduction by max of c64"));
  EXPECT_FALSE(FindReduceFunction(ElementType::kF32, Reduction::kAnd).ok());
  EXPECT_FALSE(FindReduceFunction(ElementType::kF32, Reduction::kNone).ok());
  EXPECT_FALSE(FindReduceFunction(ElementType::kF4E2M1FN, Reduction::kSum).ok());
}

}  // namespace
}  // namespace xlad::collectives
