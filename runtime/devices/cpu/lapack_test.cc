// Tests the library ops of LAPACK: checks the documented properties of each routine's results for all element types and
// many sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "runtime/devices/cpu/library_op.h"
#include "tensor/shape.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;
using Complex = std::complex<double>;
using Dims = std::vector<int64_t>;
using MatrixSizes = std::vector<std::pair<int64_t, int64_t>>;  // Rows and columns.

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<Complex> values;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}
  Complex& operator()(int64_t i, int64_t j) { return values[static_cast<size_t>(i * columns + j)]; }
  Complex operator()(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * columns + j)]; }
};

template <typename F>
Matrix Filled(int64_t rows, int64_t columns, const F& f) {
  Matrix m(rows, columns);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) m(i, j) = f(i, j);
  }
  return m;
}
Matrix Identity(int64_t n) {
  return Filled(n, n, [](int64_t i, int64_t j) { return i == j ? 1.0 : 0.0; });
}
Matrix Adjoint(const Matrix& a) {
  return Filled(a.columns, a.rows, [&](int64_t i, int64_t j) { return std::conj(a(j, i)); });
}
Matrix operator*(const Matrix& a, const Matrix& b) {
  return Filled(a.rows, b.columns, [&](int64_t i, int64_t j) {
    Complex sum = 0;
    for (int64_t k = 0; k < a.columns; ++k) sum += a(i, k) * b(k, j);
    return sum;
  });
}
Matrix Part(const Matrix& a, int64_t rows, int64_t columns) {
  return Filled(rows, columns, [&](int64_t i, int64_t j) { return a(i, j); });
}
Matrix Upper(const Matrix& a) {
  return Filled(a.rows, a.columns, [&](int64_t i, int64_t j) { return i <= j ? a(i, j) : Complex(0); });
}
Matrix Diagonal(const Matrix& values, int64_t rows, int64_t columns) {
  return Filled(rows, columns, [&](int64_t i, int64_t j) { return i == j ? values(i, 0) : Complex(0); });
}

template <typename T>
class Lapack : public ::testing::Test {
 protected:
  using Real = decltype(std::real(T()));
  static constexpr bool kComplex = !std::is_same_v<T, Real>;
  static constexpr bool kSingle = sizeof(Real) == 4;
  static constexpr ElementType kType = kComplex ? (kSingle ? ElementType::kC64 : ElementType::kC128)
                                                : (kSingle ? ElementType::kF32 : ElementType::kF64);
  static constexpr ElementType kReal = kSingle ? ElementType::kF32 : ElementType::kF64;
  static constexpr ElementType kPair = kSingle ? ElementType::kC64 : ElementType::kC128;
  static constexpr ElementType kInt = ElementType::kS32;

  // Names of routines that depend on the type.
  static std::string Name(const char* real, const char* complex) { return kComplex ? complex : real; }

  Complex Number() {
    const auto one = [&] { return 2 * random_->Unit() - 1; };
    const double re = one();
    const Complex x(re, kComplex ? one() : 0);
    return {static_cast<double>(static_cast<Real>(x.real())), static_cast<double>(static_cast<Real>(x.imag()))};
  }
  Matrix RandomMatrix(int64_t rows, int64_t columns) {
    return Filled(rows, columns, [&](int64_t, int64_t) { return Number(); });
  }
  Matrix Hermitian(int64_t n) {
    const Matrix a = RandomMatrix(n, n);
    return Filled(n, n, [&](int64_t i, int64_t j) {
      return i == j ? Complex(a(i, i).real()) : i > j ? a(i, j) : std::conj(a(j, i));
    });
  }

