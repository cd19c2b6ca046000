// Instructions that move elements, compared with results computed by hand for small cases, and with the definitions of
// the instructions.
#include "hlo/eval/test_programs.h"

namespace xlad::hlo {
namespace {

using testing::Constant;
using testing::ExpectSame;
using testing::InstructionCase;
using testing::OneInstruction;

class ShapeOpsTest : public ::testing::TestWithParam<InstructionCase> {};

TEST_P(ShapeOpsTest, HasTheExpectedElements) { testing::CheckInstruction(GetParam()); }

const InstructionCase kShapeOpsTestRows[] = {
    {"broadcast", {"s32[2] {1, 2}"}, "s32[2,3] {{1, 1, 1}, {2, 2, 2}}", "dimensions={0}"},
    {"broadcast", {"s32[2] {1, 2}"}, "s32[3,2] {{1, 2}, {1, 2}, {1, 2}}", "dimensions={1}"},
    {"broadcast", {"f32[] 5"}, "f32[2] {5, 5}", "dimensions={}"},
    {"reshape", {"s32[2,3] {{1, 2, 3}, {4, 5, 6}}"}, "s32[3,2] {{1, 2}, {3, 4}, {5, 6}}"},
    {"transpose", {"s32[2,3] {{1, 2, 3}, {4, 5, 6}}"}, "s32[3,2] {{1, 4}, {2, 5}, {3, 6}}", "dimensions={1,0}"},
    {"slice", {"s32[7] {0, 1, 2, 3, 4, 5, 6}"}, "s32[3] {1, 3, 5}", "slice={[1:6:2]}"},
    {"reverse", {"s32[2,2] {{1, 2}, {3, 4}}"}, "s32[2,2] {{4, 3}, {2, 1}}", "dimensions={0,1}"},
    {"concatenate",
     {"s32[1,2] {{1, 2}}", "s32[2,2] {{3, 4}, {5, 6}}"},
     "s32[3,2] {{1, 2}, {3, 4}, {5, 6}}",
     "dimensions={0}"},
    {"concatenate",
     {"s32[2,1] {{1}, {2}}", "s32[2,2] {{3, 4}, {5, 6}}"},
     "s32[2,3] {{1, 3, 4}, {2, 5, 6}}",
     "dimensions={1}"},
    {"pad", {"s32[3] {1, 2, 3}", "s32[] 0"}, "s32[8] {0, 1, 0, 2, 0, 3, 0, 0}", "padding=1_2_1"},
    {"pad", {"s32[3] {1, 2, 3}", "s32[] 0"}, "s32[2] {2, 3}", "padding=-1_0"},
    {"pad", {"s32[3] {1, 2, 3}", "s32[] 0"}, "s32[3] {0, 2, 0}", "padding=-1_-1_1"},
    {"pad", {"s32[2] {1, 2}", "s32[] 7"}, "s32[2] {7, 7}", "padding=3_-3"},
    {"pad", {"s32[0] {}", "s32[] 7"}, "s32[2] {7, 7}", "padding=1_1"},
    {"iota", {}, "u8[2,3] {{0, 1, 2}, {0, 1, 2}}", "iota_dimension=1"},
    {"iota", {}, "bf16[3] {0, 1, 2}", "iota_dimension=0"},
    {"iota", {}, "c64[2] {(0, 0), (1, 0)}", "iota_dimension=0"},
    {"dynamic-slice", {"s32[5] {0, 1, 2, 3, 4}", "s32[] 9"}, "s32[2] {3, 4}", "dynamic_slice_sizes={2}"},
    {"dynamic-slice", {"s32[5] {0, 1, 2, 3, 4}", "s64[] -9"}, "s32[2] {0, 1}", "dynamic_slice_sizes={2}"},
    {"dynamic-slice",
     {"s32[5] {0, 1, 2, 3, 4}", "u64[] 18446744073709551615"},
     "s32[2] {3, 4}",
     "dynamic_slice_sizes={2}"},
    {"dynamic-update-slice", {"s32[4] {0, 1, 2, 3}", "s32[2] {8, 9}", "u8[] 1"}, "s32[4] {0, 8, 9, 3}"},
    {"dynamic-update-slice", {"s32[4] {0, 1, 2, 3}", "s32[2] {8, 9}", "s32[] 7"}, "s32[4] {0, 1, 8, 9}"},
    {"get-dimension-size", {"s32[4,5] {...}"}, "s32[] 5", "dimensions={1}"},
    {"copy", {"c128[1] {(1, 2)}"}, "c128[1] {(1, 2)}"},
    {"gather",
     {"s32[3,2] {{1, 2}, {3, 4}, {5, 6}}", "s32[2,1] {{2}, {-5}}"},
     "s32[2,2] {{5, 6}, {1, 2}}",
     "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,2}"},
    {"gather",
     {"s32[4] {1, 2, 3, 4}", "s32[2] {3, 1}"},
     "s32[2,2] {{3, 4}, {2, 3}}",
     "offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, slice_sizes={2}"},
    {"gather",  // A slice without elements must not read anything, even if it starts beyond the end.
     {"s32[3,2] {{1, 2}, {3, 4}, {5, 6}}", "s32[2,1] {{3}, {0}}"},
     "s32[2,2] {{0, 0}, {0, 0}}",
     "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={0,2}"},
};
INSTANTIATE_TEST_SUITE_P(Rows, ShapeOpsTest, ::testing::ValuesIn(kShapeOpsTestRows));

// A bitcast keeps the memory: with different layouts it is a transpose.
TEST(Bitcast, FollowsLayouts) {
  const auto module = testing::Program(R"(HloModule m
ENTRY e {
  c = s32[2,3]{1,0} constant({{1, 2, 3}, {4, 5, 6}})
  b = s32[3,2]{0,1} bitcast(c)
  ROOT f = s32[6]{0} bitcast(b)
})");
  const auto flat = testing::Run(*module);
  ASSERT_TRUE(flat.ok()) << flat.status();
  ExpectSame(*flat, Constant("s32[6] {1, 2, 3, 4, 5, 6}"), "flat");
  module->entry()->set_root(module->entry()->root()->operand(0));
  const auto transposed = testing::Run(*module);
  ASSERT_TRUE(transposed.ok()) << transposed.status();
  ExpectSame(*transposed, Constant("s32[3,2] {{1, 4}, {2, 5}, {3, 6}}"), "transposed");
}

TEST(Elided, ConstantsAreZeros) {
  const auto module = OneInstruction("f32[3]", "negate", {"f32[3] {...}"});
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(*result, Constant("f32[3] {-0, -0, -0}"), "negate");
}

// An operand that is used again must not be written.
TEST(DynamicUpdateSlice, DoesNotChangeItsOperand) {
  const auto module = testing::Program(R"(HloModule m
ENTRY e {
  p = s32[3] parameter(0)
  one = s32[] constant(1)
  nine = s32[1] constant({9})
  q = s32[3] add(p, p)
  u = s32[3] dynamic-update-slice(q, nine, one)
  r = s32[3] reshape(q)
  ROOT t = (s32[3], s32[3], s32[3]) tuple(u, r, p)
})");
  const auto result = Evaluate(*module, {Constant("s32[3] {1, 2, 3}")});
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSame(result->tuple[0], Constant("s32[3] {2, 9, 6}"), "updated");
  ExpectSame(result->tuple[1], Constant("s32[3] {2, 4, 6}"), "operand");
  ExpectSame(result->tuple[2], Constant("s32[3] {1, 2, 3}"), "input");
}

// A reversed slice of a transposed array, compared with index arithmetic.
TEST(Moves, ComposeLikeTheirIndices) {
  const auto module = testing::Program(R"(HloModule m
ENTRY e {
  i = s32[3,4,5] iota(), iota_dimension=2
  j = s32[3,4,5] iota(), iota_dimension=1
  k = s32[3,4,5] iota(), iota_dimension=0
  ten = s32[] constant(10)
  tens = s32[3,4,5] broadcast(ten), dimensions={}
  jj = s32[3,4,5] multiply(j, tens)
  kk = s32[3,4,5] multiply(k, tens)
  kkk = s32[3,4,5] multiply(kk, tens)
  ij = s32[3,4,5] add(i, jj)
  ijk = s32[3,4,5] add(ij, kkk)
  s = s32[2,4,3] slice(ijk), slice={[1:3], [0:4], [0:5:2]}
  t = s32[3,2,4] transpose(s), dimensions={2,0,1}
  ROOT r = s32[3,2,4] reverse(t), dimensions={0,2}
})");
  const auto result = testing::Run(*module);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto values = result->array.values<int32_t>();
  size_t at = 0;
  for (int32_t a = 0; a < 3; ++a) {
    for (int32_t b = 0; b < 2; ++b) {
      for (int32_t c = 0; c < 4; ++c) EXPECT_EQ(values[at++], (b + 1) * 100 + (3 - c) * 10 + (2 - a) * 2);
    }
  }
}

}  // namespace
}  // namespace xlad::hlo
