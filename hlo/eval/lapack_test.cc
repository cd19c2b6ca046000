// Custom calls to LAPACK: the products of the factors must equal the matrices, in all four types and many shapes.
#include <complex>
#include <random>

#include "absl/strings/str_join.h"
#include "hlo/eval/test_programs.h"

namespace xlad::hlo {
namespace {

using tensor::Array;
using tensor::ElementType;
using Complex = std::complex<double>;

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<Complex> values;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(r * c) {}
  Complex& operator()(int64_t i, int64_t j) { return values[i * columns + j]; }
  Complex operator()(int64_t i, int64_t j) const { return values[i * columns + j]; }
};

Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.columns; ++j) {
      for (int64_t k = 0; k < a.columns; ++k) c(i, j) += a(i, k) * b(k, j);
    }
  }
  return c;
}

Matrix Adjoint(const Matrix& a) {
  Matrix c(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) c(j, i) = std::conj(a(i, j));
  }
  return c;
}

// The elements on and above (or below) the diagonal.
Matrix Triangle(const Matrix& a, bool lower, bool unit = false) {
  Matrix c(a.rows, a.columns);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) {
      if (lower ? i >= j : i <= j) c(i, j) = unit && i == j ? 1 : a(i, j);
    }
  }
  return c;
}

Matrix Head(const Matrix& a, int64_t rows, int64_t columns) {
  Matrix c(rows, columns);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) c(i, j) = a(i, j);
  }
  return c;
}

Matrix Identity(int64_t n) {
  Matrix c(n, n);
  for (int64_t i = 0; i < n; ++i) c(i, i) = 1;
  return c;
}

struct Kind {
  char letter;
  ElementType type, part;
  double tolerance;
};
constexpr Kind kKinds[] = {{'s', ElementType::kF32, ElementType::kF32, 2e-5},
                           {'d', ElementType::kF64, ElementType::kF64, 1e-12},
                           {'c', ElementType::kC64, ElementType::kF32, 2e-5},
                           {'z', ElementType::kC128, ElementType::kF64, 1e-12}};

bool IsComplexKind(const Kind& kind) { return tensor::IsComplex(kind.type); }

template <typename T>
Array Store(const Kind& kind, const Matrix& a, const tensor::Dims& dims) {
  std::vector<T> values;
  for (const Complex& x : a.values) {
    values.push_back(static_cast<T>(x.real()));
    if (IsComplexKind(kind)) values.push_back(static_cast<T>(x.imag()));
  }
  return Array::FromValues<T>(kind.type, dims, values);
}

Literal ToLiteral(const Kind& kind, const Matrix& a, bool vector = false) {
  const tensor::Dims dims = vector ? tensor::Dims{a.columns} : tensor::Dims{a.rows, a.columns};
  return Literal(kind.part == ElementType::kF32 ? Store<float>(kind, a, dims) : Store<double>(kind, a, dims));
}

Matrix FromLiteral(const Literal& literal) {
  const tensor::Shape& shape = literal.array.shape();
  Matrix a(shape.dims.size() == 2 ? shape.dims[0] : 1, shape.dims.empty() ? 1 : shape.dims.back());
  const bool is_complex = tensor::IsComplex(shape.type);
  const bool wide = shape.type == ElementType::kF64 || shape.type == ElementType::kC128;
  const auto number = [&](int64_t i) {
    return wide ? literal.array.values<double>()[i] : double{literal.array.values<float>()[i]};
  };
  for (const int64_t i : tensor::Indices(a.values)) {
    a.values[i] = is_complex ? Complex(number(2 * i), number(2 * i + 1)) : Complex(number(i));
  }
  return a;
}

Matrix Random(const Kind& kind, int64_t rows, int64_t columns, std::mt19937* random) {
  std::uniform_real_distribution<double> unit(-1, 1);
  Matrix a(rows, columns);
  for (Complex& x : a.values) x = {unit(*random), IsComplexKind(kind) ? unit(*random) : 0};
  return FromLiteral(ToLiteral(kind, a));  // Rounds the elements to the type.
}

void ExpectNear(const Matrix& a, const Matrix& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.rows, b.rows) << what;
  ASSERT_EQ(a.columns, b.columns) << what;
  for (const int64_t i : tensor::Indices(a.values)) EXPECT_LE(std::abs(a.values[i] - b.values[i]), tolerance) << what;
}

absl::StatusOr<Literal> CallTarget(const std::string& target, const std::vector<Literal>& inputs,
                                   const std::string& results, const std::string& config = "") {
  std::string text = "HloModule m\nENTRY e {\n", names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    text += absl::StrCat("  p", i, " = ", inputs[i].shape().ToString(false), " parameter(", i, ")\n");
    names += absl::StrCat(i == 0 ? "" : ", ", "p", i);
  }
  const auto module = testing::Program(
      absl::StrCat(text, "  ROOT r = ", results, " custom-call(", names, "), custom_call_target=\"", target,
                   "\", api_version=API_VERSION_TYPED_FFI, backend_config={", config, "}\n}\n"));
  if (module == nullptr) return absl::InvalidArgumentError("no program");
  return Evaluate(*module, inputs);
}