  // Begins an op. The operands and then the results are added in order.
  void Call(const std::string& routine) {
    op_ = LapackOp();
    op_.set_routine(routine);
    op_.set_element_type(static_cast<int>(kType));
    op_.set_batch(1);
    operands_.clear();
    results_.clear();
  }
  void Option(const char* name, int value) {
    LapackOp::Option* option = op_.add_options();
    option->set_name(name);
    option->set_value(value);
  }
  void Operand(ElementType type, const Dims& dims, const Matrix& values) {
    AddShape(type, dims, op_.add_operands());
    std::vector<char> bytes;
    for (const Complex& x : values.values) {
      if (type == kInt) {
        Append(static_cast<int32_t>(x.real()), &bytes);
      } else if (tensor::IsComplex(type)) {
        Append(std::complex<Real>(x), &bytes);
      } else {
        Append(static_cast<Real>(x.real()), &bytes);
      }
    }
    operands_.push_back(std::move(bytes));
  }
  void Operand(const Matrix& a) { Operand(kType, {a.rows, a.columns}, a); }
  void Result(ElementType type, const Dims& dims) { AddShape(type, dims, op_.add_results()); }

  // Runs the op for a batch of equal matrices and checks that all results are equal.
  void Run() {
    constexpr int kBatch = 3;
    op_.set_batch(kBatch);
    const auto prepared = PrepareLapack(op_);
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    const auto call = (*prepared)->MakeCall(/*threads=*/1);
    ASSERT_TRUE(call.ok()) << call.status();
    std::vector<std::vector<char>> buffers;
    for (const std::vector<char>& one : operands_) {
      std::vector<char>& all = buffers.emplace_back();
      for (int b = 0; b < kBatch; ++b) all.insert(all.end(), one.begin(), one.end());
    }
    for (const ArrayShape& shape : op_.results()) buffers.emplace_back(Bytes(shape) * kBatch, 99);
    std::vector<void*> addresses;
    for (std::vector<char>& buffer : buffers) addresses.push_back(buffer.data());
    std::vector<char> memory(static_cast<size_t>((*prepared)->scratch_bytes(/*threads=*/1)) + 64);
    char* const scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    const std::vector<std::vector<char>> before = buffers;
    ThreadTeam team(1);
    ASSERT_TRUE((*call)->Run(addresses, scratch, team).ok());
    for (size_t i = 0; i < operands_.size(); ++i) EXPECT_EQ(buffers[i], before[i]) << "operands are not written";
    for (int r = 0; r < op_.results_size(); ++r) {
      const std::vector<char>& all = buffers[operands_.size() + static_cast<size_t>(r)];
      const size_t size = all.size() / kBatch;
      results_.emplace_back(all.begin(), all.begin() + static_cast<int64_t>(size));
      for (int b = 1; b < kBatch && size > 0; ++b) {
        EXPECT_EQ(std::memcmp(all.data() + size * b, all.data(), size), 0) << op_.routine() << " result " << r;
      }
    }
  }

  Matrix Found(int r) const {
    const ArrayShape& shape = op_.results(r);
    const int64_t rows = shape.dims_size() > 0 ? shape.dims(0) : 1, columns = shape.dims_size() > 1 ? shape.dims(1) : 1;
    const auto type = tensor::TypeFromWire(shape);
    const char* const at = results_[static_cast<size_t>(r)].data();
    return Filled(rows, columns, [&](int64_t i, int64_t j) -> Complex {
      const int64_t e = i * columns + j;
      if (type == kInt) return Complex(Read<int32_t>(at, e));
      if (tensor::IsComplex(type)) return Complex(Read<std::complex<Real>>(at, e));
      return Complex(static_cast<double>(Read<Real>(at, e)));
    });
  }
  int Info(int r) const { return static_cast<int>(Found(r)(0, 0).real()); }

