// Random instructions on a pool of values. Each value has an estimate of how exactly it can be computed.
//
// Two correct ways to compute a sum of floats differ in rounding, and a comparison, a rounding or a sort of the sum can
// make the difference arbitrarily large. Therefore every value has a bound on its magnitude, a grid (its elements are
// multiples of 2^-fraction) and an error bound. While the magnitude is small enough for the grid, sums are exact in
// every order. Otherwise the error bound is positive: each instruction increases it by its own rounding and slope, and
// the value is not used by instructions that are not continuous.
//
// A value whose bound is infinite may hold NaNs, infinities and denormal numbers. Only instructions that IEEE 754
// defines exactly (random_exact.cc), and instructions that move or select elements, are applied to it.
#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/random.h"
#include "compiler/analysis/hlo_names.h"
#include "compiler/testing/compare.h"
#include "hlo/build/builder.h"
#include "hlo/module.h"

namespace xlad::compiler {

using hlo::Builder;

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// A value of the program under construction.
struct Sample {
  hlo::Instruction* array = nullptr;  // Null if no instruction was made.
  double bound = 0;                   // For floats, |element| <= bound. If it is kUnbounded, elements may also be NaN.
  int fraction = 0;                   // The elements of an exact float array are multiples of 2^-fraction.
  // The maximum difference between two correct computations. If 0, the value is exact.
  double error = 0;

  bool exact() const { return error == 0; }
  bool finite() const { return bound != kUnbounded; }
  explicit operator bool() const { return array != nullptr; }
  hlo::ElementType type() const { return array->shape().type(); }
  const hlo::Dims& dims() const { return array->shape().dims(); }
  int64_t ndim() const { return array->shape().ndim(); }
};
using Pool = std::vector<Sample>;

// The largest relative rounding error of one operation in this type, or 0 for integers.
double RoundingOf(hlo::ElementType type);

// A sample for another array whose elements have the same bounds as those of `x`.
inline Sample Like(const Sample& x, hlo::Instruction* array) { return {array, x.bound, x.fraction, x.error}; }
// A sample for an array whose elements are elements of `x` and `y`.
Sample JoinOf(const Sample& x, const Sample& y, hlo::Instruction* array);

// Appends an instruction whose attributes and called computations are set. Its shape is an initial guess, from which
// the correct shape is inferred. If the instruction is not well formed, returns null and does not change the
// computation.
hlo::Instruction* Append(hlo::Builder& builder, std::unique_ptr<hlo::Instruction> instruction,
                         absl::Span<hlo::Instruction* const> operands);
// An array with the shape of `like` whose elements are all `value`.
hlo::Instruction* Splat(hlo::Builder& builder, const hlo::Instruction* like, double value);
// An integer scalar with these low bits. (builder.Scalar has a double argument, which is rounded beyond 2^53.)
hlo::Instruction* IntegerScalar(hlo::Builder& builder, hlo::ElementType type, uint64_t bits);

// Common functions of all families of random instructions: random choices, operands from the pool, adaptation of
// shapes.
class RandomValues {
 public:
  struct Options {
    bool specials = false;  // Whether to use special constants and sizes: NaN, -0, INT_MIN, dimensions of size 0.
    // Whether several devices may compute parts of a sum. Then the sign of a zero is determined in the sum, but not in
    // values that are computed from it.
    bool sums_split = false;
    bool library_calls = false;  // Whether to use calls to LAPACK routines.
    bool all_results = false;    // Whether every value that no instruction uses is a result of the program.
  };
  RandomValues(hlo::Module* module, Random* random, Options options)
      : module_(*module), random_(*random), options_(options) {}

  hlo::Module& module() { return module_; }
  Random& random() { return random_; }
  const Options& options() const { return options_; }
  // A uniform random number in [0, n), for n > 0.
  int Below(int64_t n) { return static_cast<int>(random_.Below(n)); }
  // True with probability 1/n.
  bool OneIn(int n) { return Below(n) == 0; }
  template <typename T, size_t n>
  const T& OneOf(const T (&choices)[n]) {
    return choices[Below(n)];
  }

  hlo::ElementType RandomType();
  hlo::ElementType RandomFloat();
  hlo::ElementType RandomInteger();
  hlo::Dims RandomDims(int max_ndim);  // An array of these sizes has at most kMaxElements elements.
  static constexpr int64_t kMaxElements = 600;

