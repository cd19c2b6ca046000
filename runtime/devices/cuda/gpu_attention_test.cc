// Compares attention on a GPU with attention on the CPU, with a test double of the driver (tests/cuda_driver_double).
#include "runtime/devices/cuda/gpu_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/testing/case_count.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/devices/cpu/testing/attention_writer.h"
#include "runtime/devices/cuda/cuda_device.h"
#include "runtime/devices/cuda/driver.h"
#include "runtime/devices/cuda/gpu.h"
#include "runtime/devices/cuda/testing/driver_double.h"
#include "runtime/devices/cuda/testing/run_library_op.h"
#include "tensor/small_float.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;
using testing::Arrays;
using testing::AttentionSizes;
using testing::AttentionWriter;

class GpuAttentionTest : public ::testing::Test {
 protected:
  // Races between the threads of the kernels are errors.
  void SetUp() override { testing::ConfigureDriverDouble("races=1"); }
  void TearDown() override { testing::ConfigureDriverDouble(""); }

  std::vector<std::byte> RandomFloats(int64_t count, ElementType type = ElementType::kF32) {
    const int64_t width = tensor::ByteWidth(type);
    std::vector<std::byte> bytes(static_cast<size_t>(count * width));
    for (int64_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(random_->Below(2001)) / 1000 - 1;
      const uint16_t half = tensor::IsSmallFloat(type) ? tensor::EncodeSmallFloat(type, value) : 0;
      std::memcpy(bytes.data() + i * width, width == 2 ? static_cast<const void*>(&half) : &value, width);
    }
    return bytes;
  }
  Arrays Operands(const AttentionSizes& s, ElementType type = ElementType::kF32) {
    return {RandomFloats(s.batch * s.rows * s.depth, type), RandomFloats(s.batch * s.columns * s.depth, type),
            RandomFloats(s.batch * s.columns * s.width, type)};
  }

  // Whether the kernels compute the op.
  static bool HasKernel(const AttentionOp& attention) {
    const auto gpu = *cuda::Gpu::Open(*cuda::LoadDriver(XLAD_CUDA_DRIVER_DOUBLE), 0);
    const auto module = *cuda::CudaModule::Load(gpu, cuda::GpuAttention::Kernels(), "attention");
    const auto made = cuda::GpuAttention::Make(gpu, *module, attention);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() && *made != nullptr;
  }

  // Runs the op on the cpu device and on the GPU.
  void Compare(const AttentionOp& attention, const Arrays& operands, float tolerance) {
    LibraryOp op;
    *op.mutable_attention() = attention;
    std::vector<int64_t> result_bytes;
    for (const AttentionOp::Result& result : attention.results()) {
      result_bytes.push_back(tensor::ShapeFromWire(result.array().shape()).bytes());
    }
    const Arrays expected = testing::RunLibraryOp(MakeCpuDevice().get(), op, operands, result_bytes);
    const auto device = *MakeCudaDevice(*cuda::LoadDriver(XLAD_CUDA_DRIVER_DOUBLE));
    const Arrays found = testing::RunLibraryOp(device.get(), op, operands, result_bytes);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t r = 0; r < expected.size(); ++r) {
      const auto type = tensor::TypeFromWire(attention.results(static_cast<int>(r)).array().shape());
      const int64_t width = tensor::ByteWidth(type);
      for (int64_t i = 0; i < result_bytes[r] / width; ++i) {
        const float x = testing::FloatAt(found[r], i, type), y = testing::FloatAt(expected[r], i, type);
        ASSERT_EQ(std::isnan(x), std::isnan(y)) << "result " << r << " element " << i << ": " << x << " and " << y;
        if (std::isnan(x) || x == y) continue;
        ASSERT_FALSE(std::isinf(x) || std::isinf(y)) << "result " << r << " element " << i << ": " << x << " and " << y;
        ASSERT_NEAR(x, y, tolerance * (1 + std::abs(y))) << "result " << r << " element " << i;
      }
    }
  }

  const std::unique_ptr<Random> random_ = SeededRandom(1);
};