  void ExpectEqual(const Matrix& found, const Matrix& expected) {
    ASSERT_EQ(found.values.size(), expected.values.size());
    double error = 0, size = 1;
    for (size_t i = 0; i < found.values.size(); ++i) {
      error += std::norm(found.values[i] - expected.values[i]);
      size += std::norm(expected.values[i]);
    }
    const double allowed = (kSingle ? 2e-6 : 4e-15) * (4 + static_cast<double>(found.rows));
    EXPECT_LT(std::sqrt(error / size), allowed) << op_.ShortDebugString();
  }
  void ExpectUnitary(const Matrix& q) { ExpectEqual(Adjoint(q) * q, Identity(q.columns)); }

  // The product H_1 H_2 ... of reflectors I - tau v v^H; v of reflector k has 1 in row k + shift, and below it the
  // elements of column k.
  Matrix Reflected(const Matrix& vectors, const Matrix& tau, int64_t shift) {
    Matrix q = Identity(vectors.rows);
    for (int64_t k = 0; k < tau.rows; ++k) {
      const Matrix v = Filled(vectors.rows, 1, [&](int64_t i, int64_t) {
        return i < k + shift ? Complex(0) : i == k + shift ? Complex(1) : vectors(i, k);
      });
      const Matrix update = v * Adjoint(v);
      q = q * Filled(v.rows, v.rows, [&](int64_t i, int64_t j) {
        return (i == j ? 1.0 : 0.0) - tau(k, 0) * update(i, j);
      });
    }
    return q;
  }

 private:
  static void AddShape(ElementType type, const Dims& dims, ArrayShape* shape) {
    shape->set_element_type(static_cast<int>(type));
    for (const int64_t size : dims) shape->add_dims(size);
  }
  static size_t Bytes(const ArrayShape& shape) {
    return static_cast<size_t>(tensor::ShapeFromWire(shape).bytes());
  }
  template <typename E>
  static void Append(const E& element, std::vector<char>* bytes) {
    const char* const at = reinterpret_cast<const char*>(&element);
    bytes->insert(bytes->end(), at, at + sizeof(E));
  }
  template <typename E>
  static E Read(const char* at, int64_t e) {
    E element;
    std::memcpy(&element, at + e * static_cast<int64_t>(sizeof(E)), sizeof(E));
    return element;
  }

  const std::unique_ptr<Random> random_ = SeededRandom(5);
  LapackOp op_;
  std::vector<std::vector<char>> operands_, results_;
};

using Types = ::testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(Lapack, Types);

constexpr int64_t kSizes[] = {1, 2, 3, 7, 16, 33, 70};

TYPED_TEST(Lapack, Cholesky) {
  for (const int64_t n : kSizes) {
    const Matrix x = this->RandomMatrix(n, n);
    Matrix a = x * Adjoint(x);
    for (int64_t i = 0; i < n; ++i) a(i, i) = a(i, i).real() + static_cast<double>(n);
    for (const char uplo : {'L', 'U'}) {
      for (const bool is_op : {false, true}) {
        this->Call(is_op ? "cholesky" : "potrf");
        this->Operand(a);
        this->Option("uplo", uplo);
        this->Result(this->kType, {n, n});
        if (!is_op) this->Result(this->kInt, {});
        this->Run();
        const Matrix found = this->Found(0);
        const Matrix upper = Upper(uplo == 'U' ? found : Adjoint(found));
        if (is_op && uplo == 'U') this->ExpectEqual(found, upper);
        this->ExpectEqual(Adjoint(upper) * upper, a);
        if (!is_op) EXPECT_EQ(this->Info(1), 0);
      }
    }
  }
}

TYPED_TEST(Lapack, CholeskyOfAMatrixThatIsNotPositiveDefinite) {
  for (const int64_t n : {1, 9, 40}) {
    for (const int64_t bad : {int64_t{0}, n / 2, n - 1}) {
      Matrix a = Identity(n);
      a(bad, bad) = n == 9 ? 0 : -1;
      this->Call("potrf");
      this->Operand(a);
      this->Option("uplo", 'L');
      this->Result(this->kType, {n, n});
      this->Result(this->kInt, {});
      this->Run();
      EXPECT_EQ(this->Info(1), bad + 1);
      this->Call("cholesky");
      this->Operand(a);
      this->Option("uplo", 'L');
      this->Result(this->kType, {n, n});
      this->Run();
      EXPECT_TRUE(std::isnan(this->Found(0)(n - 1, bad).real()));
      if (bad > 0) EXPECT_EQ(this->Found(0)(0, 0), Complex(1));
    }
  }
}

