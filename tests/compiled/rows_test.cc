// Compiled kernels in row form (compiler/kernel/kernel.h), compared with the evaluator: softmax, norms and their
// gradients, and random programs.
#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/case_count.h"
#include "compiler/testing/random_rows.h"
#include "hlo/text/text.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

// A program with R rows, C columns and type T.
std::string RowProgram(const std::string& body, int64_t rows, int64_t columns, const std::string& type) {
  return absl::StrReplaceAll(Program(body, type), {{"R,C", absl::StrCat(rows, ",", columns)},
                                                   {"[R]", absl::StrCat("[", rows, "]")},
                                                   {"[C]", absl::StrCat("[", columns, "]")}});
}

constexpr char kSoftmax[] = R"(
  x = T[R,C] parameter(0)
  low = T[] constant(-1000)
  zero = T[] constant(0)
  m = T[R] reduce(x, low), dimensions={1}, to_apply=max
  mm = T[R,C] broadcast(m), dimensions={0}
  d = T[R,C] subtract(x, mm)
  e = T[R,C] exponential(d)
  s = T[R] reduce(e, zero), dimensions={1}, to_apply=add
  ss = T[R,C] broadcast(s), dimensions={0}
  y = T[R,C] divide(e, ss)
  ROOT t = (T[R,C], T[R], T[R,C]) tuple(y, s, e)
)";

constexpr char kSoftmaxGradient[] = R"(
  y = T[R,C] parameter(0)
  g = T[R,C] parameter(1)
  zero = T[] constant(0)
  p = T[R,C] multiply(y, g)
  s = T[R] reduce(p, zero), dimensions={1}, to_apply=add
  ss = T[R,C] broadcast(s), dimensions={0}
  d = T[R,C] subtract(g, ss)
  ROOT r = T[R,C] multiply(d, y)
)";

constexpr char kNorm[] = R"(
  x = T[R,C] parameter(0)
  g = T[C] parameter(1)
  zero = T[] constant(0)
  n = T[] constant(0.015625)
  nn = T[R] broadcast(n), dimensions={}
  sum = T[R] reduce(x, zero), dimensions={1}, to_apply=add
  mean = T[R] multiply(sum, nn)
  means = T[R,C] broadcast(mean), dimensions={0}
  d = T[R,C] subtract(x, means)
  square = T[R,C] multiply(d, d)
  squares = T[R] reduce(square, zero), dimensions={1}, to_apply=add
  variance = T[R] multiply(squares, nn)
  shifted = T[R] add(variance, nn)
  r = T[R] rsqrt(shifted)
  rr = T[R,C] broadcast(r), dimensions={0}
  gg = T[R,C] broadcast(g), dimensions={1}
  dr = T[R,C] multiply(d, rr)
  y = T[R,C] multiply(dr, gg)
  ROOT t = (T[R,C], T[R]) tuple(y, r)
)";

constexpr char kLengths[] = R"(
  x = T[R,C] parameter(0)
  zero = T[] constant(0)
  square = T[R,C] multiply(x, x)
  sum = T[R] reduce(square, zero), dimensions={1}, to_apply=add
  r = T[R] sqrt(sum)
  ROOT t = (T[R], T[R]) tuple(r, sum)
)";

// Blocks of rows are computed together.
TEST(Rows, ShortRows) {
  Batch batch;
  for (const int64_t rows : {96, 640}) {
    for (const int64_t columns : {3, 8, 40}) batch.Add(RowProgram(kLengths, rows, columns, "f32"), Close(1e-5));
  }
  batch.Add(RowProgram(kLengths, 160, 8, "bf16"), Close(0.05));
  for (const char* sizes : {"20,32", "7,48"}) {
    batch.Add(absl::StrReplaceAll(Program(R"(
  x = f32[@,3] parameter(0)
  y = f32[@,3] parameter(1)
  zero = f32[] constant(0)
  d = f32[@,3] subtract(x, y)
  square = f32[@,3] multiply(d, d)
  sum = f32[@] reduce(square, zero), dimensions={2}, to_apply=add
  r = f32[@] exponential(sum)
  ROOT n = f32[@] negate(r))"),
                                  {{"@", sizes}}),
              Close(1e-5));
  }
  batch.Run();
}

TEST(Rows, SoftmaxAndNorms) {
  Batch batch;
  for (const int64_t columns : {5, 64, 100}) {
    for (const char* body : {kSoftmax, kSoftmaxGradient, kNorm}) {
      batch.Add(RowProgram(body, 7, columns, "f32"), Close(1e-4));
    }
  }
  batch.Add(RowProgram(kSoftmax, 9, 33, "f64"), Close(1e-12));
  batch.Add(RowProgram(kNorm, 9, 33, "bf16"), Close(0.1));
  batch.Add(RowProgram(kSoftmax, 2, 257, "bf16"), Close(0.05));
  batch.Run();
}

// The result shares memory with an operand that is read in every pass over its row.
TEST(Rows, InPlace) {
  Batch batch;
  batch.Add(RowProgram(kSoftmaxGradient, 11, 70, "f32"), Close(1e-4));
  batch.InPlace({{0, 0}});
  batch.Add(RowProgram(kSoftmaxGradient, 11, 70, "f32"), Close(1e-4));
  batch.InPlace({{0, 1}});
  batch.Add(RowProgram(kSoftmax, 11, 70, "f32"), Close(1e-4));
  batch.InPlace({{0, 0}});
  batch.Add(RowProgram(kNorm, 11, 130, "f32"), Close(1e-4));
  batch.InPlace({{0, 0}});
  batch.Run();
}

TEST(Rows, RandomKernels) {
  Batch batch;
  for (uint64_t seed = 1000; seed < 1016; ++seed) {
    const std::string text = RandomRowProgram(seed);
    const auto module = hlo::ParseText(text);
    ASSERT_TRUE(module.ok()) << module.status() << text;
    const auto random = SeededRandom(seed);
    std::vector<tensor::Array> inputs;
    for (const hlo::Instruction* parameter : (*module)->entry()->parameters()) {
      inputs.push_back(RandomIntegers(parameter->shape().array(), random.get()));
    }
    batch.AddOn(text, std::move(inputs));
  }
  batch.Run();
}

// RandomKernels compares the results of such programs with those of the evaluator. Here the inputs have fractions, so
// that another order of a sum would have other bits, and sums may cancel. Therefore any difference from the evaluator
// is accepted.
TEST(Rows, CandidatesHaveTheSameBits) {
  const hlo::Tolerance any{hlo::Tolerance::Kind::kAbsolute, 0, std::numeric_limits<double>::infinity()};
  Batch batch;
  for (uint64_t seed = 2000; seed < 2000 + CaseCount(8, 60); ++seed) {
    batch.Add(RandomRowProgram(seed), any);
    batch.WithCandidates();
  }
  batch.Run();
}

}  // namespace
}  // namespace xlad::compiler
