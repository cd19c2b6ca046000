// Attention of many sizes and forms, compiled, run and compared with the evaluator. It must become library ops, and the
// scores must not be stored in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file_system.h"
#include "base/random.h"
#include "compiler/compile.h"
#include "compiler/testing/random_program.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "hlo/wire/proto.h"
#include "tensor/small_float.h"
#include "tests/differential/run_on_devices.h"
#include "tests/differential/try_program.h"

namespace xlad {
namespace {

using tensor::Array;

constexpr char kCausal[] = R"(t = s32[T] iota(), iota_dimension=0
  s = s32[S] iota(), iota_dimension=0
  ts = s32[T,S] broadcast(t), dimensions={0}
  ss = s32[T,S] broadcast(s), dimensions={1}
  small = pred[T,S] compare(ts, ss), direction=GE
  mask = pred[B,H,T,S] broadcast(small), dimensions={2,3})";
constexpr char kWindow[] = R"(t = s32[T,S] iota(), iota_dimension=0
  s = s32[T,S] iota(), iota_dimension=1
  width = s32[] constant(9)
  widths = s32[T,S] broadcast(width), dimensions={}
  far = s32[T,S] add(s, widths)
  after = pred[T,S] compare(s, t), direction=LE
  before = pred[T,S] compare(far, t), direction=GT
  small = pred[T,S] and(after, before)
  mask = pred[B,H,T,S] broadcast(small), dimensions={2,3})";
// Compares positions plus a constant, as f32.
constexpr char kShifted[] = R"(t = s32[T,S] iota(), iota_dimension=0
  s = s32[T,S] iota(), iota_dimension=1
  shift = s32[] constant(SHIFT)
  shifts = s32[T,S] broadcast(shift), dimensions={}
  ts = s32[T,S] add(t, shifts)
  ss = s32[T,S] add(s, shifts)
  x = f32[T,S] convert(ts)
  y = f32[T,S] convert(ss)
  small = pred[T,S] compare(x, y), direction=GE
  mask = pred[B,H,T,S] broadcast(small), dimensions={2,3})";
// As jax.numpy.tril makes it from a mask: of ones, or of the given columns.
constexpr char kLowerTriangle[] = R"(t = s32[T,S] iota(), iota_dimension=0
  s = s32[T,S] iota(), iota_dimension=1
  lower = pred[T,S] compare(t, s), direction=GE
  yes = pred[] constant(true)
  no = pred[] constant(false)
  yeses = pred[T,S] broadcast(yes), dimensions={}
  noes = pred[T,S] broadcast(no), dimensions={}
  small = pred[T,S] select(lower, yeses, noes)
  mask = pred[B,H,T,S] broadcast(small), dimensions={2,3})";
constexpr char kGivenLowerTriangle[] = R"(t = s32[T,S] iota(), iota_dimension=0
  s = s32[T,S] iota(), iota_dimension=1
  small = pred[T,S] compare(t, s), direction=GE
  lower = pred[B,H,T,S] broadcast(small), dimensions={2,3}
  no = pred[] constant(false)
  noes = pred[B,H,T,S] broadcast(no), dimensions={}
  wide = pred[B,H,T,S] broadcast(given), dimensions={0,3}
  mask = pred[B,H,T,S] select(lower, wide, noes))";
constexpr char kGiven[] = "mask = pred[B,H,T,S] broadcast(given), dimensions={0,3}";

struct Sizes {
  int64_t b, h, t, s, d, w;
};

std::string Program(const Sizes& sizes, const std::string& mask, const std::string& low) {
  const auto form = RealFileSystem().Read("tests/differential/testdata/attention/sizes.template");
  EXPECT_TRUE(form.ok()) << form.status();
  std::string text = absl::StrReplaceAll(*form, {{"MASK", mask}, {"LOW", low}});
  for (const auto& [letter, size] : {std::pair{'B', sizes.b}, {'H', sizes.h}, {'T', sizes.t}, {'S', sizes.s},
                                     {'D', sizes.d}, {'W', sizes.w}}) {
    const std::string name(1, letter), number = absl::StrCat(size);
    text = absl::StrReplaceAll(text, {{"[" + name + ",", "[" + number + ","}, {"," + name + "]", "," + number + "]"},
                                      {"," + name + ",", "," + number + ","}, {"[" + name + "]", "[" + number + "]"}});
  }
  return text;
}

// Makes all recognized attention a library op.
absl::StatusOr<Executable> Compiled(const hlo::Module& module) {
  CompileRequest request;
  XLAD_ASSIGN_OR_RETURN(*request.mutable_partitioned_module(), hlo::SerializeProto(module));
  compiler::CompileOptions options;
  options.attention = compiler::AttentionChoice::kAlways;
  XLAD_ASSIGN_OR_RETURN(compiler::CompileResult result, compiler::CompileWithListings(request, options, false));
  return std::move(result.executable);
}

int CountAttention(const Executable& executable) {
  return static_cast<int>(std::count_if(executable.library_ops().begin(), executable.library_ops().end(),
                                        [](const LibraryOp& op) { return op.has_attention(); }));
}

