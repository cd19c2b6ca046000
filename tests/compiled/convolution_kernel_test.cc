// Convolutions that are not library ops: of random shapes, windows, groups, layouts and element types.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/testing/case_count.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

struct WindowText {
  std::vector<std::string> sizes, strides, padding, base_dilation, window_dilation, reversal;
};

// The sizes, layout and window of a convolution.
class RandomConvolution {
 public:
  RandomConvolution(Random* random, const std::string& operand, const std::string& result)
      : random_(*random), operand_(operand), result_(result) {}

  std::string Text() {
    const int64_t spatial = Below(3), groups = Below(2) == 0 ? 1 : 2 + Below(2);
    const bool by_batch = Below(3) == 0;
    const int64_t batch = (by_batch ? groups : 1) * (1 + Below(4));
    const int64_t in = 1 + Below(9), out = groups * (1 + Below(3) * 5 + Below(4));
    std::vector<int64_t> image, window, output;
    for (int64_t d = 0; d < spatial; ++d) AddSpatial(&image, &window, &output);
    const int64_t in_all = by_batch ? in : in * groups;
    const bool channels_first = Below(2) == 0;
    const std::string text = absl::StrCat(
        "HloModule m\nENTRY e {\n x = ", Shape(operand_, batch, in_all, image, channels_first), " parameter(0)\n y = ",
        Shape(operand_, out, in, window, channels_first), " parameter(1)\n ROOT r = ",
        Shape(result_, batch / (by_batch ? groups : 1), out, output, channels_first), " convolution(x, y), ",
        spatial == 0 ? "" : WindowOf(), "dim_labels=", Labels("b", "f", spatial, channels_first), "_",
        Labels("o", "i", spatial, channels_first), "->", Labels("b", "f", spatial, channels_first),
        ", feature_group_count=", by_batch ? 1 : groups, ", batch_group_count=", by_batch ? groups : 1, "\n}\n");
    return text;
  }

 private:
  int64_t Below(int64_t limit) { return static_cast<int64_t>(random_.Below(static_cast<uint64_t>(limit))); }

  void AddSpatial(std::vector<int64_t>* image, std::vector<int64_t>* window, std::vector<int64_t>* output) {
    const int64_t size = 1 + Below(6), taps = 1 + Below(3), stride = 1 + Below(2);
    const int64_t base_dilation = 1 + Below(2), window_dilation = 1 + Below(2);
    const int64_t reach = (taps - 1) * window_dilation + 1;
    const int64_t low = Below(3), high = reach + Below(2);
    image->push_back(size);
    window->push_back(taps);
    output->push_back(((size - 1) * base_dilation + 1 + low + high - reach) / stride + 1);
    text_.sizes.push_back(absl::StrCat(taps));
    text_.strides.push_back(absl::StrCat(stride));
    text_.padding.push_back(absl::StrCat(low, "_", high));
    text_.base_dilation.push_back(absl::StrCat(base_dilation));
    text_.window_dilation.push_back(absl::StrCat(window_dilation));
    text_.reversal.push_back(absl::StrCat(Below(2)));
  }
  std::string WindowOf() const {
    return absl::StrCat("window={size=", absl::StrJoin(text_.sizes, "x"), " stride=", absl::StrJoin(text_.strides, "x"),
                        " pad=", absl::StrJoin(text_.padding, "x"), " lhs_dilate=",
                        absl::StrJoin(text_.base_dilation, "x"), " rhs_dilate=",
                        absl::StrJoin(text_.window_dilation, "x"), " rhs_reversal=",
                        absl::StrJoin(text_.reversal, "x"), "}, ");
  }
  static std::string Shape(const std::string& type, int64_t batch, int64_t feature, const std::vector<int64_t>& spatial,
                           bool channels_first) {
    std::vector<int64_t> sizes = {batch};
    if (channels_first) sizes.push_back(feature);
    sizes.insert(sizes.end(), spatial.begin(), spatial.end());
    if (!channels_first) sizes.push_back(feature);
    return absl::StrCat(type, "[", absl::StrJoin(sizes, ","), "]");
  }
  static std::string Labels(const std::string& batch, const std::string& feature, int64_t spatial,
                            bool channels_first) {
    const std::string digits = std::string("012").substr(0, static_cast<size_t>(spatial));
    return channels_first ? batch + feature + digits : batch + digits + feature;
  }

  Random& random_;
  const std::string operand_, result_;
  WindowText text_;
};

