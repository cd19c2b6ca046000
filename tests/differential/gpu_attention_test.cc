// Attention in the forms that frameworks write, with gradients: the kernels for GPUs compute the same results as the
// cpu device. They run on a test double of the CUDA driver (tests/cuda_driver_double), which also finds races.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "absl/strings/str_replace.h"
#include "base/file_system.h"
#include "base/random.h"
#include "compiler/compile.h"
#include "hlo/text/text.h"
#include "hlo/wire/proto.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/devices/cuda/cuda_device.h"
#include "runtime/devices/cuda/driver.h"
#include "runtime/devices/cuda/testing/driver_double.h"
#include "runtime/devices/cuda/testing/run_library_op.h"
#include "tensor/element_type.h"
#include "tensor/small_float.h"
#include "tensor/wire.h"

namespace xlad {
namespace {

using runtime::testing::Arrays;
using runtime::testing::FloatAt;
using tensor::ElementType;

absl::StatusOr<Executable> WithAttentionOps(const std::string& text) {
  XLAD_ASSIGN_OR_RETURN(const auto module, hlo::ParseText(text));
  CompileRequest request;
  XLAD_ASSIGN_OR_RETURN(*request.mutable_partitioned_module(), hlo::SerializeProto(*module));
  compiler::CompileOptions options;
  options.attention = compiler::AttentionChoice::kAlways;
  XLAD_ASSIGN_OR_RETURN(compiler::CompileResult result, compiler::CompileWithListings(request, options, false));
  return std::move(result.executable);
}

// Floats are in [0.5, 1.5), because backward passes divide by the sums that they read.
std::vector<std::byte> RandomOperand(const ArrayShape& shape, Random* random) {
  const tensor::Shape whole = tensor::ShapeFromWire(shape);
  const ElementType type = whole.type;
  const int64_t width = tensor::ByteWidth(type);
  std::vector<std::byte> bytes(whole.bytes());
  for (int64_t i = 0; i < whole.elements(); ++i) {
    const float value = 0.5f + static_cast<float>(random->Below(1000)) / 1000;
    const uint16_t half = tensor::IsSmallFloat(type) ? tensor::EncodeSmallFloat(type, value) : 0;
    const auto number = static_cast<int32_t>(random->Below(2) * (type == ElementType::kPred ? 1 : 60));
    const void* const from = tensor::IsSmallFloat(type)  ? static_cast<const void*>(&half)
                             : type == ElementType::kF32 ? static_cast<const void*>(&value)
                                                         : static_cast<const void*>(&number);
    std::memcpy(bytes.data() + i * width, from, static_cast<size_t>(width));
  }
  return bytes;
}

class GpuAttentionForms : public ::testing::Test {
 protected:
  void SetUp() override { runtime::testing::ConfigureDriverDouble("races=1"); }
  void TearDown() override { runtime::testing::ConfigureDriverDouble(""); }

  // The differences are relative to the largest element of a result.
  void Compare(const LibraryOp& op) {
    Arrays operands;
    std::vector<int64_t> bytes;
    for (const auto& operand : op.attention().operands()) {
      operands.push_back(RandomOperand(operand.shape(), random_.get()));
    }
    for (const auto& result : op.attention().results()) {
      const ArrayShape& shape = result.array().shape();
      bytes.push_back(tensor::ShapeFromWire(shape).bytes());
    }
    const Arrays expected = runtime::testing::RunLibraryOp(runtime::MakeCpuDevice().get(), op, operands, bytes);
    const auto device = *runtime::MakeCudaDevice(*runtime::cuda::LoadDriver(XLAD_CUDA_DRIVER_DOUBLE));
    const Arrays found = runtime::testing::RunLibraryOp(device.get(), op, operands, bytes);
    for (size_t r = 0; r < expected.size(); ++r) {
      const ElementType type = tensor::TypeFromWire(op.attention().results(static_cast<int>(r)).array().shape());
      if (type != ElementType::kF32 && !tensor::IsSmallFloat(type)) {
        EXPECT_EQ(found[r], expected[r]) << "result " << r;
        continue;
      }
      const int64_t count = bytes[r] / tensor::ByteWidth(type);
      double largest = 0;
      for (int64_t i = 0; i < count; ++i) {
        const double y = std::abs(FloatAt(expected[r], i, type));
        if (std::isfinite(y)) largest = std::max(largest, y);
      }
      for (int64_t i = 0; i < count; ++i) {
        const float x = FloatAt(found[r], i, type), y = FloatAt(expected[r], i, type);
        if (x == y || (std::isnan(x) && std::isnan(y))) continue;
        ASSERT_NEAR(x, y, error_ * largest) << "result " << r << " element " << i;
      }
    }
  }

  const std::unique_ptr<Random> random_ = SeededRandom(1);
  // Compares each attention op of a program.
  void CompareAll(const std::string& text, bool uses_mma, double error) {
    error_ = error;
    const auto executable = WithAttentionOps(text);
    ASSERT_TRUE(executable.ok()) << executable.status();
    for (const LibraryOp& op : executable->library_ops()) {
      if (!op.has_attention()) continue;
      const int64_t before = runtime::testing::MmaCount();
      Compare(op);
      EXPECT_EQ(runtime::testing::MmaCount() > before, uses_mma);
      ++ops_;
    }
  }

  static std::string Program(const std::string& name) {
    const auto text = RealFileSystem().Read("tests/differential/testdata/attention/" + name + ".hlo");
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }

  int ops_ = 0;
  double error_ = 0;
};

// Causal masks, given masks, bias, grouped heads, dropout, and backward passes. In the variants in bf16, products use
// tensor cores.
TEST_F(GpuAttentionForms, ComputeTheSameOnGpuAndCpu) {
  const bool all = std::getenv("XLAD_ALL_CASES") != nullptr;
  std::vector<std::string> names = {"dpa_causal", "dpa_gqa", "dpa_bias", "handmade"};
  if (all)
    names.insert(names.end(), {"cross", "dpa", "dpa_mask", "dpa_window", "dropout", "flax", "log_sum_exp",
                               "merged_batch", "probs_used", "relative_bias", "remat", "softcap", "dpa_lengths"});
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string text = Program(name);
    CompareAll(absl::StrReplaceAll(text, {{"f32[", "bf16["}, {"3.40282347e+38", "3.38e+38"}}), true, 0x1p-7);
    if (all) CompareAll(text, false, 1e-5);
  }
  EXPECT_GE(ops_, 2 * static_cast<int>(names.size()));
}

// Programs that JAX and flax have exported in f16, with softmax in f16 or f32.
TEST_F(GpuAttentionForms, ComputeTheSameInF16) {
  std::vector<std::string> names = {"dpa_gqa_f16", "dropout_f16"};
  if (std::getenv("XLAD_ALL_CASES") != nullptr) {
    names.insert(names.end(), {"dpa_causal_f16", "flax_f16", "flax_wide_f16", "wide_softmax_f16"});
  }
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    CompareAll(Program(name), true, 0x1p-10);
  }
  EXPECT_EQ(ops_, 2 * static_cast<int>(names.size()));
}

}  // namespace
}  // namespace xlad
