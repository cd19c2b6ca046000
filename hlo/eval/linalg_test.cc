// dot, convolution, random bits, transforms, factorizations, batch normalization.
#include <cmath>
#include <random>

#include "hlo/eval/test_programs.h"

namespace xlad::hlo {
namespace {

using tensor::Array;
using tensor::ElementType;
using testing::Constant;
using testing::ExpectSame;
using testing::OneInstruction;
using testing::Program;

TEST(Dot, BatchesAndOrders) {
  const auto module = Program(R"(HloModule m
ENTRY e { a = s32[2,2,3] constant({{{1, 2, 3}, {4, 5, 6}}, {{7, 8, 9}, {1, 1, 1}}})
  b = s32[3,2] constant({{1, 0}, {0, 1}, {1, 1}})
  ROOT r = s32[2,2,2] dot(a, b), lhs_contracting_dims={2}, rhs_contracting_dims={0} })");
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("s32[2,2,2] {{{4, 5}, {10, 11}}, {{16, 17}, {2, 2}}}"), "dot");
}

// Without contraction: result[b, i, j] = x[i, b] * y[b, j].
TEST(Dot, BatchFirstThenFreeDimensions) {
  const auto module = Program(R"(HloModule m
ENTRY e { x = s32[3,2] constant({{1, 2}, {3, 4}, {5, 6}})
  y = s32[2,2] constant({{1, 10}, {2, 20}})
  ROOT r = s32[2,3,2] dot(x, y), lhs_batch_dims={1}, rhs_batch_dims={0}, lhs_contracting_dims={},
      rhs_contracting_dims={} })");
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("s32[2,3,2] {{{1, 10}, {3, 30}, {5, 50}}, {{4, 40}, {8, 80}, {12, 120}}}"), "dot");
}

// With bf16 operands and an f32 result, products are exact and not rounded to bf16.
TEST(Dot, MixedTypes) {
  const auto module = Program(R"(HloModule m
ENTRY e { a = bf16[1,3] constant({{256, 1, 1}})
  b = bf16[3,1] constant({{1}, {1}, {0.0078125}})
  wide = f32[1,1] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  narrow = bf16[1,1] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = s8[1,2] constant({{100, 100}})
  ints = s32[1,1] dot(c, c), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT t = (f32[1,1], bf16[1,1], s32[1,1]) tuple(wide, narrow, ints) })");
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(result->tuple[0], Constant("f32[1,1] {{257.0078125}}"), "f32");
  ExpectSame(result->tuple[1], Constant("bf16[1,1] {{258}}"), "bf16");
  ExpectSame(result->tuple[2], Constant("s32[1,1] {{20000}}"), "s32");
}

TEST(Convolution, GroupsAndDilations) {
  const auto one = OneInstruction("s32[1,4,1]", "convolution",
                                  {"s32[1,4,1] {{{1}, {2}, {3}, {4}}}", "s32[3,1,1] {{{1}}, {{10}}, {{100}}}"},
                                  ", window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f");
  auto result = testing::Run(*one);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("s32[1,4,1] {{{210}, {321}, {432}, {43}}}"), "plain");
  const auto reversed = OneInstruction("s32[1,4,1]", "convolution",
                                       {"s32[1,4,1] {{{1}, {2}, {3}, {4}}}", "s32[3,1,1] {{{1}}, {{10}}, {{100}}}"},
                                       ", window={size=3 pad=1_1 rhs_reversal=1}, dim_labels=b0f_0io->b0f");
  result = testing::Run(*reversed);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("s32[1,4,1] {{{12}, {123}, {234}, {340}}}"), "reversed");
  const auto grouped =
      OneInstruction("s32[1,1,4]", "convolution", {"s32[1,1,2] {{{3, 5}}}", "s32[1,1,4] {{{1, 2, 10, 20}}}"},
                     ", window={size=1}, dim_labels=b0f_0io->b0f, feature_group_count=2");
  result = testing::Run(*grouped);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("s32[1,1,4] {{{3, 6, 50, 100}}}"), "feature groups");
  const auto batched =
      OneInstruction("s32[1,1,2]", "convolution", {"s32[2,1,1] {{{3}}, {{5}}}", "s32[1,1,2] {{{1, 10}}}"},
                     ", window={size=1}, dim_labels=b0f_0io->b0f, batch_group_count=2");
  result = testing::Run(*batched);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("s32[1,1,2] {{{3, 50}}}"), "batch groups");
}