// The text of a result shape, such as "f32[2,3]".
std::string ShapeOf(ElementType type, const tensor::Dims& dims) { return tensor::Shape{type, dims}.ToString(); }

class LapackTest : public ::testing::TestWithParam<Kind> {
 protected:
  absl::StatusOr<Literal> Run(const std::string& routine, const std::vector<Literal>& inputs,
                              const std::vector<std::string>& results, const std::string& config = "") {
    const std::string shape = results.size() == 1 ? results[0] : absl::StrCat("(", absl::StrJoin(results, ", "), ")");
    return CallTarget(absl::StrCat("lapack_", std::string(1, kind_.letter), routine, "_ffi"), inputs, shape, config);
  }
  std::string OfKind(const tensor::Dims& dims) const { return ShapeOf(kind_.type, dims); }

  const Kind kind_ = GetParam();
  std::mt19937 random_{7};
};

constexpr std::pair<int64_t, int64_t> kShapes[] = {{0, 0}, {1, 1}, {4, 4}, {7, 3}, {3, 7}, {5, 0}, {1, 6}};

TEST_P(LapackTest, Cholesky) {
  for (const int64_t n : {0, 1, 2, 5, 9}) {
    for (const bool lower : {true, false}) {
      const Matrix g = Random(kind_, n, n, &random_);
      Matrix a = g * Adjoint(g);
      for (int64_t i = 0; i < n; ++i) a(i, i) += 1;
      const auto result =
          Run("potrf", {ToLiteral(kind_, a)}, {OfKind({n, n}), "s32[]"}, lower ? "uplo = 76 : ui8" : "uplo = 85 : ui8");
      ASSERT_TRUE(result.ok()) << result.status();
      const Matrix t = Triangle(FromLiteral(result->tuple[0]), lower);
      ExpectNear(lower ? t * Adjoint(t) : Adjoint(t) * t, a, kind_.tolerance * 10, "potrf");
      EXPECT_EQ(result->tuple[1].array.values<int32_t>()[0], 0);
    }
  }
  Matrix bad = Identity(3);
  bad(1, 1) = -1;
  const auto result = Run("potrf", {ToLiteral(kind_, bad)}, {OfKind({3, 3}), "s32[]"}, "uplo = 76 : ui8");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tuple[1].array.values<int32_t>()[0], 2);
}

TEST_P(LapackTest, Lu) {
  for (const auto& [m, n] : kShapes) {
    const Matrix a = Random(kind_, m, n, &random_);
    const int64_t k = std::min(m, n);
    const auto result = Run("getrf", {ToLiteral(kind_, a)}, {OfKind({m, n}), ShapeOf(ElementType::kS32, {k}), "s32[]"});
    ASSERT_TRUE(result.ok()) << result.status();
    const Matrix lu = FromLiteral(result->tuple[0]);
    Matrix permuted = a;
    for (int64_t i = 0; i < k; ++i) {
      const int64_t other = result->tuple[1].array.values<int32_t>()[i] - 1;
      for (int64_t j = 0; j < n; ++j) std::swap(permuted.values[i * n + j], permuted.values[other * n + j]);
    }
    const Matrix l = Head(Triangle(lu, true, true), m, k), u = Head(Triangle(lu, false), k, n);
    ExpectNear(l * u, permuted, kind_.tolerance, "getrf");
    for (const Complex& x : l.values) EXPECT_LE(std::abs(x), 1.5);
  }
}

TEST_P(LapackTest, Qr) {
  for (const auto& [m, n] : kShapes) {
    const Matrix a = Random(kind_, m, n, &random_);
    const int64_t k = std::min(m, n);
    auto result = Run("geqrf", {ToLiteral(kind_, a)}, {OfKind({m, n}), OfKind({k})});
    ASSERT_TRUE(result.ok()) << result.status();
    const Matrix qr = FromLiteral(result->tuple[0]), r = Head(Triangle(qr, false), k, n);
    for (int64_t i = 0; i < k; ++i) EXPECT_EQ(r(i, i).imag(), 0);
    const auto q_result = Run(IsComplexKind(kind_) ? "ungqr" : "orgqr",
                              {ToLiteral(kind_, Head(qr, m, k)), result->tuple[1]}, {OfKind({m, k})});
    ASSERT_TRUE(q_result.ok()) << q_result.status();
    const Matrix q = FromLiteral(*q_result);
    ExpectNear(q * r, a, kind_.tolerance, "geqrf");
    ExpectNear(Adjoint(q) * q, Identity(k), kind_.tolerance, "orgqr");
    result = Run("geqp3", {ToLiteral(kind_, a), Literal(Array({ElementType::kS32, {n}}))},
                 {OfKind({m, n}), ShapeOf(ElementType::kS32, {n}), OfKind({k})});
    ASSERT_TRUE(result.ok()) << result.status();
    const Matrix pivoted = FromLiteral(result->tuple[0]);
    for (int64_t i = 1; i < k; ++i) EXPECT_LE(std::abs(pivoted(i, i)), std::abs(pivoted(i - 1, i - 1)) + 1e-6);
  }
}

