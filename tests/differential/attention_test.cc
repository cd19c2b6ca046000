// Attention of many sizes and forms, compiled, run and compared with the evaluator. It must become library ops, and the
// scores must not be stored in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
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
  } else if (array.shape().type == tensor::ElementType::kBF16) {
    for (const uint16_t bits : array.values<uint16_t>()) floats.push_back(tensor::DecodeBf16(bits));
  }
  return floats;
}

// The differences are relative to the largest element of a result, or to 1 if that is larger.
void ExpectNear(const std::vector<Array>& found, const std::vector<Array>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t r = 0; r < found.size(); ++r) {
    const std::vector<float> x = Floats(found[r]), y = Floats(expected[r]);
    ASSERT_EQ(x.size(), static_cast<size_t>(expected[r].elements()));
    const double error = expected[r].shape().type == tensor::ElementType::kF32 ? 1e-5 : 1e-2;
    double largest = 1;
    for (const float value : y) largest = std::isfinite(value) ? std::max<double>(largest, std::abs(value)) : largest;
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(y[i]) && std::isnan(x[i])) continue;
      ASSERT_NEAR(x[i], y[i], error * largest) << "result " << r << " element " << i;
    }
  }
}

// Checks a program with `wanted` attention ops, and whether the first one skips columns if `skips` has a value.
void Check(const std::string& text, int wanted, uint64_t seed, std::optional<bool> skips = std::nullopt) {
  auto module = hlo::ParseText(text);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto executable = Compiled(**module);
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ(CountAttention(*executable), wanted);
  if (skips.has_value()) EXPECT_EQ(SkipsColumns(*executable), *skips);
  const auto random = SeededRandom(seed);
  const std::vector<bool> special((*module)->entry()->parameters().size(), false);
  const std::vector<Array> inputs = compiler::RandomInputs(**module, random.get(), special);
  const auto expected = hlo::Evaluate(**module, LiteralsOf(inputs));
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto found = RunOnDevices(*executable, {inputs});
  ASSERT_TRUE(found.ok()) << found.status();
  ExpectNear((*found)[0], compiler::ArraysOf(*expected));
}

TEST(Attention, ManySizesAndMasks) {
  const Sizes all[] = {{1, 2, 100, 90, 16, 16}, {2, 1, 33, 257, 5, 31}, {1, 1, 131, 131, 64, 64}, {3, 2, 64, 64, 1, 2},
                       {1, 3, 8, 700, 7, 33},   {2, 2, 97, 49, 40, 24}};
  uint64_t seed = 0;
  for (const Sizes& sizes : all) {
    for (const char* mask : {kCausal, kWindow, kGiven}) {
      SCOPED_TRACE(absl::StrCat("sizes ", sizes.b, " ", sizes.h, " ", sizes.t, " ", sizes.s, " ", sizes.d, " ", sizes.w,
                                " mask ", mask));
      ++seed;
      Check(Program(sizes, mask, seed % 2 == 0 ? "-1e30" : "-inf"), 2, seed);
    }
  }
}

// The constant of the masks is close to the scores, so masked columns contribute to the results.
TEST(Attention, MaskedColumnsThatContribute) {
  for (const char* low : {"0", "-3", "50"}) Check(Program({1, 2, 100, 90, 16, 16}, kCausal, low), 2, 5);
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
    Check(Program({1, 2, 131, 131, 16, 16}, mask, "-1e30"), 2, 3, skips);
  }
}

TEST(Attention, SmallAttentionStaysSeparate) { Check(Program({1, 1, 9, 9, 4, 4}, kCausal, "-1e30"), 0, 1); }

// Values with one element per score must not be in memory.
TEST(Attention, MemoryGrowsWithTheLength) {
  int64_t bytes[2];
  for (const int64_t i : {0, 1}) {
    const int64_t length = 2048 << i;
    auto module = hlo::ParseText(Program({1, 8, length, length, 64, 64}, kCausal, "-1e30"));
    ASSERT_TRUE(module.ok()) << module.status();
    const auto executable = Compiled(**module);
    ASSERT_TRUE(executable.ok()) << executable.status();
    EXPECT_EQ(CountAttention(*executable), 2);
    bytes[i] = 0;
    for (const Allocation& allocation : executable->allocations()) bytes[i] += allocation.bytes();
    EXPECT_LT(bytes[i], 8 * length * 64 * 4 * 12);
  }
  EXPECT_LT(bytes[1], 2.1 * static_cast<double>(bytes[0]));
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
