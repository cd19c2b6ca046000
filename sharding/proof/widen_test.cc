#include "sharding/proof/widen.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hlo/eval/evaluate.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

using hlo::Literal;
using tensor::Array;
using tensor::ElementType;

struct NarrowProgram {
  const char* name;
  const char* text;  // HLO, or the path of a file.
};

constexpr NarrowProgram kNarrowPrograms[] = {
    {"arithmetic", R"(HloModule m,
  entry_computation_layout={(f32[3,4]{1,0},bf16[4,2]{1,0})->(f32[3,2]{1,0}, bf16[3]{0})}
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[3,4] parameter(0)
  y = bf16[4,2] parameter(1)
  w = f32[4,2] convert(y)
  d = f32[3,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  h = f32[] constant(0.1)
  hs = f32[3,2] broadcast(h), dimensions={}
  s = f32[3,2] multiply(d, hs)
  r = f32[3,2] reduce-precision(s), exponent_bits=8, mantissa_bits=7
  t = f32[3] reduce(r, h), dimensions={1}, to_apply=add
  n = bf16[3] convert(t)
  ROOT o = (f32[3,2], bf16[3]) tuple(r, n)
})"},
    {"bits", R"(HloModule m
ENTRY main {
  x = f32[5] parameter(0)
  b = u32[5] bitcast-convert(x)
  one = u32[] constant(4194304)
  ones = u32[5] broadcast(one), dimensions={}
  o = u32[5] or(b, ones)
  f = f32[5] bitcast-convert(o)
  ROOT r = (f32[5], u32[5], f32[5]) tuple(f, o, x)
})"},
    {"loop", "sharding/proof/testdata/loop_of_sums.hlo"},
    {"complex", R"(HloModule m
ENTRY main {
  x = f32[3] parameter(0)
  y = f32[3] parameter(1)
  c = c64[3] complex(x, y)
  m = c64[3] multiply(c, c)
  ROOT r = f32[3] real(m)
})"},
};

double At(const Array& array, size_t i) {
  double parts[2] = {0, 0};
  FloatParts(array, i, parts);
  return parts[0];
}

TEST(Widen, ProgramsStayValidAndComputeTheSame) {
  for (const NarrowProgram& program : kNarrowPrograms) {
    SCOPED_TRACE(program.name);
    const std::string text = program.text;
    std::unique_ptr<hlo::Module> narrow = *hlo::ParseText(text.ends_with(".hlo") ? hlo::TestText(text) : text);
    const std::vector<Literal> inputs = SampleInputs(*narrow);
    std::unique_ptr<hlo::Module> module = narrow->Clone();
    const absl::Status widened = Widen(module.get());
    ASSERT_TRUE(widened.ok()) << widened;
    const absl::Status sound = hlo::Verify(*module);
    ASSERT_TRUE(sound.ok()) << sound << hlo::PrintText(*module);
    const auto wide_inputs = Widen(inputs);
    ASSERT_TRUE(wide_inputs.ok());
    const Literal expected = *hlo::Evaluate(*narrow, inputs);
    const auto found = hlo::Evaluate(*module, *wide_inputs);
    ASSERT_TRUE(found.ok()) << found.status();
    const size_t leaves = expected.is_tuple ? expected.tuple.size() : 1;
    for (size_t leaf = 0; leaf < leaves; ++leaf) {
      const Array& a = expected.is_tuple ? expected.tuple[leaf].array : expected.array;
      const Array& b = found->is_tuple ? found->tuple[leaf].array : found->array;
      if (!tensor::IsFloating(a.shape().type)) {
        EXPECT_EQ(a, b);  // Bits of narrow floats are integers, too.
        continue;
      }
      EXPECT_EQ(b.shape().type, ElementType::kF64);
      for (size_t i = 0; i < static_cast<size_t>(a.elements()); ++i) {
        EXPECT_NEAR(At(a, i), At(b, i), 0.02 * std::abs(At(b, i)) + 1e-3) << leaf << " " << i;
      }
    }
  }
}

TEST(Widen, NarrowTypesNoLongerRound) {
  std::unique_ptr<hlo::Module> module = *hlo::ParseText(R"(HloModule m
ENTRY main {
  x = f32[] parameter(0)
  third = f32[] constant(3)
  d = f32[] divide(x, third)
  n = bf16[] convert(d)
  w = f32[] convert(n)
  ROOT r = f32[] reduce-precision(w), exponent_bits=5, mantissa_bits=3
})");
  ASSERT_TRUE(Widen(module.get()).ok());
  const auto one = Widen({Literal(Array::FromValues<float>(ElementType::kF32, {}, {1.0F}))});
  EXPECT_EQ(At(hlo::Evaluate(*module, *one)->array, 0), 1.0 / 3);
}

}  // namespace
}  // namespace xlad::sharding
