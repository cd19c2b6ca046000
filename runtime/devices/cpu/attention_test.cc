// Compares attention and its loops with sums in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/random.h"
#include "runtime/devices/cpu/attention_program.h"
#include "runtime/devices/cpu/library_op.h"
#include "runtime/devices/cpu/testing/attention_writer.h"
#include "tensor/element_type.h"
#include "tensor/small_float.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;

float Uniform(Random& random) { return static_cast<float>(random.Below(2001)) / 1000 - 1; }

std::vector<float> Floats(Random& random, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = Uniform(random);
  return values;
}

TEST(AttentionKernels, ProductsOfAllSizes) {
  const AttentionKernels& kernels = AttentionKernelsOfCpu();
  const auto random = SeededRandom(1);
  for (const int64_t m : {1, 2, 5, 6, 7, 11, 12, 13, 25, 48}) {
    for (const int64_t k : {0, 1, 3, 64, 255, 256, 257, 600}) {
      const int64_t n = kernels.lanes * static_cast<int64_t>(1 + random->Below(6));
      const bool transposed = random->Below(2) == 0, add = random->Below(2) == 0;
      const std::vector<float> a = Floats(*random, m * k + 1), b = Floats(*random, n * k + 1);
      std::vector<float> c = Floats(*random, m * n), before = c;
      std::vector<float> panels(static_cast<size_t>((n + kernels.panel) * (k + 1)) + 64);
      float* aligned = panels.data();
      while (reinterpret_cast<uintptr_t>(aligned) % 64 != 0) ++aligned;
      for (int64_t l = 0; l < k; ++l) {
        for (int64_t j = 0; j < n; ++j) {
          aligned[j / kernels.panel * kernels.panel * k + l * kernels.panel + j % kernels.panel] = b[l * n + j];
        }
      }
      TileProduct product;
      product.a = a.data();
      product.a_row = transposed ? 1 : k;
      product.a_depth = transposed ? m : 1;
      product.b = aligned;
      product.b_panel = kernels.panel * k;
      product.b_row = kernels.panel;
      product.c = c.data();
      product.c_row = n;
      product.m = m, product.n = n, product.k = k;
      product.add = add;
      kernels.multiply(product);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = add ? before[i * n + j] : 0;
          for (int64_t l = 0; l < k; ++l) sum += double{a[i * product.a_row + l * product.a_depth]} * b[l * n + j];
          ASSERT_NEAR(c[i * n + j], sum, 1e-4) << m << " " << n << " " << k << " at " << i << "," << j;
        }
      }
    }
  }
}

// The result of an operation on one row. An input of one element is narrow.
std::vector<float> Applied(RowOpcode opcode, std::vector<std::vector<float>> inputs) {
  RowOperation operation{opcode, {}, nullptr};
  size_t count = 1;
  for (const std::vector<float>& input : inputs) count = std::max(count, input.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    const bool narrow = inputs[k].size() == 1;
    inputs[k].resize(count + 32);
    operation.inputs[k] = {inputs[k].data(), narrow, 0};
  }
  std::vector<float> result(count + 32);
  operation.result = result.data();
  AttentionKernelsOfCpu().apply(operation, static_cast<int64_t>(count));
  result.resize(count);
  return result;
}

