// Compares convolutions of all forms with a sum that is written directly from HLO's definition.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/testing/case_count.h"
#include "runtime/devices/cpu/library_op.h"
#include "tensor/array.h"

namespace xlad::runtime {
namespace {

using tensor::Dims;
using tensor::ElementType;

// One spatial dimension of a window.
struct W {
  int64_t size, stride = 1, low = 0, high = 0, dilation = 1, base = 1;
  bool reversal = false;
};

struct Case {
  std::string name;  // "b01f_01io->b01f"
  Dims lhs, rhs;
  std::vector<W> window;
  int64_t groups = 1;
};

int64_t Find(const std::string& labels, char label) { return static_cast<int64_t>(labels.find(label)); }

ConvolutionOp MakeOp(const Case& c, ElementType type, ElementType result_type) {
  ConvolutionOp op;
  const size_t n = c.window.size();
  const std::string in = c.name.substr(0, n + 2), kernel = c.name.substr(n + 3, n + 2), out = c.name.substr(2 * n + 7);
  op.set_input_batch(Find(in, 'b'));
  op.set_input_feature(Find(in, 'f'));
  op.set_kernel_input_feature(Find(kernel, 'i'));
  op.set_kernel_output_feature(Find(kernel, 'o'));
  op.set_output_batch(Find(out, 'b'));
  op.set_output_feature(Find(out, 'f'));
  op.set_feature_group_count(c.groups);
  Dims result(n + 2);
  result[op.output_batch()] = c.lhs[op.input_batch()];
  result[op.output_feature()] = c.rhs[op.kernel_output_feature()];
  for (size_t d = 0; d < n; ++d) {
    const char label = static_cast<char>('0' + d);
    op.add_input_spatial(Find(in, label));
    op.add_kernel_spatial(Find(kernel, label));
    op.add_output_spatial(Find(out, label));
    const W& w = c.window[d];
    auto* window = op.add_window();
    window->set_size(w.size);
    window->set_stride(w.stride);
    window->set_padding_low(w.low);
    window->set_padding_high(w.high);
    window->set_window_dilation(w.dilation);
    window->set_base_dilation(w.base);
    window->set_reversal(w.reversal);
    const int64_t base = (c.lhs[in.find(label)] - 1) * w.base + 1;
    result[out.find(label)] = (base + w.low + w.high - (w.size - 1) * w.dilation - 1) / w.stride + 1;
  }
  const auto set = [](ArrayShape* shape, ElementType element_type, const Dims& dims) {
    shape->set_element_type(static_cast<int>(element_type));
    shape->mutable_dims()->Add(dims.begin(), dims.end());
  };
  set(op.mutable_lhs(), type, c.lhs);
  set(op.mutable_rhs(), type, c.rhs);
  set(op.mutable_result(), result_type, result);
  return op;
}

// Values are multiples of 1/8. They are exact in bf16, and their sums are exact in f32.
std::vector<float> RandomValues(Random& random, int64_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random.Below(17)) - 8) / 8;
  return values;
}

std::vector<std::byte> Encode(const std::vector<float>& values, ElementType type) {
  const size_t width = tensor::ByteWidth(type);
  std::vector<std::byte> bytes(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) {
    // The upper two bytes of a little-endian f32 are its value in bf16.
    std::memcpy(&bytes[i * width], reinterpret_cast<const char*>(&values[i]) + 4 - width, width);
  }
  return bytes;
}

