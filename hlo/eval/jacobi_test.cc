// Sweeps of Jacobi's method on matrices with equal, zero and widely different values.
#include "hlo/eval/jacobi.h"

#include <complex>
#include <functional>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace xlad::hlo::eval {
namespace {

// A dense square matrix.
template <typename T>
struct Square {
  int64_t n;
  std::vector<T> values;
  explicit Square(int64_t n) : n(n), values(n * n, T(0)) {}
  MatrixRef<T> ref() { return {values.data(), n, n}; }
  T& operator()(int64_t i, int64_t j) { return values[i * n + j]; }
};

template <typename T>
class Jacobi : public ::testing::Test {
 protected:
  T Number() {
    if constexpr (std::is_same_v<T, double>) {
      return normal_(random_);
    } else {
      return T(normal_(random_), normal_(random_));
    }
  }

  // Orthonormal columns, by Gram-Schmidt orthogonalization of random ones.
  Square<T> RandomUnitary(int64_t n) {
    Square<T> q(n);
    for (T& x : q.values) x = Number();
    for (int64_t j = 0; j < n; ++j) {
      for (int pass = 0; pass < 2; ++pass) {
        for (int64_t k = 0; k < j; ++k) {
          T inner = T(0);
          for (int64_t i = 0; i < n; ++i) inner += Conjugate(q(i, k)) * q(i, j);
          for (int64_t i = 0; i < n; ++i) q(i, j) -= inner * q(i, k);
        }
      }
      double size = 0;
      for (int64_t i = 0; i < n; ++i) size += std::norm(q(i, j));
      for (int64_t i = 0; i < n; ++i) q(i, j) /= std::sqrt(size);
    }
    return q;
  }

  // Q diag(values) P^H.
  Square<T> Product(Square<T> q, const std::function<double(int64_t)>& value, Square<T> p) {
    Square<T> result(q.n);
    for (int64_t i = 0; i < q.n; ++i) {
      for (int64_t j = 0; j < q.n; ++j) {
        for (int64_t k = 0; k < q.n; ++k) result(i, j) += q(i, k) * value(k) * Conjugate(p(j, k));
      }
    }
    return result;
  }

  std::mt19937 random_{7};
  std::normal_distribution<double> normal_;
};

const std::function<double(int64_t)> kValues[] = {
    [](int64_t) { return 1.0; },
    [](int64_t k) { return k % 2 == 0 ? 1.0 : 0.0; },
    [](int64_t k) { return k % 2 == 0 ? 1.0 : 1e-9; },
    [](int64_t k) { return k % 2 == 0 ? 1.0 : -1.0; },
    [](int64_t k) { return 1 + 1e-15 * static_cast<double>(k); },
    [](int64_t k) { return std::pow(10.0, -k); },
    [](int64_t k) { return std::pow(10.0, -20 * k); },
    [](int64_t k) { return static_cast<double>(k % 3); },
};

// The sweep that finds nothing to rotate is one of these.
constexpr int kFewSweeps = 24;

using Types = ::testing::Types<double, std::complex<double>>;
TYPED_TEST_SUITE(Jacobi, Types);

TYPED_TEST(Jacobi, ConvergesInFewSweeps) {
  for (const auto& value : kValues) {
    for (const int64_t n : {1, 2, 3, 5, 8, 13, 20, 30}) {
      for (int repetition = 0; repetition < 4; ++repetition) {
        const auto q = this->RandomUnitary(n), p = this->RandomUnitary(n);
        auto hermitian = this->Product(q, value, q), v = q;
        for (int64_t i = 0; i < n; ++i) {
          hermitian(i, i) = std::real(hermitian(i, i));
          for (int64_t j = 0; j < i; ++j) hermitian(i, j) = Conjugate(hermitian(j, i));
        }
        EXPECT_TRUE(Diagonalize(hermitian.ref(), v.ref(), kFewSweeps)) << n;
        auto general = this->Product(q, value, p), w = p;
        EXPECT_TRUE(OrthogonalizeColumns(general.ref(), w.ref(), kFewSweeps)) << n;
      }
    }
  }
}

// The squared length of the second column is 0 in double precision.
TYPED_TEST(Jacobi, ConvergesIfSquaresUnderflow) {
  Square<TypeParam> a(2), v(2);
  a(0, 0) = 1;
  a(0, 1) = a(1, 1) = 1e-170;
  EXPECT_TRUE(OrthogonalizeColumns(a.ref(), v.ref(), kFewSweeps));
}

TYPED_TEST(Jacobi, SaysThatSweepsWereTooFew) {
  const auto q = this->RandomUnitary(20), p = this->RandomUnitary(20);
  auto hermitian = this->Product(q, [](int64_t k) { return static_cast<double>(k); }, q), v = q;
  EXPECT_FALSE(Diagonalize(hermitian.ref(), v.ref(), 2));
  auto general = this->Product(q, [](int64_t k) { return static_cast<double>(k); }, p), w = p;
  EXPECT_FALSE(OrthogonalizeColumns(general.ref(), w.ref(), 2));
}

}  // namespace
}  // namespace xlad::hlo::eval