TEST(AttentionKernels, ExponentialIsAccurate) {
  std::vector<float> x;
  for (float at = -110; at < 92; at += 0.00371f) x.push_back(at);
  const std::vector<float> found = Applied(RowOpcode::kExp, {x});
  for (size_t i = 0; i < x.size(); ++i) {
    const float expected = static_cast<float>(std::exp(double{x[i]}));
    if (std::isinf(expected)) {
      EXPECT_EQ(found[i], expected) << x[i];
    } else {
      EXPECT_NEAR(found[i], expected, expected * 1.3e-7 + 1.2e-38) << x[i];
    }
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x_special = {-kInfinity, kInfinity, NAN, 0.0f, -0.0f, -3e38f, 3e38f};
  const std::vector<float> special = Applied(RowOpcode::kExp, {x_special});
  EXPECT_EQ(special[0], 0);
  EXPECT_EQ(special[1], kInfinity);
  EXPECT_TRUE(std::isnan(special[2]));
  EXPECT_EQ(special[3], 1);
  EXPECT_EQ(special[4], 1);
  EXPECT_EQ(special[5], 0);
  EXPECT_EQ(special[6], kInfinity);
}

TEST(AttentionKernels, NansPropagate) {
  EXPECT_TRUE(std::isnan(Applied(RowOpcode::kMaximum, {{NAN, 1}, {1, NAN}})[0]));
  EXPECT_TRUE(std::isnan(Applied(RowOpcode::kMaximum, {{NAN, 1}, {1, NAN}})[1]));
  EXPECT_TRUE(std::isnan(Applied(RowOpcode::kMinimum, {{NAN, 1}, {1, NAN}})[1]));
  EXPECT_TRUE(std::isnan(Applied(RowOpcode::kRoundToBf16, {{NAN, 1}})[0]));
  const AttentionKernels& kernels = AttentionKernelsOfCpu();
  for (const int64_t count : {1, 3, 16, 17, 64, 65, 300}) {
    std::vector<float> row(static_cast<size_t>(count), -2.0f);
    EXPECT_EQ(kernels.row_max(row.data(), count), -2);
    EXPECT_EQ(kernels.row_sum(row.data(), count), -2 * static_cast<float>(count));
    row[static_cast<size_t>(count) / 2] = NAN;
    EXPECT_TRUE(std::isnan(kernels.row_max(row.data(), count))) << count;
    EXPECT_TRUE(std::isnan(kernels.row_sum(row.data(), count))) << count;
  }
}

// Rounds numbers halfway between neighbors of each type, numbers just beside them, and special values.
TEST(AttentionKernels, RoundingToHalfTypesHasTheBitsOfTheCodec) {
  for (const ElementType type : {ElementType::kBF16, ElementType::kF16}) {
    std::vector<float> x = {NAN, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            1e-45f, 3e38f, -3e38f};
    for (int bits = 0; bits < 1 << 16; ++bits) {
      const float low = tensor::DecodeSmallFloat(type, static_cast<uint16_t>(bits));
      const float high = tensor::DecodeSmallFloat(type, static_cast<uint16_t>(bits ^ 1));
      if (!std::isfinite(low)) continue;
      const float middle = std::isfinite(high) ? low / 2 + high / 2 : low * 1.001f;
      x.insert(x.end(), {low, middle, std::nextafter(middle, low), std::nextafter(middle, high)});
    }
    const bool is_bf16 = type == ElementType::kBF16;
    const auto found = Applied(is_bf16 ? RowOpcode::kRoundToBf16 : RowOpcode::kRoundToF16, {x});
    for (size_t i = 0; i < x.size(); ++i) {
      const float expected = tensor::DecodeSmallFloat(type, tensor::EncodeSmallFloat(type, x[i]));
      ASSERT_EQ(std::isnan(found[i]), std::isnan(expected)) << x[i];
      if (std::isnan(expected)) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected)) << x[i];
    }
  }
}

TEST(AttentionKernels, RowsAreDividedByOneNumber) {
  for (const float divisor : {3.0f, 0.0f, -7.5f, 1e-42f, 3e38f, std::numeric_limits<float>::infinity()}) {
    const std::vector<float> x = {0, 1, -2.5f, 1e-40f, 3e38f, NAN, std::numeric_limits<float>::infinity()};
    const std::vector<float> found = Applied(RowOpcode::kDivide, {x, {divisor}});
    for (size_t i = 0; i < x.size(); ++i) {
      const float expected = x[i] / divisor;
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(found[i])) << x[i] << " / " << divisor;
      } else if (std::isinf(expected)) {
        EXPECT_EQ(found[i], expected) << x[i] << " / " << divisor;
      } else {
        EXPECT_NEAR(found[i], expected, std::abs(expected) * 1.2e-7 + 1.5e-45) << x[i] << " / " << divisor;
      }
    }
  }
}

using Sizes = testing::AttentionSizes;
using Writer = testing::AttentionWriter;
using Results = std::vector<std::vector<float>>;