std::vector<double> Expected(const ConvolutionOp& op, const std::vector<float>& lhs, const std::vector<float>& rhs) {
  const Dims in(op.lhs().dims().begin(), op.lhs().dims().end()), kernel(op.rhs().dims().begin(), op.rhs().dims().end());
  const Dims out(op.result().dims().begin(), op.result().dims().end());
  std::vector<double> result(tensor::Product(out));
  const int64_t per_group = kernel[op.kernel_output_feature()] / op.feature_group_count();
  const int64_t features = kernel[op.kernel_input_feature()];
  Dims taps;
  for (const auto& w : op.window()) taps.push_back(w.size());
  taps.push_back(features);
  Dims o(out.size(), 0);
  do {
    double sum = 0;
    Dims t(taps.size(), 0), l(in.size()), r(kernel.size());
    do {
      const int64_t feature = o[op.output_feature()];
      l[op.input_batch()] = o[op.output_batch()];
      l[op.input_feature()] = feature / per_group * features + t.back();
      r[op.kernel_input_feature()] = t.back();
      r[op.kernel_output_feature()] = feature;
      bool inside = true;
      for (int d = 0; d < op.window_size(); ++d) {
        const auto& w = op.window(d);
        const size_t i = d;
        const int64_t at =
            o[op.output_spatial(d)] * w.stride() + t[i] * w.window_dilation() - w.padding_low();
        const size_t along = op.input_spatial(d);
        inside = inside && at >= 0 && at % w.base_dilation() == 0 && at / w.base_dilation() < in[along];
        l[along] = at / w.base_dilation();
        r[op.kernel_spatial(d)] = w.reversal() ? w.size() - 1 - t[i] : t[i];
      }
      if (inside) {
        sum += static_cast<double>(lhs[tensor::LinearIndex(in, l)]) *
               static_cast<double>(rhs[tensor::LinearIndex(kernel, r)]);
      }
    } while (tensor::NextIndex(taps, absl::MakeSpan(t)));
    result[tensor::LinearIndex(out, o)] = sum;
  } while (tensor::NextIndex(out, absl::MakeSpan(o)));
  return result;
}

// The values of the operands, and the result. They are the same for all types.
struct ConvolutionValues {
  std::vector<float> lhs, rhs;
  std::vector<double> expected;
};

ConvolutionValues ConvolutionValuesOf(const Case& c) {
  const std::unique_ptr<Random> random = SeededRandom(5);
  ConvolutionValues numbers;
  numbers.lhs = RandomValues(*random, tensor::Product(c.lhs));
  numbers.rhs = RandomValues(*random, tensor::Product(c.rhs));
  numbers.expected = Expected(MakeOp(c, ElementType::kF32, ElementType::kF32), numbers.lhs, numbers.rhs);
  return numbers;
}