TEST_F(GpuAttentionTest, SoftmaxOfAnySizesAndBlocks) {
  std::vector<AttentionSizes> sizes = {{1, 1, 1, 1, 1}, {3, 7, 5, 3, 2}, {2, 21, 37, 17, 10}, {140, 2, 3, 2, 2}};
  if (AllCases()) sizes.push_back({2, 33, 37, 17, 20});
  int64_t position = 0;
  for (const AttentionSizes& s : sizes) {
    ++position;
    const Arrays operands = Operands(s);
    // If masked columns are not zero, the op detects it at run time and computes all columns.
    for (const float masked : {-1e30f, -std::numeric_limits<float>::infinity(), -0.5f}) {
      testing::ConfigureDriverDouble(masked == -1e30f ? "races=1" : "");
      for (const int64_t block_rows : {5, 18}) {
        if (!TriesCase(position++, 2)) continue;
        EXPECT_TRUE(HasKernel(AttentionWriter(s).Softmax(masked, block_rows, true)));
        SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.columns << ", masked " << masked << ", blocks of "
                                          << block_rows << " rows");
        Compare(AttentionWriter(s).Softmax(masked, block_rows, true), operands, 1e-5f);
      }
    }
  }
}

TEST_F(GpuAttentionTest, LargerOpsRunOnTheHost) {
  const AttentionSizes s = {2, 5, 6, 3, 4};
  AttentionWriter writer(s);
  EXPECT_TRUE(HasKernel(AttentionWriter(s).Softmax(-1e30f, 4, true)));
  int value = 0;
  for (int i = 0; i < 100; ++i) value = writer.Value(AttentionOp::NEGATE, {value});
  const AttentionOp long_op = writer.RowSum(value);
  EXPECT_FALSE(HasKernel(long_op));
  Compare(long_op, Operands(s), 1e-5f);
}

// Products by tensor cores have tiles of 16 rows, 8 columns or features and a depth of 16. Most sizes are not multiples
// of these. A result may differ by one rounding to bf16 or f16, because sums are in another order.
constexpr AttentionSizes kMmaSizes[] = {{1, 1, 1, 1, 1},    {2, 19, 21, 8, 5},  {1, 16, 32, 16, 64},
                                        {1, 17, 33, 17, 9}, {1, 5, 300, 3, 2},  {2, 21, 29, 20, 130},
                                        {140, 2, 3, 2, 2},  {1, 37, 45, 31, 70}};
constexpr std::pair<ElementType, float> kHalfTypes[] = {{ElementType::kBF16, 0x1p-8f}, {ElementType::kF16, 0x1p-11f}};

TEST_F(GpuAttentionTest, HalfTypesOfAnySizesAndBlocks) {
  std::vector<AttentionSizes> sizes(std::begin(kMmaSizes), std::end(kMmaSizes));
  if (AllCases()) sizes.insert(sizes.end(), {{3, 40, 29, 20, 130}, {1, 70, 70, 31, 70}});
  int64_t position = 0;
  for (const auto& [type, tolerance] : kHalfTypes) {
    const int64_t before = testing::MmaCount();
    for (const AttentionSizes& s : sizes) {
      ++position;
      for (const float masked : {-1e30f, -std::numeric_limits<float>::infinity(), -0.5f}) {
        if (!TriesCase(position++, 3)) continue;
        const int64_t block_rows = masked == -0.5f ? 5 : 18;
        SCOPED_TRACE(::testing::Message() << tensor::ToString(type) << " " << s.rows << " x " << s.columns << " depth "
                                          << s.depth << " width " << s.width << ", masked " << masked);
        Compare(AttentionWriter(s, type).Softmax(masked, block_rows, true), Operands(s, type), tolerance);
      }
    }
    EXPECT_GT(testing::MmaCount(), before + 1000);
  }
}

// All three products of attention use tensor cores.
TEST_F(GpuAttentionTest, NumbersOfProducts) {
  const AttentionSizes s = {3, 30, 50, 20, 28};
  for (const auto& [type, tolerance] : kHalfTypes) {
    const int64_t before = testing::MmaCount();
    Compare(AttentionWriter(s, type).Softmax(-1e30f, 16, false), Operands(s, type), tolerance);
    // The numbers of products in each of the 2 * 3 blocks of rows. A task of a warp is 32 columns of the scores, 8
    // features of the result, or 16 columns and 8 features of the sum over rows.
    const int64_t scores = 2 * 4 * 2, rows = 4 * 4, columns = 4 * 3;
    EXPECT_EQ(testing::MmaCount() - before, 2 * 3 * (scores + rows + columns));
  }
  const int64_t of_floats = testing::MmaCount();
  Compare(AttentionWriter(s).Softmax(-1e30f, 16, false), Operands(s), 1e-5f);
  EXPECT_EQ(testing::MmaCount(), of_floats);
}