  // Returns a random value of the pool. Recent values are more likely, so that programs become deep.
  Sample Pick(const Pool& pool);
  // Like Pick, but PickFinite returns only values with a finite bound, and PickExact only those of them that are exact.
  // They return an empty sample if ten (PickFinite) or six (PickExact) random picks find no such value.
  Sample PickFinite(const Pool& pool);
  Sample PickExact(const Pool& pool);
  // An operand of this type and these sizes, which is adapted from a finite value of the pool if there is one.
  Sample FiniteOperand(hlo::Builder& builder, const Pool& pool, hlo::ElementType type, const hlo::Dims& dims);
  // A scalar integer of the given type for use as an index: a constant, which may be out of bounds or extreme, or a
  // value of the pool. If `pool` is null, always a constant.
  hlo::Instruction* Index(hlo::Builder& builder, const Pool* pool, hlo::ElementType type, int64_t size);
  // A constant of special values: one scalar in all elements or, if the array is small, possibly a random one in each.
  hlo::Instruction* SpecialConstant(hlo::Builder& builder, hlo::ElementType type, const hlo::Dims& dims);

  // Makes a new value usable as an operand. Sets the error if the value is no longer exact. Scales, clamps or floors
  // the value if its bound is too large or its grid too fine. Empty if the error or the array is too large.
  Sample Normalize(hlo::Builder& builder, Sample value);
  // An exact array of these sizes with small elements.
  Sample FreshArray(hlo::Builder& builder, hlo::ElementType type, const hlo::Dims& dims);
  // `x` converted, sliced, padded and broadcast to the shape.
  Sample Fit(hlo::Builder& builder, Sample x, hlo::ElementType type, const hlo::Dims& dims);
  Sample ConvertTo(hlo::Builder& builder, Sample x, hlo::ElementType type);
  Sample FitDims(hlo::Builder& builder, Sample x, const hlo::Dims& dims);

  // How closely two correct computations of the array agree, which is found from the instructions that compute it
  // (agreement.cc). Parameters and results of control flow agree in all bits unless SetAgreement was called for them.
  Agreement AgreementOf(const hlo::Instruction* array);
  void SetAgreement(const hlo::Instruction* array, Agreement agreement) { agreements_[array] = agreement; }
  // Whether the array may be an operand of an instruction that depends on all bits: the signs of zeros and the bits of
  // NaNs are determined.
  bool HasCertainBits(const Sample& x);

 private:
  Agreement InferAgreement(const hlo::Instruction& instruction);

  hlo::Module& module_;
  Random& random_;
  const Options options_;
  absl::flat_hash_map<const hlo::Instruction*, Agreement> agreements_;
};

// A family of random instructions. Takes operands from the pool and returns one new value, or an empty value if the
// operands are not suitable.
using Family = Sample (*)(RandomValues& random, hlo::Builder& builder, const Pool& pool);

Sample RandomElementwise(RandomValues& random, hlo::Builder& builder, const Pool& pool);
Sample RandomExact(RandomValues& random, hlo::Builder& builder, const Pool& pool);        // Bitcasts, IEEE arithmetic.
Sample RandomShapeChange(RandomValues& random, hlo::Builder& builder, const Pool& pool);  // Broadcast, pad, ...
Sample RandomSlice(RandomValues& random, hlo::Builder& builder, const Pool& pool);        // Includes dynamic slices.
Sample RandomIndexed(RandomValues& random, hlo::Builder& builder, const Pool& pool);      // Gather, scatter.
Sample RandomReduction(RandomValues& random, hlo::Builder& builder, const Pool& pool);    // Includes windows.
Sample RandomFold(RandomValues& random, hlo::Builder& builder, const Pool& pool);         // Order-dependent reductions.
Sample RandomContraction(RandomValues& random, hlo::Builder& builder, const Pool& pool);  // Dot, convolution, FFT.
Sample RandomLinearAlgebra(RandomValues& random, hlo::Builder& builder, const Pool& pool);
Sample RandomOrder(RandomValues& random, hlo::Builder& builder, const Pool& pool);  // Sorts, random bits, barriers.

}  // namespace xlad::compiler
