// Powers by constants: the simplified program, which has no power, is compared with the evaluator's powers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/passes/passes.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::compiler {
namespace {

constexpr int kBases = 20;

template <typename Float>
tensor::Array Bases(const Shape& shape) {
  constexpr Float kInfinity = std::numeric_limits<Float>::infinity();
  const Float values[kBases] = {0,     -Float{0}, kInfinity, -kInfinity, NAN,  1,    -1,     2,     -2,   0.5,
                                -0.25, 3,         -3,        1e-3,       1e10, 1e-9, 3.25e8, -7e-5, 1e30, 1e-30};
  tensor::Array array(shape.array());
  std::copy(values, values + kBases, array.values<Float>().begin());
  return array;
}

// Results that are not normal numbers may differ, but not in sign.
template <typename Float>
void ExpectClose(Float found, Float expected) {
  constexpr Float kNormal = std::numeric_limits<Float>::min();
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << found;
    return;
  }
  EXPECT_EQ(std::signbit(found), std::signbit(expected)) << found;
  if (std::isinf(expected)) {
    EXPECT_EQ(found, expected);
  } else if (std::abs(expected) < kNormal) {
    EXPECT_LT(std::abs(found), kNormal);
  } else {
    EXPECT_LE(std::abs(found - expected), 4 * std::numeric_limits<Float>::epsilon() * std::abs(expected)) << found;
  }
}

template <typename Float>
void ExpectSamePower(const std::string& type, double exponent) {
  SCOPED_TRACE(absl::StrCat(type, " to the power of ", exponent));
  auto module = hlo::ParseText(absl::StrCat("HloModule m\nENTRY e {\n  x = ", type, "[", kBases,
                                            "] parameter(0)\n  c = ", type, "[] constant(", exponent, ")\n  y = ", type,
                                            "[", kBases, "] broadcast(c), dimensions={}\n  ROOT r = ", type, "[",
                                            kBases, "] power(x, y)\n}\n"));
  ASSERT_TRUE(module.ok()) << module.status();
  const std::vector<hlo::Literal> inputs = {
      hlo::Literal(Bases<Float>((*module)->entry()->parameter(0)->shape()))};
  const auto expected = hlo::Evaluate(**module, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  PassContext context;
  ASSERT_TRUE(Simplify(**module, context).ok());
  ASSERT_TRUE(hlo::Verify(**module).ok()) << hlo::Verify(**module);
  EXPECT_NE((*module)->entry()->root()->opcode(), Opcode::kPower) << hlo::PrintText(**module);
  const auto found = hlo::Evaluate(**module, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  for (int i = 0; i < kBases; ++i) {
    SCOPED_TRACE(absl::StrCat("base ", inputs[0].array.values<Float>()[i]));
    ExpectClose(found->array.values<Float>()[i], expected->array.values<Float>()[i]);
  }
}

TEST(SimplifyPowers, WholeNumbersAndHalvesKeepSpecialValues) {
  for (int halves = -8; halves <= 8; ++halves) {
    if (halves == 0) continue;
    ExpectSamePower<float>("f32", halves * 0.5);
    ExpectSamePower<double>("f64", halves * 0.5);
  }
}

}  // namespace
}  // namespace xlad::compiler