// Whether some block of the first attention op skips masked columns.
bool SkipsColumns(const Executable& executable) {
  for (const LibraryOp& op : executable.library_ops()) {
    if (!op.has_attention()) continue;
    const auto& columns = op.attention().block_columns();
    return std::any_of(columns.begin(), columns.end(), [&](int64_t n) { return n < op.attention().columns(); });
  }
  return false;
}

// Returns the floats of an array, or an empty vector for other types.
std::vector<float> Floats(const Array& array) {
  std::vector<float> floats;
  if (array.shape().type == tensor::ElementType::kF32) {
    floats.assign(array.values<float>().begin(), array.values<float>().end());
  } else if (tensor::IsSmallFloat(array.shape().type)) {
    for (const uint16_t bits : array.values<uint16_t>()) {
      floats.push_back(tensor::DecodeSmallFloat(array.shape().type, bits));
    }
  }
  return floats;
}

// The bounds of the differences, relative to the largest element of a result. Programs round many values to bf16 or
// f16. If sums are in another order, each of them may differ by one unit in the last place, 2^-7 or 2^-10.
double BoundOf(tensor::ElementType type) {
  if (type == tensor::ElementType::kF32) return 1e-5;
  return type == tensor::ElementType::kBF16 ? 1e-2 : 1.25e-3;
}

// The differences are relative to the largest element of a result, or to `least` if that is larger.
void ExpectNear(const std::vector<Array>& found, const std::vector<Array>& expected, double least) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t r = 0; r < found.size(); ++r) {
    const std::vector<float> x = Floats(found[r]), y = Floats(expected[r]);
    ASSERT_EQ(x.size(), static_cast<size_t>(expected[r].elements()));
    const double error = BoundOf(expected[r].shape().type);
    double largest = least;
    for (const float value : y) largest = std::isfinite(value) ? std::max<double>(largest, std::abs(value)) : largest;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == y[i] || (std::isnan(y[i]) && std::isnan(x[i]))) continue;
      ASSERT_NEAR(x[i], y[i], error * largest) << "result " << r << " element " << i;
    }
  }
}

struct CheckOptions {
  std::optional<bool> skips = std::nullopt;                   // Whether the first attention op skips columns.
  std::function<void(std::vector<Array>*)> change = nullptr;  // Changes the random inputs.
  double least = 1;                                           // See ExpectNear.
};

// Checks a program with `wanted` attention ops.
void Check(const std::string& text, int wanted, uint64_t seed, const CheckOptions& options = CheckOptions()) {
  auto module = hlo::ParseText(text);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto executable = Compiled(**module);
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ(CountAttention(*executable), wanted);
  if (options.skips.has_value()) EXPECT_EQ(SkipsColumns(*executable), *options.skips);
  const auto random = SeededRandom(seed);
  const std::vector<bool> special((*module)->entry()->parameters().size(), false);
  std::vector<Array> inputs = compiler::RandomInputs(**module, random.get(), special);
  if (options.change != nullptr) options.change(&inputs);
  const auto expected = hlo::Evaluate(**module, LiteralsOf(inputs));
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto found = RunOnDevices(*executable, {inputs});
  ASSERT_TRUE(found.ok()) << found.status();
  ExpectNear((*found)[0], compiler::ArraysOf(*expected), options.least);
}

// All values are in f16.
std::string InF16(const std::string& text) { return absl::StrReplaceAll(text, {{"f32[", "f16["}}); }

// Checks programs of these sizes with each mask. `masked` is the value of masked scores in every second program.
void CheckMasks(absl::Span<const Sizes> all, const char* masked, bool in_f16) {
  uint64_t seed = 0;
  for (const Sizes& sizes : all) {
    for (const char* mask : {kCausal, kWindow, kGiven}) {
      SCOPED_TRACE(absl::StrCat("sizes ", sizes.b, " ", sizes.h, " ", sizes.t, " ", sizes.s, " ", sizes.d, " ", sizes.w,
                                " mask ", mask));
      ++seed;
      const std::string text = Program(sizes, mask, seed % 2 == 0 ? masked : "-inf");
      Check(in_f16 ? InF16(text) : text, 2, seed);
    }
  }
}

TEST(Attention, ManySizesAndMasks) {
  CheckMasks({{1, 2, 100, 90, 16, 16}, {2, 1, 33, 257, 5, 31}, {1, 1, 131, 131, 64, 64}, {3, 2, 64, 64, 1, 2},
              {1, 3, 8, 700, 7, 33},   {2, 2, 97, 49, 40, 24}}, "-1e30", false);
}

TEST(Attention, ManySizesAndMasksInF16) {
  CheckMasks({{1, 2, 100, 90, 16, 16}, {2, 1, 33, 257, 5, 31}, {1, 3, 8, 700, 7, 33}, {2, 2, 97, 49, 40, 24}}, "-65504",
             true);
}

void SetElements(Array* array, int64_t first, int64_t count, float value) {
  const uint16_t bits = tensor::EncodeSmallFloat(array->shape().type, value);
  for (int64_t i = first; i < first + count; ++i) array->values<uint16_t>()[i] = bits;
}

