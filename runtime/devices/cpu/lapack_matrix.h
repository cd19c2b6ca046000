// One matrix of a LAPACK op: its operands, results, options and scratch memory.
//
// Arrays are stored in row-major order and LAPACK uses column-major order, so LAPACK reads an array as the transposed
// matrix. Routines that have a form for the transposed problem use it. For example, the lower triangle is LAPACK's
// upper triangle, and A X = B is X^T A^T = B^T. The left singular vectors of A^T are the right singular vectors of A.
// The other routines transpose their operands and results.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/rounding.h"
#include "base/status.h"
#include "proto/executable.pb.h"
#include "runtime/devices/cpu/lapack_library.h"

namespace xlad::runtime {

template <typename T>
constexpr bool kIsComplex = !std::is_same_v<T, decltype(std::real(T()))>;

// Before the first Begin, a routine is run to measure its scratch memory: WorkSize asks LAPACK for the sizes of the
// routine's work areas, and nothing is computed. After each Begin, the routine computes with one matrix, in memory of
// the measured size.
template <typename T>
class LapackMatrix {
 public:
  using Real = decltype(std::real(T()));

  LapackMatrix(const LapackOp* op, const LapackLibrary<T>* library) : op_(*op), library_(*library) {}

  const LapackLibrary<T>& library() const { return library_; }
  int32_t dim(int operand, int d) const { return op_.operands(operand).dims(d); }
  int32_t result_dim(int result, int d) const { return op_.results(result).dims(d); }
  int32_t rows() const { return dim(0, 0); }
  int32_t columns() const { return dim(0, 1); }
  // The option's value, a letter or a number, or `otherwise` if the op does not have the option.
  int Option(absl::string_view name, int otherwise) const {
    for (const LapackOp::Option& option : op_.options()) {
      if (option.name() == name) return option.value();
    }
    return otherwise;
  }
  char Letter(absl::string_view name, char otherwise) const { return Option(name, otherwise); }

  template <typename E = T>
  const E* operand(int i) const {
    return static_cast<const E*>(operands_[i]);
  }
  template <typename E = T>
  E* result(int i) const {
    return static_cast<E*>(results_[i]);
  }

  bool measures() const { return memory_ == nullptr; }
  // Scratch memory for `count` elements. While measuring, every call returns the same 64 bytes, which LAPACK may write.
  template <typename E = T>
  E* Take(int64_t count) {
    E* const taken = reinterpret_cast<E*>(measures() ? answers_ : memory_ + used_);
    used_ += RoundUp(std::max<int64_t>(count, 1) * sizeof(E), 64);
    return taken;
  }
  template <typename E = T>
  E* TakeMatrix(int64_t rows, int64_t columns) {
    return Take<E>(rows * columns);
  }
  // The size of a work area. While measuring, query() asks LAPACK for it; later the same size is returned.
  template <typename Query>
  int32_t WorkSize(const Query& query) {
    if (measures()) sizes_.push_back(std::max<int32_t>(1, query()));
    return sizes_[next_size_++];
  }
  int64_t used_bytes() const { return used_; }

  // Sets the scratch memory, the operands and the results of the next matrix. The scratch memory must have the size
  // that used_bytes() returned after measuring.
  void Begin(char* memory, std::vector<const void*> operands, std::vector<void*> results) {
    memory_ = memory;
    operands_ = std::move(operands);
    results_ = std::move(results);
    used_ = 0;
    next_size_ = 0;
  }

 private:
  const LapackOp& op_;
  const LapackLibrary<T>& library_;
  char* memory_ = nullptr;
  alignas(64) char answers_[64];
  int64_t used_ = 0;
  std::vector<int32_t> sizes_;
  size_t next_size_ = 0;
  std::vector<const void*> operands_;
  std::vector<void*> results_;
};

// Converts the size of a work area from the form in which LAPACK returns it, a value of the matrix's element type. A
// size in f32 may have been rounded down, so it is increased by one part in a million.
template <typename T>
int32_t RoundedSize(const T& work) {
  const double size = static_cast<double>(std::real(work));
  return std::ceil(size * (sizeof(std::real(work)) == 4 ? 1 + 1e-6 : 1));
}

inline char Opposite(char uplo) { return uplo == 'L' ? 'U' : 'L'; }

// to = from, for `rows` x `columns` elements.
template <typename T>
void CopyMatrix(const T* from, int64_t rows, int64_t columns, T* to) {
  std::copy_n(from, rows * columns, to);
}

template <typename T>
void SetZero(int64_t rows, int64_t columns, T* to) {
  std::fill_n(to, rows * columns, T(0));
}

// to = from^T, for `rows` x `columns` elements stored by rows, or the conjugate of from^T if `conjugate`.
template <typename T>
void Transpose(const T* from, int64_t rows, int64_t columns, T* to, bool conjugate = false) {
  constexpr int64_t kBlock = 16;
  for (int64_t i = 0; i < rows; i += kBlock) {
    for (int64_t j = 0; j < columns; j += kBlock) {
      const int64_t i_end = std::min(rows, i + kBlock), j_end = std::min(columns, j + kBlock);
      for (int64_t x = j; x < j_end; ++x) {
        for (int64_t y = i; y < i_end; ++y) {
          T value = from[y * columns + x];
          if constexpr (kIsComplex<T>) value = conjugate ? std::conj(value) : value;
          to[x * rows + y] = value;
        }
      }
    }
  }
}

// A routine for one matrix. Its operands and results are those of tensor/lapack_call.h.
template <typename T>
using LapackFunction = void (*)(LapackMatrix<T>&);

template <typename T>
struct LapackRoutine {
  absl::string_view name;
  LapackFunction<T> function;
};

// Factorizations and solves: lapack_factor.cc; eigenvalues and singular values: lapack_spectral.cc.
template <typename T>
absl::Span<const LapackRoutine<T>> LapackFactorRoutines();
template <typename T>
absl::Span<const LapackRoutine<T>> LapackSpectralRoutines();

// Instantiates one of the two functions above for the types that LAPACK has.
#define XLAD_INSTANTIATE_LAPACK(routines)                                                                     \
  template absl::Span<const LapackRoutine<float>> routines<float>();                                          \
  template absl::Span<const LapackRoutine<double>> routines<double>();                                        \
  template absl::Span<const LapackRoutine<std::complex<float>>> routines<std::complex<float>>();              \
  template absl::Span<const LapackRoutine<std::complex<double>>> routines<std::complex<double>>()

}  // namespace xlad::runtime