// A depthwise convolution of channels-last images, or its gradient with respect to the filter, whose batch groups are
// the channels. Its sums are computed as vectors of channels.
std::string Depthwise(const std::string& type, const std::string& result, int64_t channels, bool is_gradient) {
  const std::string end = absl::StrCat(",", channels, "]");
  if (is_gradient) {
    return absl::StrCat("HloModule m\nENTRY e {\n x = ", type, "[2,7,6", end, " parameter(0)\n y = ", type, "[2,4,3",
                        end, " parameter(1)\n ROOT r = ", result, "[3,2,1", end,
                        " convolution(x, y), window={size=4x3 pad=1_1x0_0 rhs_dilate=2x2}, ",
                        "dim_labels=f01b_i01o->01bf, batch_group_count=", channels, "\n}\n");
  }
  return absl::StrCat("HloModule m\nENTRY e {\n x = ", type, "[2,5,4", end, " parameter(0)\n y = ", type, "[3,2,1", end,
                      " parameter(1)\n ROOT r = ", result, "[2,10,4", end,
                      " convolution(x, y), window={size=3x2 pad=2_1x0_1 lhs_dilate=2x1 rhs_reversal=1x0}, ",
                      "dim_labels=b01f_01io->b01f, feature_group_count=", channels, "\n}\n");
}

TEST(ConvolutionKernel, DepthwiseWithVectorsOfChannels) {
  Batch batch;
  for (const bool is_gradient : {false, true}) {
    for (const int64_t channels : {4, 70, 130}) {
      batch.Add(Depthwise("f32", "f32", channels, is_gradient), Close(1e-4));
      batch.Add(Depthwise("f64", "f64", channels, is_gradient), Close(1e-9));
      batch.Add(Depthwise("s8", "s32", channels, is_gradient), {}, /*specials=*/true);
      batch.Add(Depthwise("bf16", "bf16", channels, is_gradient), Close(2e-2));
    }
    batch.Add(Depthwise("c64", "c64", 19, is_gradient), Close(1e-3));
  }
  batch.Run();
}

// The features of a window position are neighbors in memory, and are packed together. In chunks of a depth of 64, 12
// and 40 features are divided, and 9 have no common divisor. The last rows of a block are incomplete. Half of the types
// are tried with each number of features and taps, and the others with the next.
TEST(ConvolutionKernel, NeighboringFeatures) {
  Batch batch;
  int64_t number = 0;
  for (const int64_t features : {8, 9, 12, 40}) {
    for (const int64_t taps : {3, 11}) {
      const auto add = [&](const std::string& type, const std::string& result, const hlo::Tolerance& tolerance) {
        const int64_t at = number++;
        if (!TriesCase(at + at / 4 + at / 8, 2)) return;
        const std::string groups = absl::StrCat(2 * features, "]");
        batch.Add(absl::StrCat("HloModule m\nENTRY e {\n x = ", type, "[3,11,", groups, " parameter(0)\n y = ", type,
                               "[", taps, ",", features, ",", groups, " parameter(1)\n ROOT r = ", result, "[3,11,",
                               groups, " convolution(x, y), window={size=", taps, " pad=", taps / 2, "_", taps / 2,
                               "}, dim_labels=b0f_0io->b0f, feature_group_count=2\n}\n"),
                  tolerance, /*specials=*/result == "s32");
      };
      add("f64", "f64", Close(1e-9));
      add("s8", "s32", {});
      add("c64", "c64", Close(1e-3));
      add("bf16", "bf16", Close(2e-2));
    }
  }
  batch.Run();
}

TEST(ConvolutionKernel, RandomShapesOfAllTypes) {
  const auto random = SeededRandom(11);
  Batch batch;
  struct Types {
    const char *operand, *result;
    double tolerance;
  };
  for (const Types& types : {Types{"f64", "f64", 1e-9}, Types{"f32", "f32", 1e-3}, Types{"bf16", "bf16", 2e-2},
                             Types{"f16", "f16", 2e-2}, Types{"s8", "s32", 0}, Types{"u8", "u8", 0},
                             Types{"s32", "s32", 0}, Types{"u64", "u64", 0}, Types{"c64", "c64", 1e-3},
                             Types{"c128", "c128", 1e-9}}) {
    for (uint64_t i = 0; i < CaseCount(4, 10); ++i) {
      const std::string text = RandomConvolution(random.get(), types.operand, types.result).Text();
      const bool is_integer = types.tolerance == 0;
      batch.Add(text, is_integer ? hlo::Tolerance{} : Close(types.tolerance), /*specials=*/is_integer);
    }
  }
  batch.Run();
}

TEST(ConvolutionKernel, CandidatesHaveTheSameBits) {
  Batch batch;
  for (const auto& [type, result, tolerance] :
       {std::tuple("f64", "f64", 1e-9), {"f32", "f32", 1e-3}, {"s8", "s32", 0.0}, {"c64", "c64", 1e-3}}) {
    batch.Add(absl::StrCat("HloModule m\nENTRY e {\n x = ", type, "[2,7,6,22] parameter(0)\n y = ", type,
                           "[3,2,11,40] parameter(1)\n ROOT r = ", result, "[2,14,3,40] convolution(x, y), ",
                           "window={size=3x2 stride=1x2 pad=2_1x1_0 lhs_dilate=2x1 rhs_dilate=1x2 rhs_reversal=1x0}, ",
                           "dim_labels=b01f_01io->b01f, feature_group_count=2\n}\n"),
              tolerance == 0 ? hlo::Tolerance{} : Close(tolerance));
    batch.WithCandidates();
  }
  batch.Run();
}

}  // namespace
}  // namespace xlad::compiler
