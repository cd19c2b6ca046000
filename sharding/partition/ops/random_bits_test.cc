// Random bits generated on shards, compared with the evaluator bit for bit.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

absl::StatusOr<PipelineResult> PartitionedRandomBits(const std::string& text) {
  auto module = hlo::ParseText(text);
  XLAD_CHECK(module.ok()) << module.status() << text;
  return RunPipeline(*std::move(module), {});
}

// Expects that the results of the partitioned program and of the source program are equal bit for bit.
void ExpectSameBits(const std::string& text, const PipelineResult& result, std::vector<hlo::Literal> inputs) {
  auto module = hlo::ParseText(text);
  const auto expected = hlo::Evaluate(**module, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto found = EvaluatePartitioned(result.partitioned, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(CompareValues(*found, *expected, 0).ok()) << CompareValues(*found, *expected, 0) << text;
}

std::string RandomBits(const char* algorithm, const char* bits, const char* words, const char* axes) {
  return absl::StrReplaceAll(R"(HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["a"=4,"b"=2]>}}
ENTRY e {
  k = u64[WORDS] parameter(0)
  g = (u64[WORDS], BITS) rng-bit-generator(k), algorithm=ALGORITHM
  s = u64[WORDS] get-tuple-element(g), index=0
  b = BITS get-tuple-element(g), index=1
  n = BITS not(b), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [AXES]>"}
  ROOT r = (u64[WORDS], BITS) tuple(s, n)
})",
                             {{"WORDS", words}, {"BITS", bits}, {"ALGORITHM", algorithm}, {"AXES", axes}});
}

TEST(RandomBits, ShardsEqualThoseOfTheGlobalArray) {
  constexpr const char* kRows = R"({\"a\"}, {})";
  constexpr const char* kBoth = R"({\"a\"}, {\"b\"})";
  constexpr const char* kLong = R"({\"b\",\"a\"}, {})";
  struct Case {
    const char *bits, *axes;
    bool split;  // Requires that no device generates the whole array, with either algorithm.
  };
  const Case cases[] = {
      {"u32[8,6]", kRows, true},  {"u32[16,6]", kLong, true},  {"u64[8,3]", kRows, false}, {"u64[8,4]", kRows, true},
      {"u16[8,6]", kRows, true},  {"u32[4,6]", kRows, false},  {"u32[7,4]", kRows, false},  {"u32[13,5]", kRows, false},
      {"u32[9,7]", kRows, false}, {"u32[8,6]", kBoth, false},  {"u8[40,2]", kRows, true},
  };
  // Counters that do not wrap, that wrap in the low word only, and that wrap in both words.
  const std::vector<uint64_t> states[] = {{7, 3, 5}, {1, ~uint64_t{0} - 3, 9}, {2, ~uint64_t{0} - 1, ~uint64_t{0}}};
  for (const Case& c : cases) {
    for (const bool philox : {false, true}) {
      const int64_t words = philox ? 3 : 2;
      const std::string text =
          RandomBits(philox ? "rng_philox" : "rng_three_fry", c.bits, philox ? "3" : "2", c.axes);
      SCOPED_TRACE(text);
      const auto result = PartitionedRandomBits(text);
      ASSERT_TRUE(result.ok()) << result.status();
      for (const std::vector<uint64_t>& state : states) {
        const std::vector<uint64_t> used(state.begin(), state.begin() + words);
        ExpectSameBits(text, *result,
                       {hlo::Literal(tensor::Array::FromValues(tensor::ElementType::kU64, {words}, used))});
      }
      const std::string local = hlo::PrintText(*result->partitioned.variants[0].module);
      const bool whole = absl::StrContains(local, absl::StrCat(c.bits, "{1,0}) rng-bit")) ||
                         absl::StrContains(local, absl::StrCat(c.bits, ") rng-bit"));
      if (c.split) EXPECT_FALSE(whole) << local;
    }
  }
}

// A double cannot represent the number of counters of a shard, 2^53 + 1.
TEST(RandomBits, CountersAreExact) {
  const auto result =
      PartitionedRandomBits(RandomBits("rng_three_fry", "u64[36028797018963972,1]", "2", R"({\"a\"}, {})"));
  ASSERT_TRUE(result.ok()) << result.status();
  const std::string local = hlo::PrintText(*result->partitioned.variants[0].module);
  EXPECT_TRUE(absl::StrContains(local, "constant(9007199254740993)")) << local;
}

}  // namespace
}  // namespace xlad::sharding
