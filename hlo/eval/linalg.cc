// cholesky and triangular-solve, on every matrix of a batch; in double or complex<double>.
#include <cmath>

#include "hlo/eval/numeric.h"
#include "hlo/eval/reducer.h"

namespace xlad::hlo::eval {
namespace {

double Conjugate(double x) { return x; }
Complex128 Conjugate(Complex128 x) { return std::conj(x); }

// A = L L^H of the lower (or upper: A = U^H U) triangle; the other triangle of the result is zero. A matrix that is
// not positive definite gives NaN.
template <typename T>
void Cholesky(const T* a, T* out, int64_t n, bool lower) {
  const auto at = [&](int64_t i, int64_t j) { return lower ? a[i * n + j] : Conjugate(a[j * n + i]); };
  std::vector<T> l(n * n, T(0));
  for (int64_t j = 0; j < n; ++j) {
    T diagonal = T(std::real(at(j, j)));
    for (int64_t k = 0; k < j; ++k) diagonal -= l[j * n + k] * Conjugate(l[j * n + k]);
    const double root = std::sqrt(std::real(diagonal));
    l[j * n + j] = T(root);
    for (int64_t i = j + 1; i < n; ++i) {
      T sum = at(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= l[i * n + k] * Conjugate(l[j * n + k]);
      l[i * n + j] = sum / root;
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) out[i * n + j] = lower ? l[i * n + j] : Conjugate(l[j * n + i]);
  }
}

// Which elements of `a` the solve sees: op(A), its triangle, and a diagonal of ones where the caller says so.
template <typename T>
struct Triangle {
  const T* a;
  int64_t n;
  bool transposed, conjugated, unit_diagonal, lower;

  T At(int64_t i, int64_t j) const {
    if (i == j && unit_diagonal) return T(1);
    const T value = transposed ? a[j * n + i] : a[i * n + j];
    return conjugated ? Conjugate(value) : value;
  }
  bool IsLower() const { return lower != transposed; }
};

// Solves op(A) x = b in place: x has `n` elements, `stride` apart.
template <typename T>
void SolveLine(const Triangle<T>& t, T* x, int64_t stride) {
  const int64_t n = t.n;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = t.IsLower() ? step : n - 1 - step;
    T sum = x[i * stride];
    const int64_t begin = t.IsLower() ? 0 : i + 1, end = t.IsLower() ? i : n;
    for (int64_t k = begin; k < end; ++k) sum -= t.At(i, k) * x[k * stride];
    x[i * stride] = t.unit_diagonal ? sum : sum / t.At(i, i);
  }
}

// x op(A) = b is op(A)^T x^T = b^T, row by row.
template <typename T>
void Solve(Triangle<T> t, bool left, T* b, int64_t rows, int64_t columns) {
  if (left) {
    for (int64_t c = 0; c < columns; ++c) SolveLine(t, b + c, columns);
    return;
  }
  t.transposed = !t.transposed;
  for (int64_t r = 0; r < rows; ++r) SolveLine(t, b + r * columns, int64_t{1});
}

ElementType WideType(ElementType type) { return tensor::IsComplex(type) ? ElementType::kC128 : ElementType::kF64; }

absl::StatusOr<Value> EvalCholesky(const Operation& operation) {
  const Value wide = ConvertTo(operation.operand(0), WideType(operation.operand(0).type()));
  const int64_t n = wide.dims().back(), size = n * n;
  Array out(wide.shape());
  const auto run = [&]<typename T>() {
    for (int64_t i = 0; i < out.elements(); i += size) {
      Cholesky(wide.values<T>().data() + i, out.values<T>().data() + i, n, operation.attributes().lower);
    }
  };
  if (tensor::IsComplex(wide.type())) {
    run.operator()<Complex128>();
  } else {
    run.operator()<double>();
  }
  return ConvertTo(Value(std::move(out)), operation.result().type);
}

absl::StatusOr<Value> EvalTriangularSolve(const Operation& operation) {
  const Attributes& attributes = operation.attributes();
  const ElementType type = WideType(operation.operand(0).type());
  const Value a = ConvertTo(operation.operand(0), type);
  Array b = ConvertTo(operation.operand(1), type).Take();
  const Dims& dims = b.shape().dims;
  const int64_t rows = dims[dims.size() - 2], columns = dims.back(), n = a.dims().back();
  const std::string& transpose = attributes.transpose_a;
  const bool adjoint = transpose == "ADJOINT", transposed = adjoint || transpose == "TRANSPOSE";
  const auto run = [&]<typename T>() {
    for (int64_t i = 0; rows * columns > 0 && i < b.elements() / (rows * columns); ++i) {
      const Triangle<T> t{
          a.values<T>().data() + i * n * n, n, transposed, adjoint, attributes.unit_diagonal, attributes.lower};
      Solve(t, attributes.left_side, b.values<T>().data() + i * rows * columns, rows, columns);
    }
  };
  if (tensor::IsComplex(type)) {
    run.operator()<Complex128>();
  } else {
    run.operator()<double>();
  }
  return ConvertTo(Value(std::move(b)), operation.result().type);
}

constexpr EvalRow kRows[] = {
    {Opcode::kCholesky, EvalCholesky},
    {Opcode::kTriangularSolve, EvalTriangularSolve},
};

}  // namespace

absl::Span<const EvalRow> LinalgRows() { return kRows; }

}  // namespace xlad::hlo::eval