// Dimensions of the operands in other orders, and an operand that all entries of the batch share.
TEST_F(GpuAttentionTest, HalfOperandsWithAnyStrides) {
  const AttentionSizes s = {3, 21, 35, 18, 11};
  const auto set = [](AttentionOp::Operand* operand, const std::vector<int64_t>& strides) {
    operand->mutable_strides()->Assign(strides.begin(), strides.end());
  };
  for (const bool features_outermost : {false, true}) {
    // The second type is used for the second order.
    const auto& [type, tolerance] = kHalfTypes[features_outermost ? 1 : 0];
    AttentionOp op = AttentionWriter(s, type).Softmax(-1e30f, 16, false);
    set(op.mutable_operands(0), {s.depth, s.batch * s.depth, 0, 1});
    set(op.mutable_operands(1), {0, 0, s.depth, 1});
    set(op.mutable_operands(2), {s.width, 0, s.batch * s.width, 1});
    set(op.mutable_results(0)->mutable_array(), {s.width, s.batch * s.width, 0, 1});
    if (features_outermost) {
      set(op.mutable_operands(0), {s.rows, 1, 0, s.batch * s.rows});
      set(op.mutable_operands(1), {s.columns, 0, 1, s.batch * s.columns});
      set(op.mutable_operands(2), {s.columns * s.width, 0, 1, s.columns});
      set(op.mutable_results(0)->mutable_array(), {s.rows * s.width, 1, 0, s.rows});
    }
    Compare(op, Operands(s, type), tolerance);
  }
}

// A NaN or an infinity of an operand reaches the same elements as on the CPU. Results that are too large for f16 are
// infinite, and subnormal numbers are kept.
TEST_F(GpuAttentionTest, SpecialValuesInHalfTypes) {
  const AttentionSizes s = {2, 21, 19, 12, 10};
  const std::pair<int, std::vector<int>> kSpecial[] = {{0, {0x7fc0, 0x7f80, 0xff80}},
                                                       {1, {0x7e00, 0x7c00, 0xfc00, 0x7bff, 0x0001, 0x83ff}}};
  int64_t position = 0;
  for (const auto& [number, specials] : kSpecial) {
    const auto& [type, tolerance] = kHalfTypes[number];
    const AttentionOp op = AttentionWriter(s, type).Softmax(-1e30f, 4, true);
    for (const int special : specials) {
      for (const size_t operand : {0, 1, 2}) {
        if (!TriesCase(position++, 2)) continue;
        SCOPED_TRACE(::testing::Message() << tensor::ToString(type) << " " << special << " in operand " << operand);
        Arrays operands = Operands(s, type);
        std::memcpy(operands[operand].data() + operands[operand].size() / 2 + 14, &special, 2);
        Compare(op, operands, tolerance);
      }
    }
  }
}

// If the softmax is not rounded, or rounded to a type other than that of the operands, only the product that computes
// the scores uses tensor cores.
TEST_F(GpuAttentionTest, HalfOperandsAndOtherValues) {
  const AttentionSizes s = {2, 19, 21, 8, 5};
  for (const auto& [type, tolerance] : kHalfTypes) {
    AttentionOp op = AttentionWriter(s, type).Softmax(-1e30f, 16, true), mixed = op;
    for (int r = 0; r < op.results_size(); ++r) {
      const AttentionOp::Value& value = op.values(op.results(r).value());
      if (value.opcode() == AttentionOp::CONVERT) op.mutable_results(r)->set_value(value.inputs(0));
      for (AttentionOp* each : {&op, &mixed}) {
        each->mutable_results(r)->mutable_array()->mutable_shape()->set_element_type(
            static_cast<int>(ElementType::kF32));
      }
    }
    const ElementType other = type == ElementType::kF16 ? ElementType::kBF16 : ElementType::kF16;
    for (AttentionOp::Value& value : *mixed.mutable_values()) {
      if (value.opcode() == AttentionOp::CONVERT) value.set_element_type(static_cast<int>(other));
    }
    const int64_t before = testing::MmaCount();
    Compare(op, Operands(s, type), 1e-5f);
    const int64_t of_scores = testing::MmaCount() - before;
    EXPECT_GT(of_scores, 0);
    Compare(mixed, Operands(s, type), other == ElementType::kBF16 ? 0x1p-8f : 0x1p-11f);
    EXPECT_EQ(testing::MmaCount() - before, 2 * of_scores);
  }
}