// Row 3 of q (of 16 features) has numbers whose products with k are too large for f16, infinities or NaN.
TEST(Attention, F16ScoresThatAreNotFinite) {
  const std::string text = InF16(Program({1, 2, 100, 90, 16, 16}, kGiven, "-65504"));
  for (const float special : {60000.0f, -60000.0f, std::numeric_limits<float>::infinity(), NAN}) {
    SCOPED_TRACE(special);
    Check(text, 2, 7, {.change = [&](std::vector<Array>* inputs) { SetElements(&(*inputs)[0], 48, 16, special); }});
  }
}

// Elements of v between 2^-17 and 2^-14, so that results are subnormal numbers.
TEST(Attention, SubnormalResultsInF16) {
  const std::string text = InF16(Program({1, 2, 100, 90, 16, 16}, kCausal, "-65504"));
  const auto shrink = [](std::vector<Array>* inputs) {
    Array& v = (*inputs)[2];
    for (int64_t i = 0; i < v.elements(); ++i) SetElements(&v, i, 1, std::ldexp(1.0f + static_cast<float>(i % 7), -17));
  };
  Check(text, 2, 8, {.change = shrink, .least = 0x1p-14});
}

// The constant of the masks is close to the scores, so masked columns contribute to the results.
TEST(Attention, MaskedColumnsThatContribute) {
  for (const char* low : {"0", "-3", "50"}) {
    const std::string text = Program({1, 2, 100, 90, 16, 16}, kCausal, low);
    Check(text, 2, 5);
    Check(InF16(text), 2, 5);
  }
}

TEST(Attention, MasksWithSelects) {
  for (const char* const mask : {kLowerTriangle, kGivenLowerTriangle}) {
    SCOPED_TRACE(mask);
    Check(Program({2, 2, 131, 131, 16, 16}, mask, "-1e30"), 2, 4, {.skips = true});
  }
  Check(Program({2, 2, 131, 131, 16, 16}, kGiven, "-1e30"), 2, 4, {.skips = false});
}

// Above 2^24, several columns after the diagonal have the same position in f32 as the row. If sums of s32 wrap around,
// they are not in the order of the positions.
TEST(Attention, MasksOfRoundedPositions) {
  constexpr int64_t kExact = int64_t{1} << 24, kLargest = 2147483647;
  const std::pair<int64_t, bool> kCases[] = {
      {0, true},         {1000, true},           {kExact - 130, true},    {kExact - 129, false}, {kExact, false},
      {kExact * 2 - 70, false}, {kExact * 32, false},   {kExact * 64 - 200, false}, {kLargest - 64, false},
      {-1000, true},     {-kExact, true},        {-kExact - 1, false},    {-kExact * 32, false}};
  for (const auto& [shift, skips] : kCases) {
    SCOPED_TRACE(shift);
    const std::string mask = absl::StrReplaceAll(kShifted, {{"SHIFT", absl::StrCat(shift)}});
    Check(Program({1, 2, 131, 131, 16, 16}, mask, "-1e30"), 2, 3, {.skips = skips});
  }
}

TEST(Attention, SmallAttentionStaysSeparate) { Check(Program({1, 1, 9, 9, 4, 4}, kCausal, "-1e30"), 0, 1); }

// Values with one element per score must not be in memory.
TEST(Attention, MemoryGrowsWithTheLength) {
  for (const bool is_f16 : {false, true}) {
    int64_t bytes[2];
    for (const int64_t i : {0, 1}) {
      const int64_t length = 2048 << i;
      const std::string text = Program({1, 8, length, length, 64, 64}, kCausal, is_f16 ? "-65504" : "-1e30");
      auto module = hlo::ParseText(is_f16 ? InF16(text) : text);
      ASSERT_TRUE(module.ok()) << module.status();
      const auto executable = Compiled(**module);
      ASSERT_TRUE(executable.ok()) << executable.status();
      EXPECT_EQ(CountAttention(*executable), 2);
      bytes[i] = 0;
      for (const Allocation& allocation : executable->allocations()) bytes[i] += allocation.bytes();
      EXPECT_LT(bytes[i], 8 * length * 64 * (is_f16 ? 2 : 4) * 12);
    }
    EXPECT_LT(bytes[1], 2.1 * static_cast<double>(bytes[0]));
  }
}

// Programs in the forms that frameworks write, with gradients. The first line of each says how many attention ops it
// has.
TEST(Attention, FormsOfFrameworks) {
  int tried = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/differential/testdata/attention")) {
    if (entry.path().extension() != ".hlo") continue;
    SCOPED_TRACE(entry.path().string());
    const auto text = RealFileSystem().Read(entry.path().string());
    ASSERT_TRUE(text.ok()) << text.status();
    const std::string expected = "// attention ops: ";
    ASSERT_EQ(text->substr(0, expected.size()), expected);
    for (const uint64_t seed : {1, 2}) Check(*text, std::atoi(text->c_str() + expected.size()), seed);
    ++tried;
  }
  EXPECT_GT(tried, 10);
}

}  // namespace
}  // namespace xlad
