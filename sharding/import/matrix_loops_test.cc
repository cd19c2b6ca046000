// Matrix factorizations as loops, on values at and beyond the range whose squares the type can hold.
#include "sharding/import/matrix_loops.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_replace.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "sharding/import/library_calls.h"

namespace xlad::sharding {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// A factorization of f32[2,5,4] (QR, LU) or f32[2,4,4] (eigenvalues), with results that do not depend on signs of
// eigenvectors.
std::string Program(absl::string_view routine, absl::string_view type) {
  const std::string letter = type == "f32" ? "s" : "d";
  const absl::string_view text = routine == "qr"   ? R"(HloModule m
ENTRY e {
  x = $T[2,5,4] parameter(0)
  ROOT c = ($T[2,5,4], $T[2,4]) custom-call(x), custom_call_target="lapack_$Lgeqrf_ffi"
})"
                                 : routine == "lu" ? R"(HloModule m
ENTRY e {
  x = $T[2,5,4] parameter(0)
  ROOT c = ($T[2,5,4], s32[2,4], s32[2]) custom-call(x), custom_call_target="lapack_$Lgetrf_ffi"
})"
                                                   : R"(HloModule m
ENTRY e {
  x = $T[2,4,4] parameter(0)
  c = ($T[2,4,4], $T[2,4], s32[2]) custom-call(x), custom_call_target="lapack_$Lsyevd_ffi",
    backend_config={mode = 86 : ui8, uplo = 76 : ui8}
  v = $T[2,4,4] get-tuple-element(c), index=0
  w = $T[2,4] get-tuple-element(c), index=1
  s = $T[2,4,4] multiply(v, v)
  ROOT r = ($T[2,4], $T[2,4,4]) tuple(w, s)
})";
  return absl::StrReplaceAll(text, {{"$T", type}, {"$L", letter}});
}

int64_t Rows(absl::string_view routine) { return routine == "eigen" ? 4 : 5; }

template <typename T>
tensor::Array Matrices(absl::string_view routine, tensor::ElementType type, uint64_t seed,
                       const std::vector<double>& column_scales) {
  tensor::Array array({type, {2, Rows(routine), 4}});
  const std::unique_ptr<Random> random = SeededRandom(seed);
  int64_t i = 0;
  for (T& value : array.values<T>()) {
    const double unit = 2 * random->Unit() - 1;
    value = static_cast<T>(unit * column_scales[i++ % 4]);
  }
  return array;
}

std::vector<tensor::Array> ResultsOf(const hlo::Module& module, const tensor::Array& x) {
  absl::StatusOr<hlo::Literal> result = hlo::Evaluate(module, {hlo::Literal(x)});
  XLAD_CHECK(result.ok()) << result.status();
  std::vector<tensor::Array> leaves;
  for (hlo::Literal& element : result->tuple) leaves.push_back(std::move(element.array));
  return leaves;
}

std::unique_ptr<hlo::Module> Parsed(const std::string& text, bool as_loop) {
  auto module = hlo::ParseText(text);
  XLAD_CHECK(module.ok()) << module.status();
  if (as_loop) ReplaceLibraryCalls(module->get());
  return *std::move(module);
}

// The same NaNs and infinities, and numbers that differ by at most `tolerance` times the largest one of their column:
// the same index of the last dimension.
void ExpectNear(const tensor::Array& found, const tensor::Array& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(found.shape(), expected.shape()) << what;
  if (expected.shape().type == tensor::ElementType::kS32) {
    EXPECT_TRUE(found.bytes() == expected.bytes()) << what;
    return;
  }
  const auto want = expected.values<float>(), have = found.values<float>();
  const int64_t columns = expected.shape().dims.back();
  std::vector<double> largest(columns, std::numeric_limits<float>::denorm_min());
  for (int64_t i = 0; i < expected.elements(); ++i) {
    if (std::isfinite(want[i])) largest[i % columns] = std::max<double>(largest[i % columns], std::abs(want[i]));
  }
  for (int64_t i = 0; i < expected.elements(); ++i) {
    if (!std::isfinite(want[i])) {
      EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(have[i]) : have[i] == want[i]) << what << " at " << i;
    } else {
      // One unit in the last place of a denormal is a large part of it.
      const double allowed = tolerance * largest[i % columns] + 4 * std::numeric_limits<float>::denorm_min();
      EXPECT_NEAR(have[i], want[i], allowed) << what << " at " << i;
    }
  }
}