// Only the scores of the rows that thread blocks are computing are in memory, so twice the length needs at most twice
// the scratch memory.
TEST_F(GpuAttentionTest, ScratchGrowsWithTheLength) {
  const auto gpu = *cuda::Gpu::Open(*cuda::LoadDriver(XLAD_CUDA_DRIVER_DOUBLE), 0);
  const auto module = *cuda::CudaModule::Load(gpu, cuda::GpuAttention::Kernels(), "attention");
  int64_t bytes[2];
  for (const int64_t i : {0, 1}) {
    const int64_t length = 4096 << i;
    AttentionWriter writer({4, length, length, 64, 64}, ElementType::kBF16);
    bytes[i] = (*cuda::GpuAttention::Make(gpu, *module, writer.Softmax(-1e30f, 32, true)))->scratch_bytes();
  }
  EXPECT_LE(bytes[1], 2 * bytes[0]);
}

TEST_F(GpuAttentionTest, NansInOneRow) {
  const AttentionSizes s = {1, 20, 20, 4, 4};
  Arrays operands = Operands(s);
  const float nan = NAN;
  std::memcpy(operands[0].data() + 5 * 4 * sizeof(float), &nan, sizeof(nan));
  Compare(AttentionWriter(s).Softmax(-1e30f, 4, true), operands, 1e-5f);
}

// Applies each elementwise opcode to scores of different magnitudes, and sums the results over the columns.
TEST_F(GpuAttentionTest, ElementwiseOperations) {
  const AttentionSizes s = {1, 3, 40, 1, 1};
  Arrays operands = Operands(s);
  const float factors[] = {1, 1e-3f, 40};
  std::memcpy(operands[0].data(), factors, sizeof(factors));
  using Op = AttentionOp;
  for (const Op::Opcode opcode : {Op::ADD, Op::SUBTRACT, Op::MULTIPLY, Op::DIVIDE, Op::MAXIMUM, Op::MINIMUM, Op::NEGATE,
                                  Op::ABS, Op::EXP, Op::TANH, Op::LOG}) {
    SCOPED_TRACE(Op::Opcode_Name(opcode));
    AttentionWriter writer(s);
    const bool is_unary = opcode >= Op::NEGATE && opcode <= Op::LOG;
    const int other = writer.Constant(0.7f);
    const int value = writer.Value(opcode, is_unary ? std::vector<int>{0} : std::vector<int>{0, other});
    Compare(writer.RowSum(value), operands, 1e-5f);
  }
}

TEST_F(GpuAttentionTest, ComparisonsAndPositions) {
  const AttentionSizes s = {2, 6, 9, 1, 1};
  using Op = AttentionOp;
  for (const Op::Opcode opcode : {Op::EQUAL, Op::NOT_EQUAL, Op::GREATER, Op::GREATER_EQUAL, Op::LESS, Op::LESS_EQUAL}) {
    SCOPED_TRACE(Op::Opcode_Name(opcode));
    AttentionWriter writer(s);
    const int of_scores = writer.Value(opcode, {0, writer.Constant(0.1f)}, ElementType::kPred);
    const int rows = writer.Value(Op::ADD, {writer.Index(0), writer.Index(1)}, ElementType::kS32);
    const int of_positions = writer.Value(opcode, {rows, writer.Index(2)}, ElementType::kPred);
    const int negated = writer.Value(Op::NOT, {of_positions}, ElementType::kPred);
    const int both = writer.Value(Op::AND, {of_scores, writer.Value(Op::OR, {negated, of_scores}, ElementType::kPred)},
                                  ElementType::kPred);
    const int as_floats = writer.Value(Op::CONVERT, {both});
    const int selected = writer.Value(Op::SELECT, {of_positions, as_floats, 0});
    Compare(writer.RowSum(selected), Operands(s), 1e-5f);
  }
}

}  // namespace
}  // namespace xlad::runtime