Results RunOp(const AttentionOp& op, const Sizes& s, Results inputs, int threads) {
  auto prepared = PrepareAttention(op);
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  if (!prepared.ok()) return {};
  ThreadTeam team(threads);
  auto call = (*prepared)->MakeCall(threads);
  EXPECT_TRUE(call.ok());
  std::vector<char> memory(static_cast<size_t>((*prepared)->scratch_bytes(threads)) + 64);
  char* scratch = memory.data();
  while (reinterpret_cast<uintptr_t>(scratch) % 64 != 0) ++scratch;
  Results results(3);
  results[0].resize(static_cast<size_t>(s.batch * s.rows * s.width), NAN);
  results[1].resize(static_cast<size_t>(s.batch * s.columns * s.depth), NAN);
  results[2].resize(static_cast<size_t>(s.batch * s.rows), NAN);
  std::vector<void*> buffers;
  for (auto& input : inputs) buffers.push_back(input.data());
  for (auto& result : results) buffers.push_back(result.data());
  EXPECT_EQ((*prepared)->buffer_count(), buffers.size());
  EXPECT_TRUE((*call)->Run(buffers, scratch, team).ok());
  return results;
}

Results Expected(const Sizes& s, const Results& inputs, float masked) {
  Results results(3);
  results[0].resize(static_cast<size_t>(s.batch * s.rows * s.width));
  std::vector<double> sums(static_cast<size_t>(s.batch * s.columns * s.depth));
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t r = 0; r < s.rows; ++r) {
      std::vector<double> e(static_cast<size_t>(s.columns));
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t c = 0; c < s.columns; ++c) {
        for (int64_t f = 0; f < s.depth; ++f) {
          e[c] += double{inputs[0][(b * s.rows + r) * s.depth + f]} * inputs[1][(b * s.columns + c) * s.depth + f];
        }
        if (r < c) e[c] = masked;
        largest = std::max(largest, e[c]);
      }
      for (double& x : e) sum += x = std::exp(x - largest);
      results[2].push_back(static_cast<float>(sum));
      for (int64_t c = 0; c < s.columns; ++c) {
        for (int64_t w = 0; w < s.width; ++w) {
          results[0][(b * s.rows + r) * s.width + w] +=
              static_cast<float>(e[c] / sum * inputs[2][(b * s.columns + c) * s.width + w]);
        }
        for (int64_t f = 0; f < s.depth; ++f) {
          sums[(b * s.columns + c) * s.depth + f] += e[c] / sum * inputs[0][(b * s.rows + r) * s.depth + f];
        }
      }
    }
  }
  results[1].assign(sums.begin(), sums.end());
  return results;
}

TEST(Attention, AnySizesBlocksAndThreads) {
  const auto random = SeededRandom(3);
  const Sizes sizes[] = {
      {1, 1, 1, 1, 1}, {3, 7, 5, 3, 2}, {2, 33, 65, 16, 40}, {5, 130, 97, 33, 8}, {1, 500, 300, 64, 64}};
  for (const Sizes& s : sizes) {
    Results inputs = {Floats(*random, s.batch * s.rows * s.depth), Floats(*random, s.batch * s.columns * s.depth),
                      Floats(*random, s.batch * s.columns * s.width)};
    // If masked scores are -0.5, the weights of their columns are not zero. The op detects this at run time and then
    // computes all columns.
    for (const float masked : {-1e30f, -std::numeric_limits<float>::infinity(), -0.5f}) {
      const Results expected = Expected(s, inputs, masked);
      for (const int64_t block_rows : {1, 5, 12, 48}) {
        Results first;
        for (const int threads : {1, 2, 3, 7}) {
          const AttentionOp op = Writer(s).Softmax(masked, block_rows, true);
          const Results found = RunOp(op, s, inputs, threads);
          if (threads == 1) first = found;
          EXPECT_EQ(found, first) << "the bits depend on the number of threads";
        }
        ASSERT_EQ(first.size(), expected.size());
        for (size_t r = 0; r < expected.size(); ++r) {
          ASSERT_EQ(first[r].size(), expected[r].size());
          for (size_t i = 0; i < expected[r].size(); ++i) {
            ASSERT_TRUE(std::isfinite(expected[r][i]));  // An infinite tolerance would accept everything.
            ASSERT_NEAR(first[r][i], expected[r][i], 1e-4 * (1 + std::abs(expected[r][i])))
                << "result " << r << " element " << i << " masked " << masked << " blocks of " << block_rows;
          }
        }
      }
    }
  }
}