TYPED_TEST(Lapack, LuWithPivoting) {
  for (const auto& [m, n] : MatrixSizes{{1, 1}, {5, 5}, {9, 4}, {4, 9}, {64, 64}, {70, 33}}) {
    const int64_t k = std::min(m, n);
    const Matrix a = this->RandomMatrix(m, n);
    this->Call("getrf");
    this->Operand(a);
    this->Result(this->kType, {m, n});
    this->Result(this->kInt, {k});
    this->Result(this->kInt, {});
    this->Run();
    EXPECT_EQ(this->Info(2), 0);
    const Matrix lu = this->Found(0), pivots = this->Found(1);
    Matrix permuted = a;
    for (int64_t i = 0; i < k; ++i) {
      const auto other = static_cast<int64_t>(pivots(i, 0).real()) - 1;
      for (int64_t j = 0; j < n; ++j) std::swap(permuted.values[i * n + j], permuted.values[other * n + j]);
    }
    const Matrix lower = Filled(m, k, [&](int64_t i, int64_t j) { return i == j ? 1.0 : i > j ? lu(i, j) : 0.0; });
    this->ExpectEqual(lower * Part(Upper(lu), k, n), permuted);
  }
}

TYPED_TEST(Lapack, QrWithAndWithoutPivoting) {
  for (const auto& [m, n] : MatrixSizes{{1, 1}, {5, 5}, {9, 4}, {4, 9}, {40, 40}, {50, 33}}) {
    const int64_t k = std::min(m, n);
    const Matrix a = this->RandomMatrix(m, n);
    for (const bool pivoted : {false, true}) {
      this->Call(pivoted ? "geqp3" : "geqrf");
      this->Operand(a);
      if (pivoted) this->Operand(this->kInt, {n}, Matrix(n, 1));
      this->Result(this->kType, {m, n});
      if (pivoted) this->Result(this->kInt, {n});
      this->Result(this->kType, {k});
      this->Run();
      const Matrix factors = this->Found(0), tau = this->Found(pivoted ? 2 : 1);
      const Matrix order = pivoted ? this->Found(1) : Matrix(n, 1);
      const Matrix permuted = Filled(m, n, [&](int64_t i, int64_t j) {
        return pivoted ? a(i, static_cast<int64_t>(order(j, 0).real()) - 1) : a(i, j);
      });
      for (int64_t i = 1; pivoted && i < k; ++i) {
        EXPECT_GE(std::abs(factors(i - 1, i - 1)) * 1.01, std::abs(factors(i, i)));
      }
      this->Call(this->Name("orgqr", "ungqr"));
      this->Operand(Part(factors, m, k));
      this->Operand(this->kType, {k}, tau);
      this->Result(this->kType, {m, k});
      this->Run();
      const Matrix q = this->Found(0);
      this->ExpectUnitary(q);
      this->ExpectEqual(q * Part(Upper(factors), k, n), permuted);
      const Matrix whole = this->Reflected(factors, tau, 0);
      for (const bool left : {true, false}) {
        for (const bool transposed : {false, true}) {
          const Matrix c = left ? this->RandomMatrix(m, 3) : this->RandomMatrix(3, m);
          this->Call(this->Name("ormqr", "unmqr"));
          this->Operand(Part(factors, m, k));
          this->Operand(this->kType, {k}, tau);
          this->Operand(c);
          this->Option("left", left);
          this->Option("transpose", transposed);
          this->Result(this->kType, {c.rows, c.columns});
          this->Run();
          const Matrix by = transposed ? Adjoint(whole) : whole;
          this->ExpectEqual(this->Found(0), left ? by * c : c * by);
        }
      }
    }
  }
}

