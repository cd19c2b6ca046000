// Compares the evaluator's results before and after the pass, and the results of the step program, for products with
// a matrix that the loop does not change.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "compiler/passes/passes.h"
#include "compiler/testing/compare.h"
#include "compiler/testing/random_inputs.h"
#include "compiler/testing/run_steps.h"
#include "hlo/eval/evaluate.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"

namespace xlad::compiler {
namespace {

// Adds dot(i x, w) to a sum in iteration i.
struct ProductLoop {
  Dims x, w, sum;
  Dims x_contracting, w_contracting;
  int64_t trips = 8;
  bool is_packed = true;
  bool changes_w = false;
};

constexpr char kLoop[] = R"(HloModule m
%cond { p = (s32[], f32[S], f32[X], f32[W]) parameter(0) i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(TRIPS) ROOT c = pred[] compare(i, n), direction=LT }
%body { p = (s32[], f32[S], f32[X], f32[W]) parameter(0) i = s32[] get-tuple-element(p), index=0
  s = f32[S] get-tuple-element(p), index=1 x = f32[X] get-tuple-element(p), index=2
  w = f32[W] get-tuple-element(p), index=3 one = s32[] constant(1) j = s32[] add(i, one) f = f32[] convert(i)
  fs = f32[X] broadcast(f), dimensions={} y = f32[X] multiply(x, fs) v = f32[W] CHANGE(w)
  d = f32[S] dot(y, w), lhs_contracting_dims={LC}, rhs_contracting_dims={RC} t = f32[S] add(s, d)
  ROOT r = (s32[], f32[S], f32[X], f32[W]) tuple(j, t, x, NEXT) }
ENTRY e { s = f32[S] parameter(0) x = f32[X] parameter(1) w = f32[W] parameter(2) zero = s32[] constant(0)
  t = (s32[], f32[S], f32[X], f32[W]) tuple(zero, s, x, w)
  l = (s32[], f32[S], f32[X], f32[W]) while(t), condition=%cond, body=%body
  ROOT a = f32[S] get-tuple-element(l), index=1 }
)";

std::string TextOf(const ProductLoop& loop) {
  const auto sizes = [](const Dims& dims) { return absl::StrJoin(dims, ","); };
  return absl::StrReplaceAll(kLoop, {{"f32[S]", absl::StrCat("f32[", sizes(loop.sum), "]")},
                                     {"f32[X]", absl::StrCat("f32[", sizes(loop.x), "]")},
                                     {"f32[W]", absl::StrCat("f32[", sizes(loop.w), "]")},
                                     {"TRIPS", absl::StrCat(loop.trips)},
                                     {"{LC}", absl::StrCat("{", sizes(loop.x_contracting), "}")},
                                     {"{RC}", absl::StrCat("{", sizes(loop.w_contracting), "}")},
                                     {"CHANGE", "negate"},
                                     {"NEXT", loop.changes_w ? "v" : "w"}});
}

// Whether a dot of the module has an operand of panels.
bool HasPackedDot(const Module& module) {
  for (const auto& computation : module.computations()) {
    for (const auto& i : computation->instructions()) {
      if (i->opcode() != Opcode::kDot) continue;
      const Dims& rhs = i->operand(1)->shape().dims();
      if (rhs.size() >= 3 && rhs.back() == 32 && i->attributes().dot->rhs_contracting[0] == 1) return true;
    }
  }
  return false;
}

TEST(PackLoopOperands, PreservesTheResults) {
  const ProductLoop loops[] = {
      {{8, 160}, {160, 416}, {8, 416}, {1}, {0}},
      {{8, 64}, {128, 64}, {8, 128}, {1}, {1}},                  // The right operand is transposed.
      {{160, 9}, {160, 416}, {9, 416}, {0}, {0}},                // The left operand is transposed.
      {{2, 4, 80}, {80, 13, 64}, {2, 4, 13, 64}, {2}, {0}},      // Several free dimensions.
      {{8, 4, 32}, {4, 96, 32}, {8, 96}, {1, 2}, {0, 2}},        // Several contracting dimensions.
      {{8, 4, 32}, {32, 4, 3, 32}, {8, 3, 32}, {1, 2}, {1, 0}},  // The same in another order.
      {{8, 32, 4}, {4, 64, 32}, {8, 64}, {1, 2}, {2, 0}},
      {{8, 64}, {128, 64}, {8, 128}, {1}, {1}, 7, false},            // A short loop.
      {{7, 64}, {128, 64}, {7, 128}, {1}, {1}, 8, false},            // Few rows.
      {{129, 32}, {256, 32}, {129, 256}, {1}, {1}, 8, false},        // Many rows.
      {{8, 64}, {96, 64}, {8, 96}, {1}, {1}, 8, false},              // A small operand.
      {{8, 64}, {130, 64}, {8, 130}, {1}, {1}, 8, false},            // A part of a panel.
      {{8, 300}, {32, 300}, {8, 32}, {1}, {1}, 8, false},            // A single panel.
      {{8, 4}, {2048, 4}, {8, 2048}, {1}, {1}, 8, false},            // Short sums.
      {{4, 8, 32}, {96, 4, 32}, {8, 96}, {0, 2}, {1, 2}, 8, false},  // The sum needs two loops over the left operand.
      {{8, 64}, {128, 64}, {8, 128}, {1}, {1}, 8, false, true},      // The loop changes the operand.
      // These operands are read in place as they are: small row-major matrices, and panels.
      {{8, 64}, {64, 128}, {8, 128}, {1}, {0}, 8, false},
      {{8, 4, 32}, {4, 32, 3, 32}, {8, 3, 32}, {1, 2}, {0, 1}, 8, false},
      {{8, 64}, {4, 64, 32}, {8, 4, 32}, {1}, {1}, 8, false},
      {{8, 2, 32}, {2, 3, 2, 32, 32}, {8, 2, 3, 32}, {1, 2}, {2, 3}, 8, false},
  };
  const auto random = SeededRandom(1);
  for (const ProductLoop& loop : loops) {
    const std::string text = TextOf(loop);
    const auto module = hlo::ParseText(text);
    ASSERT_TRUE(module.ok()) << module.status() << "\n" << text;
    ASSERT_TRUE(hlo::Verify(**module).ok()) << hlo::Verify(**module) << "\n" << text;
    const std::vector<tensor::Array> inputs = RandomInputs(**module, random.get());
    const auto expected = hlo::Evaluate({module->get()}, {{inputs.begin(), inputs.end()}});
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto check = [&](const std::vector<tensor::Array>& found) {
      const absl::Status same = CompareResults(found, ArraysOf((*expected)[0]), {Exactness{Agreement::kMagnitudes}});
      ASSERT_TRUE(same.ok()) << same << "\n" << text;
    };
    auto compiled = CompileToSteps((*module)->Clone(), {}, {.verify = true});
    ASSERT_TRUE(compiled.ok()) << compiled.status() << "\n" << text;
    EXPECT_EQ(HasPackedDot(*compiled->module), loop.is_packed || HasPackedDot(**module)) << text;
    const auto ran = RunSteps(*compiled, {inputs});
    ASSERT_TRUE(ran.ok()) << ran.status() << "\n" << text;
    check((*ran)[0]);

    PassContext context;
    const std::string before = hlo::PrintText(**module);
    ASSERT_TRUE(PackLoopOperands(**module, context).ok());
    ASSERT_TRUE(hlo::Verify(**module).ok()) << hlo::Verify(**module) << "\n" << hlo::PrintText(**module);
    EXPECT_EQ(hlo::PrintText(**module) != before, loop.is_packed) << hlo::PrintText(**module);
    if (loop.is_packed) EXPECT_TRUE(HasPackedDot(**module)) << hlo::PrintText(**module);
    const auto after = hlo::Evaluate({module->get()}, {{inputs.begin(), inputs.end()}});
    ASSERT_TRUE(after.ok()) << after.status();
    check(ArraysOf((*after)[0]));
  }
}

}  // namespace
}  // namespace xlad::compiler