struct BitsRow {
  const char* algorithm;
  const char* shape;
  const char* state;     // The state that the instruction returns.
  const char* expected;  // Bits of XLA's CPU backend, for the initial state {0x200000001, 0xfffffffe00000003}.
};

const BitsRow kBits[] = {
    {"rng_three_fry", "u32[]", "u64[2] {8589934593, 18446744065119617028}", "u32[] 260263939"},
    {"rng_three_fry", "u32[5]", "u64[2] {8589934593, 18446744065119617030}",
     "u32[5] {260263939, 1050418440, 1402036482, 1504753450, 2988962254}"},
    {"rng_three_fry", "u32[3,3]", "u64[2] {8589934593, 18446744065119617033}",
     "u32[3,3] {{260263939, 1402036482, 2988962254}, {1050418440, 1504753450, 4105783307}, {3354290662, "
     "3192302460, 937827531}}"},
    {"rng_three_fry", "u32[2,3]", "u64[2] {8589934593, 18446744065119617030}",
     "u32[2,3] {{260263939, 1402036482, 2988962254}, {1050418440, 1504753450, 4105783307}}"},
    {"rng_three_fry", "u16[5]", "u64[2] {8589934593, 18446744065119617030}",
     "u16[5] {20483, 7432, 24834, 46890, 61902}"},
    {"rng_three_fry", "u64[3]", "u64[2] {8589934593, 18446744065119617030}",
     "u64[3] {4511512847175602179, 6462866857695207682, 17634205031016690126}"},
    {"rng_philox", "u32[5]", "u64[2] {8589934593, 18446744065119617029}",
     "u32[5] {1704382035, 3591659155, 545259185, 908315209, 891547067}"},
    {"rng_philox", "u64[3]", "u64[2] {8589934593, 18446744065119617029}",
     "u64[3] {15426058610808376915, 3901184117659664049, 17582319320017661371}"},
    {"rng_default", "u8[7]", "u64[2] {8589934593, 18446744065119617029}", "u8[7] {83, 147, 177, 73, 187, 68, 210}"},
};

TEST(RandomBits, EqualThoseOfXla) {
  for (const BitsRow& row : kBits) {
    const auto module =
        OneInstruction(std::string("(u64[2], ") + row.shape + ")", "rng-bit-generator",
                       {"u64[2] {8589934593, 18446744065119617027}"}, std::string(", algorithm=") + row.algorithm);
    const auto result = testing::Run(*module);
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectSame(result->tuple[0], Constant(row.state), row.shape);
    ExpectSame(result->tuple[1], Constant(row.expected), row.shape);
  }
}

// The 128-bit counter carries from its low word to its high word.
TEST(RandomBits, CounterCarriesIntoItsHighWord) {
  const auto bits = [](const std::string& state) {
    const auto module =
        OneInstruction("(u64[3], u32[4])", "rng-bit-generator", {"u64[3] " + state}, ", algorithm=rng_philox");
    return testing::Run(*module).value();
  };
  const Literal before = bits("{7, 18446744073709551615, 4}"), after = bits("{7, 0, 5}");
  ExpectSame(before.tuple[0], Constant("u64[3] {7, 0, 5}"), "state");
  EXPECT_NE(testing::Show(before.tuple[1]), testing::Show(after.tuple[1]));
  const auto both = OneInstruction("(u64[3], u32[8])", "rng-bit-generator", {"u64[3] {7, 18446744073709551615, 4}"},
                                   ", algorithm=rng_philox");
  const Literal eight = testing::Run(*both).value();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(eight.tuple[1].array.values<uint32_t>()[i], before.tuple[1].array.values<uint32_t>()[i]);
    EXPECT_EQ(eight.tuple[1].array.values<uint32_t>()[i + 4], after.tuple[1].array.values<uint32_t>()[i]);
  }
}

Array RandomDoubles(tensor::Dims dims, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Array array({ElementType::kF64, std::move(dims)});
  for (double& value : array.values<double>()) value = normal(random);
  return array;
}