TYPED_TEST(Lapack, TriangularSolve) {
  for (const int64_t n : {1, 3, 17, 64}) {
    Matrix a = this->RandomMatrix(n, n);
    for (Complex& x : a.values) x /= static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) a(i, i) += 2;
    for (int flags = 0; flags < 24; ++flags) {
      const bool left = flags % 2 == 0, lower = flags / 2 % 2 == 0, unit = flags / 4 % 2 == 0;
      const char transpose = "NTC"[flags / 8];
      const Matrix b = left ? this->RandomMatrix(n, 5) : this->RandomMatrix(5, n);
      this->Call("trsm");
      this->Operand(a);
      this->Operand(b);
      this->Option("side", left ? 'L' : 'R');
      this->Option("uplo", lower ? 'L' : 'U');
      this->Option("diag", unit ? 'U' : 'N');
      this->Option("trans_x", transpose);
      this->Result(this->kType, {b.rows, b.columns});
      this->Run();
      const Matrix triangle = Filled(n, n, [&](int64_t i, int64_t j) {
        const Complex x = i == j && unit ? Complex(1) : a(i, j);
        return (lower ? i >= j : i <= j) ? x : Complex(0);
      });
      const Matrix by = transpose == 'N' ? triangle : Filled(n, n, [&](int64_t i, int64_t j) {
        return transpose == 'C' ? std::conj(triangle(j, i)) : triangle(j, i);
      });
      this->ExpectEqual(left ? by * this->Found(0) : this->Found(0) * by, b);
    }
  }
}

TYPED_TEST(Lapack, TridiagonalSolve) {
  for (const int64_t n : {1, 2, 3, 50}) {
    const Matrix lower = this->RandomMatrix(n, 1), upper = this->RandomMatrix(n, 1);
    Matrix large = this->RandomMatrix(n, 1);
    for (Complex& x : large.values) x = x.real() < 0 ? -3 : 3;
    const Matrix b = this->RandomMatrix(n, 4);
    this->Call("gtsv");
    for (const Matrix* one : std::vector<const Matrix*>{&lower, &large, &upper}) this->Operand(this->kType, {n}, *one);
    this->Operand(b);
    for (int i = 0; i < 3; ++i) this->Result(this->kType, {n});
    this->Result(this->kType, {n, 4});
    this->Result(this->kInt, {});
    this->Run();
    const Matrix a = Filled(n, n, [&](int64_t i, int64_t j) {
      return i == j ? large(i, 0) : j == i - 1 ? lower(i, 0) : j == i + 1 ? upper(i, 0) : Complex(0);
    });
    EXPECT_EQ(this->Info(4), 0);
    this->ExpectEqual(a * this->Found(3), b);
  }
}

TYPED_TEST(Lapack, EigenvaluesOfHermitianMatrices) {
  for (const int64_t n : kSizes) {
    const Matrix a = this->Hermitian(n);
    for (const char uplo : {'L', 'U'}) {
      this->Call(this->Name("syevd", "heevd"));
      this->Operand(a);
      this->Option("uplo", uplo);
      this->Option("mode", 'V');
      this->Result(this->kType, {n, n});
      this->Result(this->kReal, {n});
      this->Result(this->kInt, {});
      this->Run();
      const Matrix v = this->Found(0), values = this->Found(1);
      EXPECT_EQ(this->Info(2), 0);
      this->ExpectUnitary(v);
      this->ExpectEqual(v * Diagonal(values, n, n) * Adjoint(v), a);
      for (int64_t i = 1; i < n; ++i) EXPECT_LE(values(i - 1, 0).real(), values(i, 0).real());
    }
  }
}

