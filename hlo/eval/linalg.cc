// cholesky and triangular-solve of each matrix of a batch, computed in double or complex<double>.
#include <cmath>

#include "hlo/eval/numeric.h"
#include "hlo/eval/reducer.h"
#include "hlo/eval/triangular.h"

namespace xlad::hlo::eval {
namespace {

// The Cholesky factor L with A = L L^H if `lower`, otherwise U with A = U^H U. Only that triangle of A is read, and the
// other triangle of the result is zero. If A is not positive definite, the columns of L from the first one whose
// diagonal element is not positive have NaN, even if the element is 0.
template <typename T>
void Cholesky(const T* a, T* out, int64_t n, bool lower) {
  const auto at = [&](int64_t i, int64_t j) { return lower ? a[i * n + j] : Conjugate(a[j * n + i]); };
  std::vector<T> l(n * n, T(0));
  for (int64_t j = 0; j < n; ++j) {
    T diagonal = T(std::real(at(j, j)));
    for (int64_t k = 0; k < j; ++k) diagonal -= l[j * n + k] * Conjugate(l[j * n + k]);
    const double root = std::real(diagonal) > 0 ? std::sqrt(std::real(diagonal)) : NAN;
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

absl::StatusOr<Value> EvalCholesky(const Operation& operation) {
  const Value wide = ConvertTo(operation.operand(0), DoublePrecisionOf(operation.operand(0).type()));
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
  const ElementType type = DoublePrecisionOf(operation.operand(0).type());
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
      SolveTriangular(t, attributes.left_side, b.values<T>().data() + i * rows * columns, rows, columns);
    }
  };
  if (tensor::IsComplex(type)) {
    run.operator()<Complex128>();
  } else {
    run.operator()<double>();
  }
  return ConvertTo(Value(std::move(b)), operation.result().type);
}

constexpr EvalRow kLinalgRows[] = {
    {Opcode::kCholesky, EvalCholesky},
    {Opcode::kTriangularSolve, EvalTriangularSolve},
};

}  // namespace

absl::Span<const EvalRow> LinalgRows() { return kLinalgRows; }

}  // namespace xlad::hlo::eval
