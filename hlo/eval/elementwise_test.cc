// Elementwise instructions on edge cases of each family, with results computed by hand.
#include "hlo/eval/test_programs.h"

namespace xlad::hlo {
namespace {

using testing::Constant;
using testing::InstructionCase;
using testing::OneInstruction;

class ElementwiseTest : public ::testing::TestWithParam<InstructionCase> {};

TEST_P(ElementwiseTest, HasTheExpectedBits) { testing::CheckInstruction(GetParam()); }

const InstructionCase kIntegers[] = {
    {"add", {"s32[3] {2147483647, -2147483648, 5}", "s32[3] {1, -1, -7}"}, "s32[3] {-2147483648, 2147483647, -2}"},
    {"add", {"s4[3] {7, -8, 3}", "s4[3] {1, -1, 2}"}, "s4[3] {-8, 7, 5}"},
    {"add", {"u2[3] {3, 1, 2}", "u2[3] {1, 1, 3}"}, "u2[3] {0, 2, 1}"},
    {"add", {"pred[3] {true, true, false}", "pred[3] {true, false, false}"}, "pred[3] {true, true, false}"},
    {"subtract", {"u8[2] {0, 200}", "u8[2] {1, 100}"}, "u8[2] {255, 100}"},
    {"multiply", {"u16[2] {65535, 300}", "u16[2] {65535, 300}"}, "u16[2] {1, 24464}"},
    {"multiply", {"s64[1] {4611686018427387904}", "s64[1] {4}"}, "s64[1] {0}"},
    {"divide", {"s32[5] {7, -7, 5, 0, -2147483648}", "s32[5] {2, 2, 0, 0, -1}"}, "s32[5] {3, -3, -1, -1, -2147483648}"},
    {"divide", {"u32[2] {7, 5}", "u32[2] {2, 0}"}, "u32[2] {3, 4294967295}"},
    {"divide", {"s8[2] {-128, 100}", "s8[2] {-1, 0}"}, "s8[2] {-128, -1}"},
    {"divide", {"u4[2] {9, 9}", "u4[2] {2, 0}"}, "u4[2] {4, 15}"},
    {"remainder", {"s32[5] {7, -7, 5, 7, -2147483648}", "s32[5] {3, 3, 0, -3, -1}"}, "s32[5] {1, -1, 5, 1, 0}"},
    {"remainder", {"u64[2] {18446744073709551615, 5}", "u64[2] {10, 0}"}, "u64[2] {5, 5}"},
    {"power", {"s32[6] {2, -1, -1, 3, 0, 1}", "s32[6] {10, -3, -2, -1, 0, -9}"}, "s32[6] {1024, -1, 1, 0, 1, 1}"},
    {"power", {"u8[2] {2, 3}", "u8[2] {8, 5}"}, "u8[2] {0, 243}"},
    {"maximum", {"s8[2] {-1, 5}", "s8[2] {1, -5}"}, "s8[2] {1, 5}"},
    {"minimum", {"u8[2] {255, 5}", "u8[2] {1, 6}"}, "u8[2] {1, 5}"},
    {"and", {"u8[1] {204}", "u8[1] {170}"}, "u8[1] {136}"},
    {"or", {"pred[2] {true, false}", "pred[2] {false, false}"}, "pred[2] {true, false}"},
    {"xor", {"s4[2] {-1, 5}", "s4[2] {5, 5}"}, "s4[2] {-6, 0}"},
    {"not", {"u4[2] {0, 5}"}, "u4[2] {15, 10}"},
    {"not", {"pred[2] {true, false}"}, "pred[2] {false, true}"},
    {"shift-left", {"s32[4] {1, 1, 1, -1}", "s32[4] {31, 32, -1, 4}"}, "s32[4] {-2147483648, 0, 0, -16}"},
    {"shift-left", {"u4[2] {3, 3}", "u4[2] {3, 4}"}, "u4[2] {8, 0}"},
    {"shift-right-logical", {"s32[3] {-1, -1, -1}", "s32[3] {28, 32, -1}"}, "s32[3] {15, 0, 0}"},
    {"shift-right-logical", {"s4[2] {-1, -8}", "s4[2] {2, 3}"}, "s4[2] {3, 1}"},
    {"shift-right-arithmetic", {"s32[4] {-8, -8, 8, 8}", "s32[4] {1, 40, 1, 40}"}, "s32[4] {-4, -1, 4, 0}"},
    {"shift-right-arithmetic", {"u8[2] {128, 64}", "u8[2] {1, 9}"}, "u8[2] {192, 0}"},
    {"abs", {"s32[3] {-5, 5, -2147483648}"}, "s32[3] {5, 5, -2147483648}"},
    {"negate", {"s8[2] {-128, 5}"}, "s8[2] {-128, -5}"},
    {"negate", {"u32[1] {1}"}, "u32[1] {4294967295}"},
    {"sign", {"s64[3] {-9, 0, 9}"}, "s64[3] {-1, 0, 1}"},
    {"popcnt", {"s4[3] {-1, 0, 5}"}, "s4[3] {4, 0, 2}"},
    {"popcnt", {"u64[1] {18446744073709551615}"}, "u64[1] {64}"},
    {"count-leading-zeros", {"s32[3] {0, 1, -1}"}, "s32[3] {32, 31, 0}"},
    {"count-leading-zeros", {"u4[3] {0, 1, 8}"}, "u4[3] {4, 3, 0}"},
    {"mulhi", {"s32[2] {-1, 1073741824}", "s32[2] {1, 8}"}, "s32[2] {-1, 2}"},
    {"mulhi", {"u64[1] {18446744073709551615}", "u64[1] {18446744073709551615}"}, "u64[1] {18446744073709551614}"},
    {"clamp", {"s32[] 0", "s32[3] {-5, 5, 15}", "s32[] 10"}, "s32[3] {0, 5, 10}"},
    {"select", {"pred[] false", "s32[2] {1, 2}", "s32[2] {3, 4}"}, "s32[2] {3, 4}"},
    {"select", {"pred[2] {true, false}", "s32[2] {1, 2}", "s32[2] {3, 4}"}, "s32[2] {1, 4}"},
    {"compare", {"u8[2] {200, 1}", "u8[2] {100, 1}"}, "pred[2] {true, false}", "direction=GT"},
    {"compare", {"s8[2] {-56, 1}", "s8[2] {100, 1}"}, "pred[2] {false, false}", "direction=GT"},
};
INSTANTIATE_TEST_SUITE_P(Integers, ElementwiseTest, ::testing::ValuesIn(kIntegers));

const InstructionCase kFloats[] = {
    {"maximum", {"f32[4] {nan, 1, -0, 0}", "f32[4] {1, nan, 0, -0}"}, "f32[4] {nan, nan, 0, 0}"},
    {"minimum", {"f32[4] {nan, 1, -0, 0}", "f32[4] {1, nan, 0, -0}"}, "f32[4] {nan, nan, -0, -0}"},
    {"clamp", {"f32[] -1", "f32[4] {nan, -5, 0.5, inf}", "f32[] 1"}, "f32[4] {nan, -1, 0.5, 1}"},
    {"clamp", {"f32[] 3", "f32[1] {2}", "f32[] 1"}, "f32[1] {1}"},
    {"divide", {"f32[4] {1, -1, 0, 6}", "f32[4] {0, 0, 0, 4}"}, "f32[4] {inf, -inf, nan, 1.5}"},
    {"remainder", {"f32[4] {7.5, -7.5, 5, inf}", "f32[4] {2, 2, inf, 2}"}, "f32[4] {1.5, -1.5, 5, nan}"},
    {"power",
     {"f64[5] {2, -2, 0, -8, nan}", "f64[5] {0.5, 3, 0, 0.5, 0}"},
     "f64[5] {1.4142135623730951, -8, 1, nan, 1}"},
    {"atan2",
     {"f64[4] {0, 0, -0, 1}", "f64[4] {1, -1, -1, 0}"},
     "f64[4] {0, 3.1415926535897931, -3.1415926535897931, 1.5707963267948966}"},
    {"abs", {"f32[3] {-0, -inf, -2.5}"}, "f32[3] {0, inf, 2.5}"},
    {"abs", {"c64[1] {(3, -4)}"}, "f32[1] {5}"},
    {"sign", {"f32[5] {-0, 0, nan, -3, inf}"}, "f32[5] {-0, 0, nan, -1, 1}"},
    {"sign", {"c128[2] {(3, -4), (0, 0)}"}, "c128[2] {(0.6, -0.8), (0, 0)}"},
    {"round-nearest-even", {"f32[5] {0.5, 1.5, 2.5, -0.5, -1.5}"}, "f32[5] {0, 2, 2, -0, -2}"},
    {"round-nearest-afz", {"f32[5] {0.5, 1.5, 2.5, -0.5, -1.5}"}, "f32[5] {1, 2, 3, -1, -2}"},
    {"floor", {"f32[3] {-0.5, 0.5, -0}"}, "f32[3] {-1, 0, -0}"},
    {"ceil", {"bf16[3] {-0.5, 0.5, 2}"}, "bf16[3] {-0, 1, 2}"},
    {"is-finite", {"f16[4] {1, inf, -inf, nan}"}, "pred[4] {true, false, false, false}"},
    {"add", {"bf16[2] {256, 1}", "bf16[2] {1, 0.00390625}"}, "bf16[2] {256, 1}"},
    {"add", {"f8e4m3fn[2] {448, 16}", "f8e4m3fn[2] {448, 1}"}, "f8e4m3fn[2] {nan, 16}"},
    {"add", {"f8e5m2[2] {57344, 8}", "f8e5m2[2] {57344, 3}"}, "f8e5m2[2] {inf, 12}"},
    {"multiply", {"f16[2] {300, 0.0001}", "f16[2] {300, 0.0001}"}, "f16[2] {inf, 0}"},
    {"multiply", {"c64[1] {(1, 2)}", "c64[1] {(3, 4)}"}, "c64[1] {(-5, 10)}"},
    {"divide", {"c128[1] {(-5, 10)}", "c128[1] {(3, 4)}"}, "c128[1] {(1, 2)}"},
    {"complex", {"f32[2] {1, -0}", "f32[2] {2, nan}"}, "c64[2] {(1, 2), (-0, nan)}"},
    {"sign",
     {"c128[4] {(1.7e308, 0), (1.2e308, -1.6e308), (3e-324, -4e-323), (0, -5e-324)}"},
     "c128[4] {(1, 0), (0.6, -0.79999999999999993), (0.12403473458920847, -0.99227787671366774), (0, -1)}"},
    {"real", {"c64[1] {(1, 2)}"}, "f32[1] {1}"},
    {"imag", {"c64[1] {(1, 2)}"}, "f32[1] {2}"},
    {"compare",
     {"f32[4] {nan, -0, 1, nan}", "f32[4] {nan, 0, 2, 1}"},
     "pred[4] {false, true, false, false}",
     "direction=EQ"},
    {"compare",
     {"f32[4] {nan, -0, 1, nan}", "f32[4] {nan, 0, 2, 1}"},
     "pred[4] {true, false, true, true}",
     "direction=NE"},
    {"compare",
     {"f32[4] {nan, -0, inf, 1}", "f32[4] {nan, 0, nan, -nan}"},
     "pred[4] {false, true, true, false}",
     "direction=LT, type=TOTALORDER"},
    {"compare",
     {"f16[3] {nan(0x201), -nan(0x201), nan(0x202)}", "f16[3] {nan(0x202), -nan(0x202), nan(0x202)}"},
     "pred[3] {true, false, false}",
     "direction=LT, type=TOTALORDER"},
    {"exponential", {"f32[4] {0, -inf, inf, nan}"}, "f32[4] {1, 0, inf, nan}"},
    {"log", {"f32[4] {1, 0, -1, inf}"}, "f32[4] {0, -inf, nan, inf}"},
    {"exponential-minus-one", {"f64[2] {1e-20, -inf}"}, "f64[2] {1e-20, -1}"},
    {"log-plus-one", {"f64[3] {1e-20, -1, -2}"}, "f64[3] {1e-20, -inf, nan}"},
    {"logistic", {"f32[3] {0, inf, -inf}"}, "f32[3] {0.5, 1, 0}"},
    {"rsqrt", {"f32[4] {4, 0, -0, -1}"}, "f32[4] {0.5, inf, -inf, nan}"},
    {"sqrt", {"f32[3] {2, -1, -0}"}, "f32[3] {1.41421354, nan, -0}"},
    {"sqrt", {"f64[1] {1.7976931348623157e+308}"}, "f64[1] {1.3407807929942596e+154}"},
    {"cbrt", {"f64[2] {-27, 8}"}, "f64[2] {-3, 2}"},
    {"tanh", {"bf16[2] {inf, 0.5}"}, "bf16[2] {1, 0.4629}"},
    {"erf", {"f32[2] {0, inf}"}, "f32[2] {0, 1}"},
};
INSTANTIATE_TEST_SUITE_P(Floats, ElementwiseTest, ::testing::ValuesIn(kFloats));

const InstructionCase kConversions[] = {
    {"convert", {"f32[6] {nan, inf, -inf, 3e9, -1.9, 1.9}"}, "s32[6] {0, 2147483647, -2147483648, 2147483647, -1, 1}"},
    {"convert", {"f32[4] {nan, -5, 300, 255.9}"}, "u8[4] {0, 0, 255, 255}"},
    {"convert",
     {"f64[3] {1e30, -1e30, 9007199254740993}"},
     "s64[3] {9223372036854775807, -9223372036854775808, 9007199254740992}"},
    {"convert", {"f64[2] {1e30, 9223372036854775808}"}, "u64[2] {18446744073709551615, 9223372036854775808}"},
    {"convert", {"f32[4] {9, -9, 1.5, nan}"}, "s4[4] {7, -8, 1, 0}"},
    {"convert", {"s32[3] {300, -1, 128}"}, "s8[3] {44, -1, -128}"},
    {"convert", {"s32[3] {9, -9, 7}"}, "s4[3] {-7, 7, 7}"},
    {"convert", {"s8[2] {-1, 5}"}, "u32[2] {4294967295, 5}"},
    {"convert", {"u4[2] {15, 3}"}, "f32[2] {15, 3}"},
    {"convert", {"f32[4] {0, -0, nan, 0.1}"}, "pred[4] {false, false, true, true}"},
    {"convert", {"s32[3] {0, 256, -1}"}, "pred[3] {false, true, true}"},
    {"convert", {"pred[2] {true, false}"}, "bf16[2] {1, 0}"},
    {"convert", {"pred[2] {true, false}"}, "s4[2] {1, 0}"},
    {"convert", {"s32[2] {16777217, 16777219}"}, "f32[2] {16777216, 16777220}"},
    {"convert", {"s32[1] {33023}"}, "bf16[1] {33024}"},
    // More than 53 bits are rounded to nearest even.
    {"convert",
     {"s64[4] {9007199254740993, -9007199254740995, 9223372036854775807, -18014398509481987}"},
     "f64[4] {9007199254740992, -9007199254740996, 9223372036854775808, -18014398509481988}"},
    {"convert", {"u64[2] {18446744073709551615, 9007199254740993}"}, "f64[2] {18446744073709551616, 9007199254740992}"},
    {"convert", {"s64[1] {9007199254740993}"}, "c128[1] {(9007199254740992, 0)}"},
    {"convert", {"s64[1] {36028799166447617}"}, "f32[1] {36028801313931264}"},
    {"convert", {"u64[1] {18410715276690587649}"}, "bf16[1] {18446744073709551616}"},
    {"convert", {"f64[2] {1.00390625, 1.0039062500000002}"}, "bf16[2] {1, 1.0078125}"},
    {"convert", {"f32[3] {65519, 65520, 1e-8}"}, "f16[3] {65504, inf, 0}"},
    {"convert", {"f32[3] {464, 465, nan}"}, "f8e4m3fn[3] {448, nan, nan}"},
    {"convert", {"f8e4m3fn[2] {448, 0.001953125}"}, "f8e5m2[2] {448, 0.001953125}"},
    {"convert",
     {"f64[6] {1e-80, 5.8774717541114375e-39, 7e-39, 3e-39, 2.7e38, 3}"},
     "f8e8m0fnu[6] {nan, 5.8774717541114375e-39, 1.1754943508222875e-38, 5.8774717541114375e-39, nan, 4}"},
    {"convert", {"f32[3] {5, 7, -0.25}"}, "f4e2m1fn[3] {4, 6, -0}"},
    {"convert", {"c64[1] {(1.5, 2)}"}, "f32[1] {1.5}"},
    {"convert", {"f32[1] {1.5}"}, "c128[1] {(1.5, 0)}"},
    {"bitcast-convert", {"f32[2] {1, -0}"}, "u32[2] {1065353216, 2147483648}"},
    {"bitcast-convert", {"u32[1] {67305985}"}, "u8[1,4] {{1, 2, 3, 4}}"},
    {"bitcast-convert", {"u8[1,4] {{1, 2, 3, 4}}"}, "u32[1] {67305985}"},
    {"bitcast-convert", {"u8[2] {33, 255}"}, "s4[2,2] {{1, 2}, {-1, -1}}"},
    {"bitcast-convert", {"s4[2,2] {{1, 2}, {-1, -1}}"}, "u8[2] {33, 255}"},
    {"bitcast-convert", {"s4[2] {-1, 3}"}, "u4[2] {15, 3}"},
    {"reduce-precision",
     {"f32[4] {1.1, 1e10, -1e-10, nan}"},
     "f32[4] {1.09960938, inf, -0, nan}",
     "exponent_bits=5, mantissa_bits=10"},
    {"reduce-precision", {"f32[3] {1.5, 2.5, 3.5}"}, "f32[3] {2, 2, 4}", "exponent_bits=8, mantissa_bits=0"},
    {"reduce-precision", {"bf16[1] {1.0078125}"}, "bf16[1] {1}", "exponent_bits=8, mantissa_bits=6"},
    {"stochastic-convert",
     {"f32[4] {1.25, 1.25, -1.25, 300}", "u32[4] {0, 4294967295, 1, 0}"},
     "s8[4] {2, 1, -2, 127}"},
};
INSTANTIATE_TEST_SUITE_P(Conversions, ElementwiseTest, ::testing::ValuesIn(kConversions));

TEST(Elementwise, UndefinedTypesAreErrors) {
  const auto module = OneInstruction("pred[1]", "not", {"pred[1] {true}"});
  ASSERT_NE(module, nullptr);
  EXPECT_TRUE(testing::Run(*module).ok());
  // This instruction is evaluated without the verifier, which would refuse it.
  const Literal value = Constant("f32[1] {1}");
  const auto floats = OneInstruction("f32[1]", "negate", {"f32[1] {1}"});
  Instruction bad(Opcode::kPopcnt, floats->entry()->root()->shape());
  bad.AppendOperand(floats->entry()->root()->operand(0));
  const auto result = EvaluateInstruction(bad, {&value});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(result.status().message(), "popcnt is not defined for f32");
}

}  // namespace
}  // namespace xlad::hlo