void ExpectAsLapack(absl::string_view routine, const tensor::Array& x, const std::string& what) {
  const std::string text = Program(routine, "f32");
  const std::vector<tensor::Array> expected = ResultsOf(*Parsed(text, false), x);
  const std::vector<tensor::Array> found = ResultsOf(*Parsed(text, true), x);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t leaf = 0; leaf < found.size(); ++leaf) {
    ExpectNear(found[leaf], expected[leaf], 2e-4, absl::StrCat(routine, " ", what, " result ", leaf));
  }
}

// Column scales from denormals to nearly the largest number.
TEST(MatrixLoops, ScaledColumnsAsLapack) {
  const std::vector<std::vector<double>> scales = {
      {1, 1, 1, 1},         {1e25, 1e25, 1e25, 1e25}, {1e-25, 1e-25, 1e-25, 1e-25}, {1e37, 1e37, 1e37, 1e37},
      {0, 0, 0, 0},         {1, 0, 1, 1},             {1e25, 1e-25, 1, 1e10},       {1e-25, 1e25, 0, 1},
      {1e-40, 1, 1e-40, 1}, {1e14, 1e16, 1e-14, 1e-16}};
  for (const char* routine : {"qr", "lu"}) {
    for (size_t i = 0; i < scales.size(); ++i) {
      const tensor::Array x = Matrices<float>(routine, tensor::ElementType::kF32, 31 + i, scales[i]);
      ExpectAsLapack(routine, x, absl::StrCat("scales ", i));
    }
  }
  for (const double scale : {1.0, 1e25, 1e-25, 1e37, 1e-37, 0.0}) {
    const tensor::Array x = Matrices<float>("eigen", tensor::ElementType::kF32, 5, {scale, scale, scale, scale});
    ExpectAsLapack("eigen", x, absl::StrCat("scale ", scale));
  }
}

// A tail far smaller than the element above it still reflects: the sign of R's diagonal depends on it.
TEST(MatrixLoops, TinyTails) {
  tensor::Array x({tensor::ElementType::kF32, {2, 5, 4}});
  const auto values = x.values<float>();
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t row = i / 4 % 5, column = i % 4;
    values[i] = row < column ? 2.0F : row == column ? (i < 20 ? 1.0F : -1.0F) : 1e-25F;
  }
  ExpectAsLapack("qr", x, "tiny tails");
  values[0] = -0.0F;
  ExpectAsLapack("qr", x, "negative zero on the diagonal");
}

// A NaN or an infinity must not reach elements that do not depend on it.
TEST(MatrixLoops, SpecialValuesStayWhereTheyBelong) {
  for (const float special : {kNan, kInfinity}) {
    for (const int64_t at : {0, 7, 10, 13, 19}) {
      tensor::Array x = Matrices<float>("lu", tensor::ElementType::kF32, 77, {1, 1, 1, 1});
      x.values<float>()[at] = special;
      ExpectAsLapack("lu", x, absl::StrCat(special, " at ", at));
    }
  }
}

// f64: a factor of 1e200, which overflows when squared, changes the results by that factor alone.
TEST(MatrixLoops, DoublesScale) {
  for (const char* routine : {"qr", "eigen"}) {
    const std::unique_ptr<hlo::Module> loop = Parsed(Program(routine, "f64"), true);
    const tensor::Array x = Matrices<double>(routine, tensor::ElementType::kF64, 3, {1, 1, 1, 1});
    const std::vector<tensor::Array> expected = ResultsOf(*loop, x);
    for (const double scale : {1e200, 1e-200}) {
      const tensor::Array scaled =
          Matrices<double>(routine, tensor::ElementType::kF64, 3, {scale, scale, scale, scale});
      const std::vector<tensor::Array> found = ResultsOf(*loop, scaled);
      for (int64_t i = 0; i < expected[0].elements(); ++i) {
        const int64_t row = i / 4 % Rows(routine), column = i % 4;
        const bool scales = routine == std::string("eigen") || row <= column;  // Not v, below the diagonal.
        const double factor = scales ? scale : 1;
        EXPECT_NEAR(found[0].values<double>()[i] / factor, expected[0].values<double>()[i], 1e-12) << routine << i;
      }
    }
  }
}

}  // namespace
}  // namespace xlad::sharding