void Check(const Case& c, const ConvolutionValues& numbers, ElementType type, ElementType result_type) {
  const ConvolutionOp op = MakeOp(c, type, result_type);
  const auto prepared = PrepareConvolution(op);
  ASSERT_TRUE(prepared.ok()) << prepared.status() << " " << op.ShortDebugString();
  std::vector<std::byte> l = Encode(numbers.lhs, type), r = Encode(numbers.rhs, type);
  const std::vector<double>& expected = numbers.expected;
  const size_t width = tensor::ByteWidth(result_type);
  std::vector<std::byte> out(expected.size() * width);
  std::vector<std::byte> of_one_thread;
  for (const int threads : {1, 2, 3, 7}) {
    ThreadTeam team(threads);
    const auto call = (*prepared)->MakeCall(threads);
    ASSERT_TRUE(call.ok()) << call.status();
    std::vector<char> scratch(static_cast<size_t>((*prepared)->scratch_bytes(threads)) + 64);
    char* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
    for (int again = 0; again < 2; ++again) {
      std::fill(out.begin(), out.end(), std::byte{0xff});
      const absl::Status status = (*call)->Run({l.data(), r.data(), out.data()}, aligned, team);
      ASSERT_TRUE(status.ok()) << status;
      if (of_one_thread.empty()) of_one_thread = out;
      ASSERT_TRUE(out == of_one_thread) << threads << " threads: the bits differ from those of one thread: "
                                        << (*prepared)->Description() << " " << op.ShortDebugString();
    }
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    float value = 0;
    std::memcpy(reinterpret_cast<char*>(&value) + 4 - width, &out[i * width], width);
    ASSERT_NEAR(value, expected[i], (width == 4 ? 1e-6 : 8e-3) * std::max(1.0, std::fabs(expected[i])))
        << (*prepared)->Description() << " element " << i << " " << op.ShortDebugString();
  }
}

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {"b01f_01io->b01f", {2, 9, 8, 5}, {3, 3, 5, 7}, {{3, 1, 1, 1}, {3, 1, 1, 1}}},
      {"b01f_01io->b01f", {2, 9, 8, 16}, {3, 3, 16, 32}, {{3, 2, 0, 1}, {3, 2, 0, 1}}},
      {"b01f_01io->b01f", {2, 8, 8, 16}, {1, 1, 16, 32}, {{1, 2, 0, 0}, {1, 2, 0, 0}}},
      {"b01f_01io->b01f", {2, 8, 8, 16}, {1, 1, 16, 32}, {{1, 2, 0, -1}, {1, 2, 0, -1}}},
      {"bf01_oi01->bf01", {2, 5, 9, 8}, {7, 5, 3, 2}, {{3, 1, 1, 0}, {2, 2, 1, 0}}},
      {"b0f_0io->b0f", {3, 11, 4}, {5, 4, 6}, {{5, 2, 2, 2}}},
      {"b012f_012io->b012f", {2, 4, 5, 6, 3}, {2, 3, 2, 3, 4}, {{2}, {3, 1, 1, 1}, {2, 2}}},
      {"b01f_01io->b01f", {2, 12, 12, 8}, {3, 3, 8, 8}, {{3, 1, 2, 2, 2}, {3, 1, 2, 2, 2}}},
      {"b01f_01io->b01f", {2, 9, 8, 6}, {3, 3, 3, 8}, {{3, 1, 1, 1}, {3, 1, 1, 1}}, 2},
      {"b01f_01io->b01f", {2, 9, 8, 6}, {3, 3, 1, 6}, {{3, 1, 1, 1}, {3, 1, 1, 1}}, 6},
      {"b01f_01io->b01f", {2, 9, 8, 5}, {3, 3, 5, 7}, {{3, 1, 1, 1, 1, 1, true}, {3, 1, 1, 1, 1, 1, true}}},
      // Gradients of the input, as JAX writes them.
      {"b01f_01oi->b01f", {2, 4, 4, 32}, {3, 3, 16, 32}, {{3, 1, 2, 1, 1, 2}, {3, 1, 2, 1, 1, 2}}},
      {"b01f_01oi->b01f", {2, 4, 4, 32}, {1, 1, 16, 32}, {{1, 1, 0, 1, 1, 2}, {1, 1, 0, 1, 1, 2}}},
      {"b01f_01oi->b01f", {2, 4, 4, 32}, {3, 3, 16, 32}, {{3, 1, 2, 1, 1, 2, true}, {3, 1, 2, 1, 1, 2, true}}},
      {"b0f_0io->b0f", {2, 5, 3}, {4, 3, 4}, {{4, 1, 3, 3, 1, 3}}},
      // Gradients of the kernel.
      {"f01b_i01o->01bf", {4, 8, 8, 16}, {4, 8, 8, 32}, {{8, 1, 1, 1}, {8, 1, 1, 1}}},
      {"f01b_i01o->01bf", {4, 8, 8, 16}, {4, 4, 4, 32}, {{4, 1, 0, 1, 2}, {4, 1, 0, 1, 2}}},
      {"f01b_i01o->01bf", {4, 8, 8, 16}, {4, 4, 4, 32}, {{4, 1, 0, -1, 2}, {4, 1, 0, -1, 2}}},
      // The input has enough features for code for AVX2 to compute the gradients in a different way.
      {"b01f_01oi->b01f", {1, 3, 3, 16}, {3, 3, 32, 16}, {{3, 1, 2, 1, 1, 2}, {3, 1, 2, 1, 1, 2}}},
      {"f01b_i01o->01bf", {2, 4, 4, 32}, {2, 4, 4, 16}, {{4, 1, 1, 1}, {4, 1, 1, 1}}},
      // Two tiles of 16 output features.
      {"f01b_i01o->01bf", {4, 8, 8, 32}, {4, 8, 8, 32}, {{8, 1, 1, 1}, {8, 1, 1, 1}}},
      // Few output features: the batch is divided into parts of 4, 4, 4, 4 and 2.
      {"f01b_i01o->01bf", {18, 12, 12, 16}, {18, 12, 12, 16}, {{12, 1, 1, 1}, {12, 1, 1, 1}}},
  };
  return *cases;
}

// By default, the results of convolutions of bf16 are bf16 and f32 in turn.
TEST(Convolution, EveryForm) {
  bool is_bf16 = false;
  for (const Case& c : Cases()) {
    const ConvolutionValues numbers = ConvolutionValuesOf(c);
    Check(c, numbers, ElementType::kF32, ElementType::kF32);
    is_bf16 = !is_bf16;
    if (AllCases() || is_bf16) Check(c, numbers, ElementType::kBF16, ElementType::kBF16);
    if (AllCases() || !is_bf16) Check(c, numbers, ElementType::kBF16, ElementType::kF32);
  }
}

