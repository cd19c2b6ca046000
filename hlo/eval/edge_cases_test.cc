// Some of the cases that hlo/eval/evaluate.h lists: bits of moved elements, start indices outside of the operand, signs
// of zeros.
#include <cstring>

#include "absl/strings/str_replace.h"
#include "base/file_system.h"
#include "hlo/eval/test_programs.h"

namespace xlad::hlo {
namespace {

using tensor::Array;
using tensor::ElementType;

struct MovedBits {
  ElementType type;
  std::vector<uint64_t> bits;  // Six elements: NaN with payloads and signs, signaling NaN, zeros, a denormal.
};

const MovedBits kMovedBits[] = {
    {ElementType::kF32, {0x7FC12345, 0xFFC00001, 0x7F800001, 0x80000000, 0, 0x80000001}},
    {ElementType::kF64,
     {0x7FF8000012345678, 0xFFF8000000000001, 0x7FF0000000000001, 0x8000000000000000, 0, 0x8000000000000001}},
    {ElementType::kF16, {0x7E01, 0xFE10, 0x7C01, 0x8000, 0, 0x8001}},
    {ElementType::kBF16, {0x7FC1, 0xFFD0, 0x7F81, 0x8000, 0, 0x8001}},
    {ElementType::kF8E5M2, {0x7F, 0xFE, 0x7D, 0x80, 0, 0x81}},
    {ElementType::kF8E4M3FN, {0x7F, 0xFF, 0x7E, 0x80, 0, 0x81}},
};

Array ArrayOf(const MovedBits& moved) {
  Array array({moved.type, {6}});
  const int64_t width = tensor::ByteWidth(moved.type);
  for (const int64_t i : tensor::Indices(moved.bits)) {
    std::memcpy(array.bytes().data() + i * width, &moved.bits[i], width);
  }
  return array;
}

class MovedBitsTest : public ::testing::TestWithParam<MovedBits> {};

// Every result of the program must have the bits of the parameter.
TEST_P(MovedBitsTest, AreUnchanged) {
  const ElementType type = GetParam().type;
  const auto text = RealFileSystem().Read("hlo/testdata/moved_bits.hlo");
  ASSERT_TRUE(text.ok()) << text.status();
  const std::string bits = absl::StrCat("u", tensor::BitWidth(type));
  const auto module = testing::Program(absl::StrReplaceAll(*text, {{"TYPE", tensor::ToString(type)}, {"BITS", bits}}));
  ASSERT_NE(module, nullptr);
  const Array x = ArrayOf(GetParam());
  const auto result = Evaluate(*module, {Literal(x)});
  ASSERT_TRUE(result.ok()) << result.status();
  for (const int64_t i : tensor::Indices(result->tuple)) {
    EXPECT_EQ(result->tuple[i].array, x) << module->entry()->root()->operand(i)->name();
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MovedBitsTest, ::testing::ValuesIn(kMovedBits),
                         [](const auto& info) { return std::string(tensor::ToString(info.param.type)); });

// A dynamic-slice selects 2 of 8 elements. The start index is read as a number of its type and clamped to [0, 6].
TEST(StartIndices, AreClampedByTheirType) {
  const std::pair<const char*, const char*> cases[] = {{"u64[] 9223372036854775809", "{6, 7}"},
                                                       {"u64[] 18446744073709551615", "{6, 7}"},
                                                       {"u64[] 3", "{3, 4}"},
                                                       {"s64[] -9223372036854775808", "{0, 1}"},
                                                       {"s64[] 9223372036854775807", "{6, 7}"},
                                                       {"u32[] 4294967295", "{6, 7}"},
                                                       {"s32[] -1", "{0, 1}"},
                                                       {"u8[] 255", "{6, 7}"},
                                                       {"s8[] -128", "{0, 1}"},
                                                       {"u4[] 15", "{6, 7}"},
                                                       {"s4[] -1", "{0, 1}"}};
  const std::string x = "s32[8] {0, 1, 2, 3, 4, 5, 6, 7}";
  for (const auto& [start, expected] : cases) {
    const auto sliced = testing::OneInstruction("s32[2]", "dynamic-slice", {x, start}, ", dynamic_slice_sizes={2}");
    ASSERT_NE(sliced, nullptr);
    const auto result = testing::Run(*sliced);
    ASSERT_TRUE(result.ok()) << result.status();
    testing::ExpectSame(*result, testing::Constant(absl::StrCat("s32[2] ", expected)), start);
  }
}

TEST(StartIndices, AreClampedByGatherAndSkippedByScatter) {
  const std::string starts = "u64[3] {18446744073709551615, 2, 9223372036854775808}";
  const auto gathered = testing::OneInstruction(
      "s32[3]", "gather", {"s32[4] {0, 1, 2, 3}", starts},
      ", offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}");
  testing::ExpectSame(*testing::Run(*gathered), testing::Constant("s32[3] {3, 2, 3}"), "gather");
  const auto scattered = testing::OneInstruction(
      "s32[4]", "scatter", {"s32[4] {0, 0, 0, 0}", starts, "s32[3] {7, 8, 9}"},
      ", update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
      "to_apply=second",
      "second { a = s32[] parameter(0)  ROOT b = s32[] parameter(1) }");
  testing::ExpectSame(*testing::Run(*scattered), testing::Constant("s32[4] {0, 0, 8, 0}"), "scatter");
}

// A reduction starts with its initial value: +0 plus -0 is +0, and -0 plus -0 is -0.
TEST(Zeros, SumsBeginWithTheInitialValue) {
  const std::string add = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }";
  for (const auto& [init, expected] : {std::pair("f32[] 0", "f32[] 0"), std::pair("f32[] -0", "f32[] -0")}) {
    const auto sum =
        testing::OneInstruction("f32[]", "reduce", {"f32[1] {-0}", init}, ", dimensions={0}, to_apply=add", add);
    testing::ExpectSame(*testing::Run(*sum), testing::Constant(expected), init);
  }
}

}  // namespace
}  // namespace xlad::hlo