TYPED_TEST(Lapack, SingularValues) {
  for (const auto& [m, n] : MatrixSizes{{1, 1}, {6, 6}, {9, 4}, {4, 9}, {40, 40}, {70, 33}}) {
    const int64_t k = std::min(m, n);
    const Matrix a = this->RandomMatrix(m, n);
    for (const char* routine : {"gesdd", "gesvd"}) {
      for (const char mode : {'A', 'S', 'N'}) {
        const int64_t u = mode == 'A' ? m : k, v = mode == 'A' ? n : k;
        this->Call(routine);
        this->Operand(a);
        this->Option("mode", mode);
        this->Result(this->kType, {m, n});
        this->Result(this->kReal, {k});
        this->Result(this->kType, {m, u});
        this->Result(this->kType, {v, n});
        this->Result(this->kInt, {});
        this->Run();
        EXPECT_EQ(this->Info(4), 0);
        const Matrix values = this->Found(1);
        for (int64_t i = 1; i < k; ++i) EXPECT_GE(values(i - 1, 0).real(), values(i, 0).real());
        double squares = 0;
        for (const Complex& x : a.values) squares += std::norm(x);
        for (const Complex& x : values.values) squares -= std::norm(x);
        EXPECT_NEAR(squares, 0, 1e-3);
        if (mode == 'N') continue;
        this->ExpectUnitary(this->Found(2));
        this->ExpectUnitary(Adjoint(this->Found(3)));
        this->ExpectEqual(this->Found(2) * Diagonal(values, u, v) * this->Found(3), a);
      }
    }
  }
}

TYPED_TEST(Lapack, Eigenvalues) {
  for (const int64_t n : {1, 2, 5, 16, 31}) {
    const Matrix a = this->RandomMatrix(n, n);
    this->Call("geev");
    this->Operand(a);
    this->Option("compute_left", 'V');
    this->Option("compute_right", 'V');
    this->Result(this->kType, {n});
    if (!this->kComplex) this->Result(this->kType, {n});
    this->Result(this->kPair, {n, n});
    this->Result(this->kPair, {n, n});
    this->Result(this->kInt, {});
    this->Run();
    const int first = this->kComplex ? 1 : 2;
    Matrix values = this->Found(0);
    const Matrix imaginary = this->Found(this->kComplex ? 0 : 1);
    for (int64_t i = 0; i < n && !this->kComplex; ++i) values(i, 0) = {values(i, 0).real(), imaginary(i, 0).real()};
    const Matrix left = this->Found(first), right = this->Found(first + 1);
    EXPECT_EQ(this->Info(first + 2), 0);
    this->ExpectEqual(a * right, right * Diagonal(values, n, n));
    this->ExpectEqual(Adjoint(left) * a, Diagonal(values, n, n) * Adjoint(left));
    for (int64_t j = 0; j < n; ++j) {
      double length = 0;
      for (int64_t i = 0; i < n; ++i) length += std::norm(right(i, j));
      EXPECT_NEAR(length, 1, 1e-4);
    }
  }
}

TYPED_TEST(Lapack, EigenvaluesOfNaNsAreReportedAsFailure) {
  Matrix a = this->RandomMatrix(6, 6);
  a(2, 3) = std::numeric_limits<double>::quiet_NaN();
  this->Call("geev");
  this->Operand(a);
  this->Result(this->kType, {6});
  if (!this->kComplex) this->Result(this->kType, {6});
  this->Result(this->kPair, {6, 6});
  this->Result(this->kPair, {6, 6});
  this->Result(this->kInt, {});
  this->Run();
  EXPECT_NE(this->Info(this->kComplex ? 3 : 4), 0);
}

