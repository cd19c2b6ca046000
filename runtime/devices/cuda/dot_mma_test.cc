// Dots of bf16 and f16 by xlad's kernels for tensor cores. The driver is its test double (tests/cuda_driver_double),
// which also finds races.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/devices/cuda/cuda_device_fixture.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

class DotMmaTest : public CudaLibraryOpTest {
 protected:
  void SetUp() override { Configure("races=1"); }

  int64_t Random(int64_t first, int64_t last) { return first + static_cast<int64_t>(random_() % (last - first + 1)); }
  // Writes `size` as a product of at most `most` random factors.
  std::vector<int64_t> Factors(int64_t size, int64_t most) {
    std::vector<int64_t> factors;
    while (std::ssize(factors) + 1 < most && Random(0, 1) == 0) {
      std::vector<int64_t> divisors;
      for (int64_t d = 2; d < size; ++d) {
        if (size % d == 0) divisors.push_back(d);
      }
      if (divisors.empty()) break;
      factors.push_back(divisors[Random(0, std::ssize(divisors) - 1)]);
      size /= factors.back();
    }
    factors.push_back(size);
    return factors;
  }

  struct Sizes {
    int64_t batch, m, n, k;
  };
  // The rows, columns and depths have up to 3 dimensions each. The dimensions of each operand are in random order,
  // except that rows and columns keep their order, because the result has them in this order.
  LibraryOp RandomDot(const Sizes& s, const DotTypes& types) {
    const std::vector<int64_t> m = Factors(s.m, 3), n = Factors(s.n, 3), k = Factors(s.k, 3);
    LibraryOp op;
    DotOp& dot = *op.mutable_dot();
    const auto place = [&](const std::vector<int64_t>& free, bool is_lhs) {
      std::vector<size_t> order(1 + k.size() + free.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random_);
      std::vector<int64_t> dims, k_at(k.size());
      int64_t batch_at = 0;
      size_t next_free = 0;
      for (const size_t i : order) {
        if (i == 0) batch_at = std::ssize(dims);
        if (i >= 1 && i <= k.size()) k_at[i - 1] = std::ssize(dims);
        dims.push_back(i == 0 ? s.batch : i <= k.size() ? k[i - 1] : free[next_free++]);
      }
      SetShape(is_lhs ? dot.mutable_lhs() : dot.mutable_rhs(), is_lhs ? types.lhs : types.rhs, dims);
      (is_lhs ? dot.mutable_lhs_batch() : dot.mutable_rhs_batch())->Add(batch_at);
      (is_lhs ? dot.mutable_lhs_contracting() : dot.mutable_rhs_contracting())->Assign(k_at.begin(), k_at.end());
    };
    place(m, true);
    place(n, false);
    std::vector<int64_t> result = {s.batch};
    result.insert(result.end(), m.begin(), m.end());
    result.insert(result.end(), n.begin(), n.end());
    SetShape(dot.mutable_result(), types.result, result);
    return op;
  }
};

constexpr ElementType kNarrow[] = {ElementType::kBF16, ElementType::kF16};

// The operands are small integers, so that results have the same bits as on the CPU.
TEST_F(DotMmaTest, RandomShapes) {
  const int64_t sides[] = {16, 17, 24, 30, 40, 63, 64, 65, 72, 96};
  const int64_t depths[] = {1, 2, 7, 8, 16, 24, 31, 32, 33, 40, 70};
  const int cases = std::getenv("XLAD_ALL_CASES") != nullptr ? 400 : 40;
  for (int i = 0; i < cases; ++i) {
    const Sizes s = {Random(1, 3), sides[Random(0, std::ssize(sides) - 1)], sides[Random(0, std::ssize(sides) - 1)],
                     depths[Random(0, std::ssize(depths) - 1)]};
    const ElementType type = kNarrow[i % 2], result = i % 3 == 0 ? ElementType::kF32 : type;
    const LibraryOp op = RandomDot(s, {type, type, result});
    const int64_t before = testing::MmaCount();
    Compare(op, op.dot());
    EXPECT_GT(testing::MmaCount(), before) << op.ShortDebugString();
  }
}

