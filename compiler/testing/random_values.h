// Random instructions over a pool of values, each of which knows how exactly it can be computed.
//
// Two correct ways to compute a sum of floats differ in rounding, and a comparison, a rounding or a sort of the sum can
// turn that difference into any other. So every value carries a bound of its size, a grid that its elements lie on and
// an error bound. While the bound is small enough for the grid, sums are exact in every order. Beyond that the value
// has an error bound, which each instruction grows by its own rounding and slope, and it is kept away from instructions
// that are not continuous.
//
// A value whose bound is infinite may hold NaNs, infinities and denormal numbers. Only instructions that IEEE 754
// defines exactly are applied to it (random_exact.cc), and those that move or select elements.
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
  double bound = 0;                   // |element| <= bound, for floats. kUnbounded: elements may be NaN, too.
  int fraction = 0;                   // The elements of an exact float array are multiples of 2^-fraction.
  double error = 0;                   // By how much two correct computations may differ; 0: not at all.

  bool exact() const { return error == 0; }
  bool finite() const { return bound != kUnbounded; }
  explicit operator bool() const { return array != nullptr; }
  hlo::ElementType type() const { return array->shape().type(); }
  const hlo::Dims& dims() const { return array->shape().dims(); }
  int64_t ndim() const { return array->shape().ndim(); }
};
using Pool = std::vector<Sample>;

// The largest relative rounding error of one operation in this type; 0 for integers.
double RoundingOf(hlo::ElementType type);

// The sample with another array, whose elements are known to be like those of `x`.
inline Sample Like(const Sample& x, hlo::Instruction* array) { return {array, x.bound, x.fraction, x.error}; }
// What is known of an array whose elements are elements of `x` and `y`.
Sample JoinOf(const Sample& x, const Sample& y, hlo::Instruction* array);

// Appends an instruction whose attributes and called computations are set; its shape is inferred from a first guess.
// Returns null, and leaves the computation as it was, if the instruction is not well formed.
hlo::Instruction* Append(hlo::Builder& builder, std::unique_ptr<hlo::Instruction> instruction,
                         absl::Span<hlo::Instruction* const> operands);
// An array of the shape of `like` full of `value`.
hlo::Instruction* Splat(hlo::Builder& builder, const hlo::Instruction* like, double value);
// An integer scalar with these low bits (builder.Scalar goes through double, which rounds beyond 2^53).
hlo::Instruction* IntegerScalar(hlo::Builder& builder, hlo::ElementType type, uint64_t bits);

// What all families of random instructions share: random choices, operands from the pool, adaptation of shapes.
class RandomValues {
 public:
  struct Options {
    bool specials = false;       // Also special constants and sizes: NaN, -0, INT_MIN, dimensions of size 0.
    bool sums_split = false;     // Sums may be computed in parts by several devices: the sign of a zero is not certain.
    bool library_calls = false;  // Also LAPACK calls, which only the import of user programs replaces.
  };
  RandomValues(hlo::Module* module, Random* random, Options options)
      : module_(*module), random_(*random), options_(options) {}

  hlo::Module& module() { return module_; }
  Random& random() { return random_; }
  const Options& options() const { return options_; }
  // Uniform in [0, n); n > 0.
  int Below(int64_t n) { return static_cast<int>(random_.Below(n)); }
  // True once in n times.
  bool OneIn(int n) { return Below(n) == 0; }
  template <typename T, size_t n>
  const T& OneOf(const T (&choices)[n]) {
    return choices[Below(n)];
  }

  hlo::ElementType RandomType();
  hlo::ElementType RandomFloat();
  hlo::ElementType RandomInteger();
  hlo::Dims RandomDims(int max_ndim);  // At most kMaxElements elements.
  static constexpr int64_t kMaxElements = 600;

  // Any value of the pool, recent ones more often, so that programs get deep.
  Sample Pick(const Pool& pool);
  // The same of values with a finite bound, and of those that are also exact. Empty if a few tries find none.
  Sample PickFinite(const Pool& pool);
  Sample PickExact(const Pool& pool);
  // An operand of this type and these sizes: a finite value of the pool if there is one, adapted.
  Sample FiniteOperand(hlo::Builder& builder, const Pool& pool, hlo::ElementType type, const hlo::Dims& dims);
  // A scalar integer of the given type to index with: a constant, which may be out of bounds or extreme, or from the
  // pool.
  hlo::Instruction* Index(hlo::Builder& builder, const Pool& pool, hlo::ElementType type, int64_t size);
  // A constant of special values: a scalar on all elements, or random elements if the array is small.
  hlo::Instruction* SpecialConstant(hlo::Builder& builder, hlo::ElementType type, const hlo::Dims& dims);

  // Makes a new value usable as an operand: recognizes that it is no longer exact, and
  // scales, clamps or floors it if its bound or its grid has grown too far. Empty if its error is too large.
  Sample Normalize(hlo::Builder& builder, Sample value);
  // An exact array of the shape with small elements.
  Sample FreshArray(hlo::Builder& builder, hlo::ElementType type, const hlo::Dims& dims);
  // `x` converted, sliced, padded and broadcast to the shape.
  Sample Fit(hlo::Builder& builder, Sample x, hlo::ElementType type, const hlo::Dims& dims);
  Sample ConvertTo(hlo::Builder& builder, Sample x, hlo::ElementType type);
  Sample FitDims(hlo::Builder& builder, Sample x, const hlo::Dims& dims);

  // How far two correct computations of the array agree, found from the instructions that lead to it (agreement.cc).
  // Parameters and results of control flow agree in all bits unless SetAgreement said otherwise.
  Agreement AgreementOf(const hlo::Instruction* array);
  void SetAgreement(const hlo::Instruction* array, Agreement agreement) { agreements_[array] = agreement; }
  // Whether every instruction that is exact on these bits may take the array: signs of zeros are certain, and bits of
  // NaNs, too, if there are any.
  bool HasCertainBits(const Sample& x);

 private:
  Agreement InferAgreement(const hlo::Instruction& instruction);

  hlo::Module& module_;
  Random& random_;
  const Options options_;
  absl::flat_hash_map<const hlo::Instruction*, Agreement> agreements_;
};

// A family of random instructions: takes operands from the pool and returns one new value, or an empty one if the
// operands at hand do not suit it.
using Family = Sample (*)(RandomValues& random, hlo::Builder& builder, const Pool& pool);

Sample RandomElementwise(RandomValues& random, hlo::Builder& builder, const Pool& pool);
Sample RandomExact(RandomValues& random, hlo::Builder& builder, const Pool& pool);        // Bitcasts, IEEE arithmetic.
Sample RandomShapeChange(RandomValues& random, hlo::Builder& builder, const Pool& pool);  // Broadcast, pad, ...
Sample RandomSlice(RandomValues& random, hlo::Builder& builder, const Pool& pool);        // Also dynamic ones.
Sample RandomIndexed(RandomValues& random, hlo::Builder& builder, const Pool& pool);      // Gather and scatter.
Sample RandomReduction(RandomValues& random, hlo::Builder& builder, const Pool& pool);    // Also windows.
Sample RandomFold(RandomValues& random, hlo::Builder& builder, const Pool& pool);         // Reducers with an order.
Sample RandomContraction(RandomValues& random, hlo::Builder& builder, const Pool& pool);  // Dot, convolution, FFT.
Sample RandomLinearAlgebra(RandomValues& random, hlo::Builder& builder, const Pool& pool);
Sample RandomOrder(RandomValues& random, hlo::Builder& builder, const Pool& pool);  // Sorts, random bits, barriers.

}  // namespace xlad::compiler