TYPED_TEST(Lapack, SchurForm) {
  for (const int64_t n : {1, 2, 5, 16, 31}) {
    const Matrix a = this->RandomMatrix(n, n);
    this->Call("gees");
    this->Operand(a);
    this->Option("mode", 'V');
    this->Result(this->kType, {n, n});
    this->Result(this->kType, {n, n});
    this->Result(this->kType, {n});
    if (!this->kComplex) this->Result(this->kType, {n});
    this->Result(this->kInt, {});
    this->Result(this->kInt, {});
    this->Run();
    const Matrix t = this->Found(0), z = this->Found(1);
    EXPECT_EQ(this->Info(this->kComplex ? 4 : 5), 0);
    this->ExpectUnitary(z);
    this->ExpectEqual(z * t * Adjoint(z), a);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j + (this->kComplex ? 0 : 1) < i; ++j) EXPECT_EQ(t(i, j), Complex(0));
    }
  }
}

TYPED_TEST(Lapack, HessenbergAndTridiagonalForms) {
  for (const int64_t n : {1, 2, 5, 16, 40}) {
    const Matrix a = this->RandomMatrix(n, n);
    this->Call("gehrd");
    this->Operand(a);
    this->Option("low", 1);
    this->Option("high", static_cast<int>(n));
    this->Result(this->kType, {n, n});
    this->Result(this->kType, {n - 1});
    this->Result(this->kInt, {});
    this->Run();
    EXPECT_EQ(this->Info(2), 0);
    const Matrix found = this->Found(0), q = this->Reflected(found, this->Found(1), 1);
    const Matrix h = Filled(n, n, [&](int64_t i, int64_t j) { return i <= j + 1 ? found(i, j) : Complex(0); });
    this->ExpectEqual(q * h * Adjoint(q), a);

    const Matrix s = this->Hermitian(n);
    this->Call(this->Name("sytrd", "hetrd"));
    this->Operand(s);
    this->Option("uplo", 'L');
    this->Result(this->kType, {n, n});
    this->Result(this->kReal, {n});
    this->Result(this->kReal, {n - 1});
    this->Result(this->kType, {n - 1});
    this->Result(this->kInt, {});
    this->Run();
    const Matrix diagonal = this->Found(1), off_diagonal = this->Found(2);
    const Matrix by = this->Reflected(this->Found(0), this->Found(3), 1);
    const Matrix t = Filled(n, n, [&](int64_t i, int64_t j) {
      return i == j ? diagonal(i, 0) : i == j + 1 ? off_diagonal(j, 0) : j == i + 1 ? off_diagonal(i, 0) : Complex(0);
    });
    this->ExpectEqual(by * t * Adjoint(by), s);
  }
}

TEST(LapackOps, RefusesShapesThatDoNotFit) {
  LapackOp op;
  op.set_routine("orgqr");
  op.set_element_type(static_cast<int>(ElementType::kF32));
  op.set_batch(1);
  const auto add = [](const Dims& dims, ArrayShape* shape) {
    shape->set_element_type(static_cast<int>(ElementType::kF32));
    for (const int64_t size : dims) shape->add_dims(size);
  };
  add({5, 3}, op.add_operands());
  add({3}, op.add_operands());
  add({5, 3}, op.add_results());
  EXPECT_TRUE(PrepareLapack(op).ok()) << PrepareLapack(op).status();
  const auto refused = [&](const auto& change) {
    LapackOp bad = op;
    change(&bad);
    return PrepareLapack(bad).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](LapackOp* bad) { bad->mutable_operands(1)->set_dims(0, 4); }));
  EXPECT_TRUE(refused([](LapackOp* bad) { bad->mutable_results(0)->set_dims(0, 4); }));
  EXPECT_TRUE(refused([](LapackOp* bad) { bad->set_routine("unknown"); }));
  EXPECT_TRUE(refused([](LapackOp* bad) { bad->set_batch(-1); }));
  EXPECT_TRUE(refused([](LapackOp* bad) { bad->set_element_type(static_cast<int>(ElementType::kS32)); }));
}

}  // namespace
}  // namespace xlad::runtime