// If the operand is scaled by a power of two, so is R, exactly, even if squares of its elements overflow or underflow.
TEST_P(LapackTest, QrOfLargeAndSmallValues) {
  const int exponent = kind_.part == ElementType::kF64 ? 900 : 100;
  Matrix a = Random(kind_, 5, 4, &random_);
  const auto expected = Run("geqrf", {ToLiteral(kind_, a)}, {OfKind({5, 4}), OfKind({4})});
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const double scale : {std::ldexp(1.0, exponent), std::ldexp(1.0, -exponent)}) {
    Matrix scaled = a;
    for (Complex& x : scaled.values) x *= scale;
    const auto result = Run("geqrf", {ToLiteral(kind_, scaled)}, {OfKind({5, 4}), OfKind({4})});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->tuple[1], expected->tuple[1]);
    Matrix r = Triangle(FromLiteral(expected->tuple[0]), false);
    for (Complex& x : r.values) x *= scale;
    EXPECT_EQ(Triangle(FromLiteral(result->tuple[0]), false).values, r.values);
  }
}

TEST_P(LapackTest, TriangularSolve) {
  for (int variant = 0; variant < 24; ++variant) {
    const bool left = (variant & 1) != 0, lower = (variant & 2) != 0, unit = (variant & 4) != 0;
    const char transpose = "NTC"[variant / 8];
    Matrix a = Random(kind_, 4, 4, &random_);
    for (int64_t i = 0; i < 4; ++i) a(i, i) += 3;
    const Matrix b = Random(kind_, left ? 4 : 2, left ? 2 : 4, &random_);
    const auto result = Run(
        "trsm", {ToLiteral(kind_, a), ToLiteral(kind_, b)}, {OfKind({b.rows, b.columns})},
        absl::StrCat("diag = ", unit ? 85 : 78, " : ui8, side = ", left ? 76 : 82,
                     " : ui8, trans_x = ", static_cast<int>(transpose), " : ui8, uplo = ", lower ? 76 : 85, " : ui8"));
    ASSERT_TRUE(result.ok()) << result.status();
    Matrix op = Triangle(a, lower, unit);
    if (transpose != 'N') op = Adjoint(op);
    if (transpose == 'T') {
      for (Complex& x : op.values) x = std::conj(x);
    }
    const Matrix x = FromLiteral(*result);
    ExpectNear(left ? op * x : x * op, b, kind_.tolerance * 20, absl::StrCat("trsm ", variant));
  }
}

TEST_P(LapackTest, TridiagonalSolve) {
  for (const int64_t n : {0, 1, 2, 3, 8}) {
    std::vector<Matrix> diagonals;
    for (int i = 0; i < 3; ++i) diagonals.push_back(Random(kind_, 1, n, &random_));
    const Matrix b = Random(kind_, n, 2, &random_);
    Matrix a(n, n);
    for (int64_t i = 0; i < n; ++i) {
      a(i, i) = diagonals[1](0, i);
      if (i > 0) a(i, i - 1) = diagonals[0](0, i);
      if (i + 1 < n) a(i, i + 1) = diagonals[2](0, i);
    }
    std::vector<Literal> inputs;
    for (const Matrix& diagonal : diagonals) inputs.push_back(ToLiteral(kind_, diagonal, /*vector=*/true));
    inputs.push_back(ToLiteral(kind_, b));
    const auto result = Run("gtsv", inputs, {OfKind({n}), OfKind({n}), OfKind({n}), OfKind({n, 2}), "s32[]"});
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectNear(a * FromLiteral(result->tuple[3]), b, kind_.tolerance * 200, "gtsv");
  }
}