TEST(Convolution, UsesFastImplementations) {
  for (const Case& c : Cases()) {
    const auto prepared = PrepareConvolution(MakeOp(c, ElementType::kF32, ElementType::kF32));
    ASSERT_TRUE(prepared.ok());
    if (std::getenv("XLAD_TEST_NAMES") != nullptr) std::printf("%s\n", (*prepared)->Description().c_str());
    EXPECT_EQ((*prepared)->Description().find("ref"), std::string::npos) << (*prepared)->Description() << c.name;
  }
}

TEST(Convolution, GradientsOfFewFeaturesAreDividedByBatch) {
  const Case& c = Cases().back();
  const auto description = [&](ElementType result) {
    return (*PrepareConvolution(MakeOp(c, result, result)))->Description();
  };
  EXPECT_NE(description(ElementType::kF32).find("5 tiles added"), std::string::npos) << description(ElementType::kF32);
  EXPECT_EQ(description(ElementType::kBF16).find("added"), std::string::npos) << "parts of bf16 are less exact";
}

// The case is as small as two tiles allow. Its results are compared by EveryForm.
TEST(Convolution, GradientsOfManyFeaturesAreDividedByFeatures) {
  const Case& c = Cases()[Cases().size() - 2];
  const auto prepared = PrepareConvolution(MakeOp(c, ElementType::kF32, ElementType::kF32));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const std::string description = (*prepared)->Description();
  EXPECT_NE(description.find(", 2 tiles"), std::string::npos) << description;
  EXPECT_EQ(description.find("added"), std::string::npos) << description;
}

// oneDNN's code for AVX2 is faster for blocks of features.
TEST(Convolution, GradientsInAvx2AreComputedInBlocks) {
  const auto description = [](const Case& c) {
    return (*PrepareConvolution(MakeOp(c, ElementType::kF32, ElementType::kF32)))->Description();
  };
  Case weights{"f01b_i01o->01bf", {4, 8, 8, 32}, {4, 8, 8, 48}, {{8, 1, 1, 1}, {8, 1, 1, 1}}};
  const Case input{"b01f_01oi->b01f", {2, 4, 4, 32}, {3, 3, 32, 32}, {{3, 1, 2, 1, 1, 2}, {3, 1, 2, 1, 1, 2}}};
  if (description(weights).find("avx2") == std::string::npos) GTEST_SKIP() << description(weights);
  EXPECT_NE(description(weights).find("lhs moved, rhs moved"), std::string::npos) << description(weights);
  EXPECT_NE(description(input).find("backward data"), std::string::npos) << description(input);
  EXPECT_NE(description(input).find("lhs moved"), std::string::npos) << description(input);
  weights.lhs[3] = 16;
  EXPECT_EQ(description(weights).find("lhs moved"), std::string::npos) << "few features: " << description(weights);
}

TEST(Convolution, RefusesShapesThatDoNotMatch) {
  const ConvolutionOp good = MakeOp(Cases()[0], ElementType::kF32, ElementType::kF32);
  const auto refused = [&](absl::StatusCode code, const std::function<void(ConvolutionOp*)>& change) {
    ConvolutionOp op = good;
    change(&op);
    const auto prepared = PrepareConvolution(op);
    EXPECT_EQ(prepared.status().code(), code) << prepared.status() << op.ShortDebugString();
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument, kUnimplemented = absl::StatusCode::kUnimplemented;
  refused(kInvalid, [](ConvolutionOp* op) { op->set_input_batch(3); });
  refused(kInvalid, [](ConvolutionOp* op) { op->set_input_batch(-1); });
  refused(kInvalid, [](ConvolutionOp* op) { op->set_input_batch(4); });
  refused(kInvalid, [](ConvolutionOp* op) { op->clear_window(); });
  refused(kInvalid, [](ConvolutionOp* op) { op->mutable_window(0)->set_stride(0); });
  refused(kInvalid, [](ConvolutionOp* op) { op->mutable_window(0)->set_size(2); });
  refused(kInvalid, [](ConvolutionOp* op) { op->set_feature_group_count(0); });
  refused(kInvalid, [](ConvolutionOp* op) { op->mutable_result()->set_dims(1, 3); });
  refused(kInvalid, [](ConvolutionOp* op) { op->mutable_rhs()->mutable_dims()->RemoveLast(); });
  refused(kUnimplemented, [](ConvolutionOp* op) { op->mutable_lhs()->set_element_type(4); });
  refused(kUnimplemented, [](ConvolutionOp* op) { op->mutable_window(0)->set_reversal(true); });
}

}  // namespace
}  // namespace xlad::runtime