// A NaN among the scores of one row must not change the results of other rows.
TEST(Attention, NansInOneRowDoNotChangeOtherRows) {
  const Sizes s = {1, 20, 20, 4, 4};
  const auto random = SeededRandom(4);
  Results inputs = {Floats(*random, 80), Floats(*random, 80), Floats(*random, 80)};
  inputs[0][5 * 4] = NAN;
  const Results found = RunOp(Writer(s).Softmax(-1e30f, 4, true), s, inputs, 1);
  for (int64_t r = 0; r < s.rows; ++r) EXPECT_EQ(std::isnan(found[0][r * 4]), r == 5) << r;
}

TEST(Attention, WrongDescriptorsAreRefused) {
  const Sizes s = {2, 8, 8, 4, 4};
  const AttentionOp good = Writer(s).Softmax(-1e30f, 4, true);
  ASSERT_TRUE(PrepareAttention(good).ok());
  const auto refused = [&](const auto& change) {
    AttentionOp op = good;
    change(&op);
    return PrepareAttention(op).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](AttentionOp* op) { op->set_columns(9); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->set_columns(0); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->set_block_rows(3); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->set_block_columns(0, 9); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->mutable_operands(0)->set_strides(1, 1000); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->mutable_operands(0)->set_strides(1, -1); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->mutable_operands(1)->mutable_shape()->set_element_type(1); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->mutable_values(0)->set_operands(1, 7); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->mutable_values(5)->set_inputs(1, 40); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->mutable_values(0)->set_depth(64); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->mutable_values(3)->set_opcode(AttentionOp::DIVIDE); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->mutable_results(0)->set_width(100); }));
  EXPECT_TRUE(refused([](AttentionOp* op) { op->mutable_results(2)->set_value(0); }));
  const auto with_type = [&](ElementType type) {
    return [type](AttentionOp* op) { op->mutable_values(0)->set_element_type(static_cast<int>(type)); };
  };
  EXPECT_FALSE(refused(with_type(ElementType::kF32)));
  for (const ElementType type : {ElementType::kS32, ElementType::kPred, ElementType::kF64, ElementType::kInvalid}) {
    EXPECT_TRUE(refused(with_type(type))) << tensor::ToString(type);
  }
}

// Products read the elements of a block of rows. A column's index has one row, which is the same for all rows.
TEST(Attention, ProductsOfIndicesAndOfOtherTypesAreRefused) {
  const Sizes s = {2, 8, 8, 4, 4};
  const auto product_of = [&](const auto& add_value) {
    Writer writer(s);
    const int value = add_value(&writer);
    AttentionOp op = writer.Softmax(-1e30f, 4, false);
    for (int r = 0; r < 2; ++r) op.mutable_results(r)->set_value(value);
    return PrepareAttention(op).status();
  };
  EXPECT_TRUE(product_of([](Writer* writer) { return writer->Value(AttentionOp::EXP, {0}); }).ok());
  const absl::Status index = product_of([](Writer* writer) { return writer->Index(2); });
  EXPECT_TRUE(absl::IsInvalidArgument(index)) << index;
  const absl::Status integers = product_of([](Writer* writer) {
    const int columns = writer->Index(2);
    return writer->Value(AttentionOp::ADD, {columns, columns}, ElementType::kS32);
  });
  EXPECT_TRUE(absl::IsInvalidArgument(integers)) << integers;
  const absl::Status booleans = product_of([](Writer* writer) {
    return writer->Value(AttentionOp::GREATER, {0, writer->Constant(0)}, ElementType::kPred);
  });
  EXPECT_TRUE(absl::IsInvalidArgument(booleans)) << booleans;
  const absl::Status constant = product_of([](Writer* writer) { return writer->Constant(1); });
  EXPECT_TRUE(absl::IsInvalidArgument(constant)) << constant;
}

}  // namespace
}  // namespace xlad::runtime
