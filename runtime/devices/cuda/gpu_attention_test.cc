// Compares attention on a GPU with attention on the CPU, with a test double of the driver (tests/cuda_driver_double).
#include "runtime/devices/cuda/gpu_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/random.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/devices/cpu/testing/attention_writer.h"
#include "runtime/devices/cuda/cuda_device.h"
#include "runtime/devices/cuda/driver.h"
#include "runtime/devices/cuda/gpu.h"
#include "runtime/devices/cuda/testing/run_library_op.h"
#include "tensor/small_float.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;
using testing::Arrays;
using testing::AttentionSizes;
using testing::AttentionWriter;

class GpuAttentionTest : public ::testing::Test {
 protected:
  std::vector<std::byte> RandomFloats(int64_t count, ElementType type = ElementType::kF32) {
    const int64_t width = tensor::ByteWidth(type);
    std::vector<std::byte> bytes(static_cast<size_t>(count * width));
    for (int64_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(random_->Below(2001)) / 1000 - 1;
      const uint16_t bf16 = tensor::EncodeBf16(value);
      std::memcpy(bytes.data() + i * width, type == ElementType::kBF16 ? static_cast<const void*>(&bf16) : &value,
                  width);
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
      const auto type = static_cast<ElementType>(result.array().shape().element_type());
      int64_t bytes = tensor::ByteWidth(type);
      for (const int64_t size : result.array().shape().dims()) bytes *= size;
      result_bytes.push_back(bytes);
    }
    const Arrays expected = testing::RunLibraryOp(MakeCpuDevice().get(), op, operands, result_bytes);
    const auto device = *MakeCudaDevice(*cuda::LoadDriver(XLAD_CUDA_DRIVER_DOUBLE));
    const Arrays found = testing::RunLibraryOp(device.get(), op, operands, result_bytes);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t r = 0; r < expected.size(); ++r) {
      const auto type = static_cast<ElementType>(attention.results(static_cast<int>(r)).array().shape().element_type());
      const int64_t width = tensor::ByteWidth(type);
      for (int64_t i = 0; i < result_bytes[r] / width; ++i) {
        const float x = FloatAt(found[r], i, type), y = FloatAt(expected[r], i, type);
        ASSERT_EQ(std::isnan(x), std::isnan(y)) << "result " << r << " element " << i << ": " << x << " and " << y;
        if (std::isnan(x) || x == y) continue;
        ASSERT_NEAR(x, y, tolerance * (1 + std::abs(y))) << "result " << r << " element " << i;
      }
    }
  }

  static float FloatAt(const std::vector<std::byte>& bytes, int64_t i, ElementType type) {
    if (type == ElementType::kBF16) {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + i * 2, 2);
      return tensor::DecodeBf16(bits);
    }
    float value;
    std::memcpy(&value, bytes.data() + i * 4, 4);
    return value;
  }

  const std::unique_ptr<Random> random_ = SeededRandom(1);
};

TEST_F(GpuAttentionTest, SoftmaxOfAnySizesAndBlocks) {
  const AttentionSizes sizes[] = {{1, 1, 1, 1, 1}, {3, 7, 5, 3, 2}, {2, 33, 37, 17, 20}, {140, 2, 3, 2, 2}};
  for (const AttentionSizes& s : sizes) {
    const Arrays operands = Operands(s);
    // If masked columns are not zero, the op detects it at run time and computes all columns.
    for (const float masked : {-1e30f, -std::numeric_limits<float>::infinity(), -0.5f}) {
      for (const int64_t block_rows : {5, 18}) {
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

TEST_F(GpuAttentionTest, OperandsAndResultsInBf16) {
  const AttentionSizes s = {2, 19, 21, 8, 5};
  Compare(AttentionWriter(s, ElementType::kBF16).Softmax(-1e30f, 16, true), Operands(s, ElementType::kBF16), 1e-2f);
}

TEST_F(GpuAttentionTest, NansInOneRow) {
  const AttentionSizes s = {1, 20, 20, 4, 4};
  Arrays operands = Operands(s);
  const float nan = NAN;
  std::memcpy(operands[0].data() + 5 * 4 * sizeof(float), &nan, sizeof(nan));
  Compare(AttentionWriter(s).Softmax(-1e30f, 4, true), operands, 1e-5f);
}

// Applies each elementwise opcode to scores that contain numbers of all sizes, and sums the results over the columns.
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