TEST_P(LapackTest, Eigenvectors) {
  for (const int64_t n : {0, 1, 2, 6}) {
    const Matrix g = Random(kind_, n, n, &random_);
    Matrix a(n, n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) a(i, j) = g(i, j) + std::conj(g(j, i));
    }
    const auto result = Run(IsComplexKind(kind_) ? "heevd" : "syevd", {ToLiteral(kind_, a)},
                            {OfKind({n, n}), ShapeOf(kind_.part, {n}), "s32[]"}, "mode = 86 : ui8, uplo = 76 : ui8");
    ASSERT_TRUE(result.ok()) << result.status();
    const Matrix v = FromLiteral(result->tuple[0]), w = FromLiteral(result->tuple[1]);
    Matrix scaled = v;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) scaled(i, j) *= w(0, j);
      if (i > 0) {
        EXPECT_LE(w(0, i - 1).real(), w(0, i).real());
      }
    }
    ExpectNear(a * v, scaled, kind_.tolerance * 10, "syevd");
    ExpectNear(Adjoint(v) * v, Identity(n), kind_.tolerance, "syevd");
  }
}

TEST_P(LapackTest, SingularValues) {
  for (const auto& [m, n] : kShapes) {
    for (const bool whole : {true, false}) {
      Matrix a = Random(kind_, m, n, &random_);
      for (int64_t j = 0; m > 1 && j < n; ++j) a(1, j) = 2.0 * a(0, j);  // The matrix does not have full rank.
      const int64_t k = std::min(m, n), u_size = whole ? m : k, v_size = whole ? n : k;
      const auto result =
          Run("gesdd", {ToLiteral(kind_, a)},
              {OfKind({m, n}), ShapeOf(kind_.part, {k}), OfKind({m, u_size}), OfKind({v_size, n}), "s32[]"},
              whole ? "mode = 65 : ui8" : "mode = 83 : ui8");
      ASSERT_TRUE(result.ok()) << result.status();
      const Matrix s = FromLiteral(result->tuple[1]), u = FromLiteral(result->tuple[2]);
      const Matrix vt = FromLiteral(result->tuple[3]);
      Matrix scaled = Head(u, m, k);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < k; ++j) scaled(i, j) *= s(0, j);
      }
      ExpectNear(scaled * Head(vt, k, n), a, kind_.tolerance, absl::StrCat("gesdd ", m, "x", n));
      ExpectNear(Adjoint(u) * u, Identity(u_size), kind_.tolerance, "U");
      ExpectNear(vt * Adjoint(vt), Identity(v_size), kind_.tolerance, "V");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, LapackTest, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(1, info.param.letter); });

TEST(Lapack, RunsOnEveryMatrixOfABatch) {
  const Literal input(Array::FromValues<float>(ElementType::kF32, {3, 1, 1}, {4, 9, -1}));
  const auto result = CallTarget("lapack_spotrf_ffi", {input}, "(f32[3,1,1], s32[3])", "uplo = 76 : ui8");
  ASSERT_TRUE(result.ok()) << result.status();
  testing::ExpectSame(result->tuple[0], testing::Constant("f32[3,1,1] {{{2}}, {{3}}, {{-1}}}"), "factors");
  testing::ExpectSame(result->tuple[1], testing::Constant("s32[3] {0, 0, 1}"), "info");
}

TEST(Lapack, WrongShapesAreErrors) {
  const Literal square(Array({ElementType::kF32, {2, 2}})), wide(Array({ElementType::kF32, {2, 3}}));
  const auto message = [](const absl::StatusOr<Literal>& result) { return std::string(result.status().message()); };
  EXPECT_EQ(message(CallTarget("lapack_spotrf_ffi", {wide}, "(f32[2,3], s32[])")),
            "4:3: %r: lapack_spotrf_ffi: operand 0: found f32[2,3], expected f32[;nn]");
  EXPECT_EQ(message(CallTarget("lapack_dpotrf_ffi", {square}, "(f32[2,2], s32[])")),
            "4:3: %r: lapack_dpotrf_ffi: operand 0: found f32[2,2], expected f64[;nn]");
  EXPECT_EQ(message(CallTarget("lapack_sgetrf_ffi", {wide}, "(f32[2,3], s32[])")),
            "4:3: %r: lapack_sgetrf_ffi: operands and results: found 1 and 2, expected 1 and 3");
  EXPECT_EQ(message(CallTarget("lapack_sgetrf_ffi", {wide}, "(f32[2,3], s32[3], s32[])")),
            "4:3: %r: lapack_sgetrf_ffi: result 1: found s32[3], expected s32[;k]");
  EXPECT_EQ(message(CallTarget("lapack_strsm_ffi", {square, wide}, "f32[2,3]", "side = 82 : ui8")),
            "5:3: %r: lapack_strsm_ffi: found a matrix of 2 x 2, expected one of 3 rows and columns");
  for (const std::string& target : {"lapack_sgeev_ffi", "lapack_xgetrf_ffi", "lapack__ffi", "lapack_sgetrf"}) {
    const auto result = CallTarget(target, {square}, "f32[2,2]");
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented) << target;
  }
}

}  // namespace
}  // namespace xlad::hlo