// The inverse transform after the transform is the identity, for odd, prime, even and mixed lengths.
TEST(Fft, InverseRestoresTheInput) {
  for (const int64_t n : {1, 2, 3, 4, 6, 7, 8, 12, 17, 32, 60}) {
    const std::string text = std::to_string(n), half = std::to_string(n / 2 + 1);
    const auto module = Program("HloModule m\nENTRY e { x = f64[3," + text + "] parameter(0)\n  f = c128[3," + half +
                                "] fft(x), fft_type=RFFT, fft_length={3," + text + "}\n  ROOT r = f64[3," + text +
                                "] fft(f), fft_type=IRFFT, fft_length={3," + text + "} }");
    const Array input = RandomDoubles({3, n}, 3);
    const auto result = Evaluate(*module, {Literal(input)});
    ASSERT_TRUE(result.ok()) << result.status();
    for (size_t i = 0; i < static_cast<size_t>(3 * n); ++i) {
      EXPECT_NEAR(result->array.values<double>()[i], input.values<double>()[i], 1e-14) << n;
    }
  }
}

// L L^T = A, and solving with L and L^T recovers x from A x.
TEST(Linalg, CholeskyAndSolves) {
  const auto module = Program(R"(HloModule m
ENTRY e { g = f64[5,5] parameter(0)
  x = f64[5,2] parameter(1)
  gg = f64[5,5] dot(g, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  l = f64[5,5] cholesky(gg), lower=true
  ll = f64[5,5] dot(l, l), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  d = f64[5,5] subtract(gg, ll)
  b = f64[5,2] dot(gg, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f64[5,2] triangular-solve(l, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
  z = f64[5,2] triangular-solve(l, y), left_side=true, lower=true, transpose_a=TRANSPOSE
  u = f64[5,5] cholesky(gg), lower=false
  zt = f64[2,5] transpose(b), dimensions={1,0}
  v = f64[2,5] triangular-solve(u, zt), left_side=false, lower=false, transpose_a=NO_TRANSPOSE
  w = f64[2,5] triangular-solve(u, v), left_side=false, lower=false, transpose_a=TRANSPOSE
  ROOT t = (f64[5,5], f64[5,2], f64[2,5]) tuple(d, z, w) })");
  const Array x = RandomDoubles({5, 2}, 9);
  const auto result = Evaluate(*module, {Literal(RandomDoubles({5, 5}, 8)), Literal(x)});
  ASSERT_TRUE(result.ok()) << result.status();
  for (const double difference : result->tuple[0].array.values<double>()) EXPECT_NEAR(difference, 0, 1e-12);
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 2; ++j) {
      EXPECT_NEAR(result->tuple[1].array.values<double>()[i * 2 + j], x.values<double>()[i * 2 + j], 1e-8);
      EXPECT_NEAR(result->tuple[2].array.values<double>()[j * 5 + i], x.values<double>()[i * 2 + j], 1e-8);
    }
  }
}

// The factor has NaN from the first column whose diagonal element is not positive, and zeros in the other triangle.
TEST(Linalg, CholeskyOfMatricesThatAreNotPositiveDefinite) {
  constexpr int64_t kSize = 4;
  for (const double bad : {0.0, -0.0, -1.0, std::nan("")}) {
    for (int64_t at = 0; at < kSize; ++at) {
      for (const bool lower : {true, false}) {
        std::vector<double> a(kSize * kSize);
        for (int64_t i = 0; i < kSize; ++i) a[i * kSize + i] = i == at ? bad : 4;
        const auto module = Program(absl::StrCat("HloModule m\nENTRY e { a = f64[4,4] parameter(0)\n",
                                                 "  ROOT l = f64[4,4] cholesky(a), lower=", lower ? "true" : "false",
                                                 " }"));
        const auto result = Evaluate(*module, {Literal(Array::FromValues<double>(ElementType::kF64, {4, 4}, a))});
        ASSERT_TRUE(result.ok()) << result.status();
        for (int64_t i = 0; i < kSize; ++i) {
          for (int64_t j = 0; j < kSize; ++j) {
            const double found = result->array.values<double>()[i * kSize + j];
            if (lower ? j > i : j < i) {
              EXPECT_EQ(found, 0);
            } else if (std::min(i, j) >= at) {
              EXPECT_TRUE(std::isnan(found)) << bad << " at " << at << ": " << i << "," << j;
            } else {
              EXPECT_EQ(found, i == j ? 2 : 0);
            }
          }
        }
      }
    }
  }
}

// The gradient with respect to the batch agrees with finite differences of the training result.
TEST(BatchNorm, GradientIsTheDerivative) {
  const auto training = Program(R"(HloModule m
ENTRY e { x = f64[4,3] parameter(0)
  s = f64[3] parameter(1)
  o = f64[3] parameter(2)
  ROOT r = (f64[4,3], f64[3], f64[3]) batch-norm-training(x, s, o), epsilon=0.125, feature_index=1 })");
  const auto gradient = Program(R"(HloModule m
ENTRY e { x = f64[4,3] parameter(0)
  s = f64[3] parameter(1)
  m = f64[3] parameter(2)
  v = f64[3] parameter(3)
  g = f64[4,3] parameter(4)
  ROOT r = (f64[4,3], f64[3], f64[3]) batch-norm-grad(x, s, m, v, g), epsilon=0.125, feature_index=1 })");
  const Array x = RandomDoubles({4, 3}, 1), scale = RandomDoubles({3}, 2), offset = RandomDoubles({3}, 3);
  const Array grad = RandomDoubles({4, 3}, 4);
  const auto loss = [&](const Array& at) {
    const auto y = Evaluate(*training, {Literal(at), Literal(scale), Literal(offset)});
    double sum = 0;
    for (size_t i = 0; i < 12; ++i) sum += y->tuple[0].array.values<double>()[i] * grad.values<double>()[i];
    return sum;
  };
  const auto y = Evaluate(*training, {Literal(x), Literal(scale), Literal(offset)});
  ASSERT_TRUE(y.ok()) << y.status();
  const auto result = Evaluate(*gradient, {Literal(x), Literal(scale), y->tuple[1], y->tuple[2], Literal(grad)});
  ASSERT_TRUE(result.ok()) << result.status();
  for (size_t i = 0; i < 12; ++i) {
    Array up = x, down = x;
    up.values<double>()[i] += 1e-5;
    down.values<double>()[i] -= 1e-5;
    EXPECT_NEAR(result->tuple[0].array.values<double>()[i], (loss(up) - loss(down)) / 2e-5, 1e-7) << i;
  }
}

// Sums over no elements are zero, and means over none are NaN.
TEST(BatchNorm, WithoutElements) {
  const auto gradient = Program(R"(HloModule m
ENTRY e { x = f32[0,2] parameter(0)
  s = f32[2] constant({1, 2})
  v = f32[2] constant({3, 4})
  ROOT r = (f32[0,2], f32[2], f32[2]) batch-norm-grad(x, s, s, v, x), epsilon=0.125, feature_index=1 })");
  const auto result = Evaluate(*gradient, {Literal(Array({ElementType::kF32, {0, 2}}))});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tuple[0].array.shape().dims, (tensor::Dims{0, 2}));
  ExpectSame(result->tuple[1], Constant("f32[2] {0, 0}"), "gradient of the scale");
  ExpectSame(result->tuple[2], Constant("f32[2] {0, 0}"), "gradient of the offset");
  const auto training = Program(R"(HloModule m
ENTRY e { x = f32[0,2] parameter(0)
  s = f32[2] constant({1, 2})
  ROOT r = (f32[0,2], f32[2], f32[2]) batch-norm-training(x, s, s), epsilon=0.125, feature_index=1 })");
  const auto trained = Evaluate(*training, {Literal(Array({ElementType::kF32, {0, 2}}))});
  ASSERT_TRUE(trained.ok()) << trained.status();
  for (const size_t i : {1, 2}) {
    for (const float value : trained->tuple[i].array.values<float>()) EXPECT_TRUE(std::isnan(value));
  }
}

// Each group of rows equals a dot of its rows. A group ends at the last row, even if its size is larger.
TEST(RaggedDot, GroupsRows) {
  const auto module = Program(R"(HloModule m
ENTRY e { a = s32[3,1] constant({{1}, {2}, {3}})
  b = s32[2,1,2] constant({{{1, 10}}, {{100, 1000}}})
  n = s32[2] constant({1, 5})
  ROOT r = s32[3,2] ragged-dot(a, b, n), lhs_contracting_dims={1}, rhs_contracting_dims={1},
      lhs_ragged_dims={0}, rhs_group_dims={0} })");
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("s32[3,2] {{1, 10}, {200, 2000}, {300, 3000}}"), "ragged");
}

}  // namespace
}  // namespace xlad::hlo