// Tests operands with either dimension contiguous, and sizes that are and are not multiples of 8.
TEST_F(DotMmaTest, MatricesInEveryOrder) {
  for (const int64_t extra : {0, 3}) {
    const int64_t m = 64 + extra, n = 80 + extra, k = 64 + extra;
    for (const ElementType type : kNarrow) {
      for (const bool lhs_transposed : {false, true}) {
        for (const bool rhs_transposed : {false, true}) {
          const std::vector<int64_t> lhs = lhs_transposed ? std::vector{k, m} : std::vector{m, k};
          const std::vector<int64_t> rhs = rhs_transposed ? std::vector{n, k} : std::vector{k, n};
          const LibraryOp op =
              MakeDot({lhs, rhs, {m, n}, {}, {lhs_transposed ? 0 : 1}, {rhs_transposed ? 1 : 0}}, {type, type, type});
          const int64_t before = testing::MmaCount();
          Compare(op, op.dot());
          // For each tile of 64 x 64 and each slice of 32, the 8 warps multiply 64 fragments of 16 x 8 x 16.
          const int64_t tiles = (extra == 0 ? 1 : 2) * 2, slices = extra == 0 ? 2 : 3;
          EXPECT_EQ(testing::MmaCount() - before, tiles * slices * 64);
        }
      }
    }
  }
}

// Products with many tiles have tiles of 128 x 128.
TEST_F(DotMmaTest, LargeTiles) {
  for (const ElementType type : kNarrow) {
    const LibraryOp op = MakeDot({{32, 130, 40}, {32, 129, 40}, {32, 130, 129}, {0}, {2}, {2}}, {type, type, type});
    const int64_t before = testing::MmaCount();
    Compare(op, op.dot());
    EXPECT_EQ(testing::MmaCount() - before, 32 * 4 * 2 * 256);
  }
}

// Dots of f32, of different types, and those with few rows or columns do not use tensor cores.
TEST_F(DotMmaTest, OtherDots) {
  const ElementType bf16 = ElementType::kBF16, f16 = ElementType::kF16, f32 = ElementType::kF32;
  const int64_t before = testing::MmaCount();
  for (const DotTypes& types : {DotTypes{f32, f32, f32}, DotTypes{bf16, f32, f32}, DotTypes{bf16, f16, f32}}) {
    const LibraryOp op = MakeDot({{20, 24}, {24, 18}, {20, 18}, {}, {1}, {0}}, types);
    Compare(op, op.dot());
  }
  const LibraryOp thin = MakeDot({{15, 24}, {24, 64}, {15, 64}, {}, {1}, {0}}, {bf16, bf16, bf16});
  Compare(thin, thin.dot());
  EXPECT_EQ(testing::MmaCount(), before);
}

// A sum of k products differs from the exact sum by at most k roundings to f32, each relative to the sum of the
// products' absolute values.
TEST_F(DotMmaTest, RandomValues) {
  const auto device = *Make();
  constexpr int64_t kM = 33, kN = 20, kK = 300;
  for (const ElementType type : kNarrow) {
    const LibraryOp op = MakeDot({{kM, kK}, {kK, kN}, {kM, kN}, {}, {1}, {0}}, {type, type, ElementType::kF32});
    std::vector<double> values[2];
    testing::Arrays inputs;
    for (const auto* shape : {&op.dot().lhs(), &op.dot().rhs()}) {
      std::vector<std::byte> bytes(Count(*shape) * 2);
      std::vector<double>& numbers = values[inputs.size()];
      for (int64_t i = 0; i < Count(*shape); ++i) {
        const float value =
            std::ldexp(static_cast<float>(random_() % 4001) - 2000, static_cast<int>(random_() % 8) - 14);
        const uint16_t bits = type == ElementType::kBF16 ? tensor::EncodeBf16(value)
                                                         : std::bit_cast<uint16_t>(static_cast<_Float16>(value));
        std::memcpy(bytes.data() + 2 * i, &bits, 2);
        numbers.push_back(type == ElementType::kBF16 ? tensor::DecodeBf16(bits)
                                                     : static_cast<float>(std::bit_cast<_Float16>(bits)));
      }
      inputs.push_back(std::move(bytes));
    }
    const auto found = RunOn(device.get(), op, inputs, kM * kN * 4);
    for (int64_t m = 0; m < kM; ++m) {
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < kK; ++k) {
          const double product = values[0][m * kK + k] * values[1][k * kN + n];
          sum += product, size += std::abs(product);
        }
        float x;
        std::memcpy(&x, found.data() + (m * kN + n) * 4, 4);
        ASSERT_NEAR(x, sum, size * kK * 0x1p-24) << m << " " << n;
      }
    }
  }
}

}  // namespace
}  // namespace xlad::runtime
