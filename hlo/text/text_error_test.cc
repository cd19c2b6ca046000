// The exact error messages of bad HLO text, with their places.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/text/text.h"

namespace xlad::hlo {
namespace {

struct BadText {
  std::string text, error;
};

class TextErrors : public ::testing::TestWithParam<BadText> {};

TEST_P(TextErrors, HavePlaceAndMessage) {
  const absl::StatusOr<std::unique_ptr<Module>> module = ParseText(GetParam().text);
  ASSERT_FALSE(module.ok()) << GetParam().text;
  EXPECT_EQ(std::string(module.status().message()), GetParam().error) << GetParam().text;
}

std::string Entry(const std::string& line) {
  return "ENTRY e {\n  x = f32[2] parameter(0)\n  " + line + "\n}";
}

INSTANTIATE_TEST_SUITE_P(Structure, TextErrors, ::testing::ValuesIn(std::vector<BadText>{
    {"", "1:1: found the end of the text, expected HloModule, a computation or an instruction"},
    {"HloModule", "1:10: found the end of the text, expected the module's name"},
    {"HloModule m",
     "1:12: found the end of the text, expected a computation, as in %name (x: f32[]) -> f32[] { ... }"},
    {"HloModule m, replica_count=0\n", "1:28: found \"0\", expected 1 or more"},
    {"HloModule m, num_partition=2\n",
     "1:14: found unknown header attribute \"num_partition\", expected a header attribute of HLO, did you mean "
     "\"num_partitions\"?"},
    {"HloModule m, num_partitions=2, num_partitions=2\n",
     "1:32: found header attribute \"num_partitions\" again, expected it once"},
    {"HloModule m\nENTRY e {",
     "2:10: found the end of the text, expected an instruction, as in %name = f32[] add(%x, %y)"},
    {"HloModule m\nENTRY e { }", "2:7: found computation %e without instructions, expected some"},
    {"HloModule m\nENTRY e { x = f32[] constant(1) }\nENTRY f { x = f32[] constant(1) }",
     "3:1: found a second ENTRY, expected one"},
    {"f { x = f32[] constant(1) }\nf { x = f32[] constant(1) }",
     "2:1: found computation %f again, expected a name that is not in use"},
    {"ENTRY e () -> f32[3] {\n  p = f32[2] constant({1, 2})\n}",
     "1:9: found result f32[3] in the signature of %e, expected f32[2] as in its body"},
    {"HloModule m, entry_computation_layout={(f32[3])->f32[2]}\n" + Entry("ROOT y = f32[2] negate(x)"),
     "1:1: found another entry_computation_layout, expected the shapes of the entry's parameters and result"},
    {"HloModule m, input_output_alias={ {}: (1, {}, may-alias) }\n" + Entry("ROOT y = f32[2] negate(x)"),
     "1:1: found input_output_alias with parameter 1, expected 0 to 0"},
    {"HloModule m, input_output_alias={ {}: (0, {}, may-alias) }\nENTRY e { ROOT x = f32[] constant(1) }",
     "1:1: found input_output_alias with parameter 0, expected none"},
    {"HloModule m, input_output_alias={ {}: (0, {}, perhaps) }\n" + Entry("ROOT y = f32[2] negate(x)"),
     "1:47: found \"perhaps\", expected may-alias or must-alias"},
    {"f32[2]{0} parameter(1)", "1:1: found 1 parameter in %main, expected number 0"},
    {"HloModule m /* no end", "1:13: found a comment without end, expected */"},
    {"HloModule m\nFileNames\n2 \"a.py\"\n", "3:1: found \"2\", expected row 1 of FileNames"},
    {"HloModule m\nStackFrames\n1 {file=1}\n", "3:4: found \"file\", expected fields as in file_location_id=1"},
}));

INSTANTIATE_TEST_SUITE_P(Instructions, TextErrors, ::testing::ValuesIn(std::vector<BadText>{
    {Entry("y f32[2] negate(x)"), "3:5: found \"f32\", expected ="},
    {Entry("y = f32[2] negat(x)"),
     "3:14: found unknown opcode \"negat\", expected an opcode of HLO, did you mean \"negate\"?"},
    {Entry("y = f32[2] negate x"), "3:21: found \"x\", expected ("},
    {Entry("y = f32[2] negate(z)"), "3:21: found operand %z, expected an instruction that is defined above in %e"},
    {Entry("y = f32[2] negate(y)"), "3:21: found operand %y, expected an instruction that is defined above in %e"},
    {Entry("y = f32[2] negate(f32[3] x)"), "3:21: found shape f32[3] for operand %x, expected f32[2]"},
    {Entry("y = f32[2] negate(x"), "4:1: found \"}\", expected )"},
    {Entry("x = f32[2] negate(x)"), "3:3: found %x again, expected a name that is not in use (line 2 defines it)"},
    {Entry("ROOT y = f32[2] negate(x)\n  ROOT z = f32[2] negate(x)"),
     "4:3: found a second ROOT, expected one (line 3 has it)"},
    {Entry("y = f32[2] parameter(2)"), "1:7: found 2 parameters in %e, expected numbers 0 to 1, each once"},
    {Entry("y = f32[2] parameter(0)"), "1:7: found 2 parameters in %e, expected numbers 0 to 1, each once"},
    {Entry("y = f32[2] parameter(-1)"), "3:24: found \"-1\", expected a parameter number of 0 or more"},
    {Entry("y = f32[2] call(x), to_apply=f"), "3:32: found computation %f, expected one that is defined above"},
    {Entry("y = f32[2] call(x), to_apply=e"), "3:32: found computation %e, expected one that is defined above"},
    {Entry("y = s32[2] while(x), body={ x = f32[2] parameter(0) }"),
     "3:3: found while with one of its two computations, expected both"},
    {Entry("y = reshape(x)"),
     "3:3: found no shape before reshape, expected one, because it does not follow from the operands (found result (), "
     "expected an array [array-result])"},
    {Entry("y = constant(1)"), "3:3: found no shape before constant, expected one"},
    {Entry("y = f32[2] negate(x), dimensions={0}"),
     "3:25: found attribute \"dimensions\" on negate, expected one of sharding, "
     "frontend_attributes, control-predecessors, metadata, "
     "backend_config"},
    {Entry("y = f32[2] broadcast(x), dimension={0}"),
     "3:28: found unknown attribute \"dimension\", expected an attribute of HLO, did you mean \"dimensions\"?"},
    {Entry("y = f32[2] broadcast(x), dimensions={0}, dimensions={0}"),
     "3:44: found attribute \"dimensions\" again, expected it once"},
    {Entry("y = f32[2] broadcast(x), dimensions={a}"), "3:40: found \"a\", expected an integer of 64 bits"},
    {Entry("y = f32[2] broadcast(x), dimensions={0"),
     "4:2: found the end of the text, expected an instruction, as in %name = f32[] add(%x, %y)"},
    {Entry("y = f32[2] broadcast(x), dimensions=0"), "3:39: found \"0\", expected {"},
    {Entry("y = f32[2] negate(x), control-predecessors={z}"),
     "3:47: found %z, expected an instruction that is defined above in %e"},
    {Entry("y = f32[2] negate(x), metadata={op_name=}"), "3:43: found \"}\", expected a string in quotes"},
    {Entry("y = f32[2] negate(x), metadata={op_name=\"a}"),
     "3:43: found a string without end, expected its closing quote"},
    {Entry("y = f32[2] negate(x), metadata={op_name=\"\\q\"}"),
     "3:43: found a bad escape in a string: Unknown escape sequence: \\q, expected an escape sequence of C"},
    {Entry("y = f32[2] negate(x), frontend_attributes={a=\"1\",a=\"2\"}"), "3:52: found a twice, expected it once"},
    {Entry("y = f32[2] negate(x), frontend_attributes={a=1}"),
     "3:48: found \"1\", expected a string in quotes or a value in braces"},
}));

INSTANTIATE_TEST_SUITE_P(Attributes, TextErrors, ::testing::ValuesIn(std::vector<BadText>{
    {"f32[2] reduce-window(f32[4] x, f32[] y), window={size=2x2 stride=2}",
     "1:66: found stride of 1 dimension, expected 2 as in size"},
    {"f32[2] reduce-window(f32[4] x, f32[] y), window={size=2 pad=1}",
     "1:61: found \"1\", expected padding, as in 0_1x0_1"},
    {"f32[2] reduce-window(f32[4] x, f32[] y), window={sizes=2}",
     "1:50: found \"sizes\", expected size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal"},
    {"f32[2] convolution(f32[4] x, f32[] y), dim_labels=b0f_0io",
     "1:51: found \"b0f_0io\", expected dimension labels, as in b01f_01io->b01f"},
    {"f32[2] convolution(f32[4] x, f32[] y), dim_labels=b0q_0io->b0f",
     "1:51: found \"b0q_0io-\", expected dimension labels, as in b01f_01io->b01f"},
    {"f32[2] slice(f32[4] x), slice={[0:2:1:1]}", "1:38: found \":\", expected ]"},
    {"f32[2] pad(f32[4] x, f32[] y), padding=0", "1:40: found \"0\", expected padding, as in 0_1x2_2_1"},
    {"pred[] compare(f32[] x, f32[] y), direction=XX", "1:45: found \"XX\", expected one of EQ, NE, GE, GT, LE, LT"},
    {"c64[5] fft(f32[8] x), fft_type=FOO", "1:32: found \"FOO\", expected one of FFT, IFFT, RFFT, IRFFT"},
    {"f32[] reduce-precision(f32[] x), exponent_bits=99999999999",
     "1:48: found \"99999999999\", expected an integer of 32 bits"},
    {"f32[8] all-to-all(f32[8] x), replica_groups={0,1}", "1:46: found \"0\", expected {"},
    {"f32[8] all-to-all(f32[8] x), replica_groups=[2,4]<=[9]", "1:45: found an iota of 9 devices, expected 8"},
    {"f32[8] all-to-all(f32[8] x), replica_groups=[8]<=[8]", "1:45: found \"[\", expected [groups,size]<=[...]"},
    {"f32[8] all-to-all(f32[8] x), replica_groups=mesh['a'=2] {'b'}",
     "1:58: found axis 'b', expected an axis of the mesh"},
    {"f32[8] all-to-all(f32[8] x), replica_groups=mesh['a'=8] {'a':(3)2}",
     "1:58: found 'a':(3)2, expected a part that divides the axis's size 8"},
    {"f32[8] all-to-all(f32[8] x), replica_groups=mesh['a'=2], device_ids=(0) {'a'}",
     "1:69: found 1 device id, expected the mesh's 2"},
    {"f32[8] negate(f32[8] x), sharding={replicate}",
     "1:36: found \"replicate\", expected replicated, maximal, manual, unknown, unreduced, devices=[...] or "
     "mesh[...]"},
    {"f32[8] negate(f32[8] x), sharding={devices=[2,2]0,1,2}",
     "1:44: found 3 devices for a tile assignment, expected 4"},
    {"f32[8] negate(f32[8] x), sharding={devices=[2,2]<=[2,2]T(0,0)}",
     "1:44: found dimension 0 twice in a transposition, expected a permutation of the iota's 2 dimensions"},
    {"f32[8] negate(f32[8] x), sharding={devices=[1048576,1048576]<=[1099511627776]}",
     "1:44: found more than 2^20 devices, expected at most 2^20"},
    {"f32[8] negate(f32[8] x), sharding={devices=[8]<=[8]T(5)}", "1:53: found \"(\", expected (0)"},
    {"f32[8] negate(f32[8] x), sharding={devices=[2]<=[2] replicated}",
     "1:36: found \"devices\", expected one kind of sharding, such as replicated or devices=[...]"},
    {"f32[8] negate(f32[8] x), sharding={maximal}",
     "1:36: found \"maximal\", expected one device of maximal, as in maximal device=3"},
    {"f32[8] negate(f32[8] x), sharding={replicated device=1}",
     "1:36: found \"replicated\", expected device= only with maximal"},
    {"f32[8] negate(f32[8] x), sharding={mesh['a'=2], [{'c'}]}", "1:51: found axis 'c', expected an axis of the mesh"},
    {"f32[8] negate(f32[8] x), sharding={mesh['a'=0]}",
     "1:41: found axis 'a' of size 0, expected sizes of 1 or more, and at most 2^20 devices together"},
    {"f32[8] negate(f32[8] x), sharding={mesh['a'=2,'a'=2], [{'a'}]}",
     "1:47: found axis 'a' twice, expected it once"},
    {"f32[8] negate(f32[8] x), sharding={mesh['a'=2], [{?, 'a'}]}", "1:52: found \",\", expected } after ?"},
}));

INSTANTIATE_TEST_SUITE_P(ShapesAndLiterals, TextErrors, ::testing::ValuesIn(std::vector<BadText>{
    {"f31[2] constant({1})", "1:1: found \"f31\", expected a shape, as in f32[128,256]"},
    {"f32[2 constant({1})", "1:7: found \"constant\", expected ]"},
    {"f32[-1] constant({1})", "1:1: found dimension size -1, expected 0 or more"},
    {"f32[?4] parameter(0)", "1:6: found \"4\", expected ]"},
    {"f32[<=?] parameter(0)", "1:7: found \"?\", expected an integer of 64 bits"},
    {"f32[8589934592,8589934592] parameter(0)",
     "1:1: found shape f32[8589934592,8589934592], expected at most 2^62 bytes"},
    {"f32[36893488147419103232] parameter(0)", "1:5: found \"36893488147419103232\", expected an integer of 64 bits"},
    {"f32[2,2]{1,1} parameter(0)", "1:10: found a layout with dimension 1, expected each of 0 to 1 once"},
    {"f32[]{0} parameter(0)", "1:7: found a layout with dimension 0, expected none, of a scalar"},
    {"f32[2,2]{0} parameter(0)", "1:10: found a layout of 1 dimension, expected the shape's 2"},
    {"f32[2,2]{1,0:S(1} parameter(0)", "1:17: found \"}\", expected )"},
    {"f32[1000000000] constant({1})", "1:26: found too few values, expected the 1000000000 of f32[1000000000]"},
    {"f32[1000000000] constant(1)",
     "1:26: found constants with a single value and more than 256 MiB in total, the last one f32[1000000000], "
     "expected all of their values"},
    {"f32[3] constant({1, 2})", "1:22: found \"}\", expected ,"},
    {"f32[2] constant({1, 2, 3})", "1:22: found \",\", expected }"},
    {"f32[2,1] constant({1, 2})", "1:20: found \"1\", expected {"},
    {"s8[] constant(128)", "1:15: found \"128\", expected an integer of s8 (-128 to 127)"},
    {"u8[] constant(-1)", "1:15: found \"-1\", expected an integer of u8 (0 to 255)"},
    {"s4[] constant(8)", "1:15: found \"8\", expected an integer of s4 (-8 to 7)"},
    {"s32[] constant(1.5)", "1:16: found \"1.5\", expected an integer of s32 (-2147483648 to 2147483647)"},
    {"pred[] constant(yes)", "1:17: found \"yes\", expected true or false"},
    {"f32[] constant(1e39)", "1:16: found \"1e39\", expected a number of f32"},
    {"f16[] constant(65520)", "1:16: found \"65520\", expected a number of f16"},
    {"f8e4m3fn[] constant(inf)", "1:21: found \"inf\", expected a number of f8e4m3fn"},
    {"f4e2m1fn[] constant(nan)", "1:21: found \"nan\", expected a number of f4e2m1fn"},
    {"f32[] constant(nan(7))", "1:16: found \"nan\", expected a NaN's payload, as in nan(0x7)"},
    {"f32[] constant(nan(0x800000))", "1:16: found \"nan\", expected a NaN that fits f32"},
    {"f32[] constant(1.5x)", "1:16: found \"1.5x\", expected a number of f32"},
    {"c64[] constant((1))", "1:18: found \")\", expected ,"},
    {"f32[0] constant({1})", "1:18: found \"1\", expected braces only, because the shape has no elements"},
    {"token[] constant(1)", "1:18: found \"1\", expected no value, because the shape is neither an array nor a tuple"},
    {"(f32[], s32[]) constant((1))", "1:27: found \")\", expected ,"},
}));

TEST(TextNesting, IsLimited) {
  const auto repeat = [](absl::string_view piece, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text.append(piece.data(), piece.size());
    return text;
  };
  const std::string deep[] = {
      repeat("(", 100000) + "f32[]",
      "f32[] negate(f32[] x), sharding=" + repeat("{", 100000),
      "f32[] negate(" + repeat("f32[] negate(", 100000),
      "f32[] call(f32[] x), to_apply=" + repeat("{ a = f32[] call(b), to_apply=", 100000),
      "f32[" + repeat("1,", 100000) + "1] constant(" + repeat("{", 100001),
  };
  for (const std::string& text : deep) {
    const absl::Status status = ParseText(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("1:")) << text.substr(0, 60);
  }
  // 199 levels are allowed.
  EXPECT_TRUE(ParseText(repeat("(", 199) + "f32[]" + repeat(")", 199) + " parameter(0)").ok());
}

// A line of more than a megabyte, many names, and an instruction with many operands.
TEST(TextSize, LongLinesAndManyInstructions) {
  std::string text = "ENTRY e { x0 = f32[] parameter(0) ";
  for (int i = 1; i < 50000; ++i) {
    text += "x" + std::to_string(i) + " = f32[] negate(x" + std::to_string(i - 1) + ") ";
  }
  const absl::StatusOr<std::unique_ptr<Module>> module = ParseText(text + "}");
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ((*module)->entry()->instructions().size(), 50000u);
  EXPECT_FALSE(ParseText(text).ok());
  std::string users = "ENTRY e {\n  x = f32[] parameter(0)\n  ROOT t = (f32[]";
  std::string operands = "x";
  for (int i = 1; i < 50000; ++i) {
    users += ", f32[]";
    operands += ", x";
  }
  EXPECT_TRUE(ParseText(users + ") tuple(" + operands + ")\n}").ok());
}

}  // namespace
}  // namespace xlad::hlo
