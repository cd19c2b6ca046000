// Random instructions over a pool of values that know how exactly they can be computed.
//
// Two right ways to compute a sum of floats differ in rounding, and a comparison, a rounding or a sort after it can
// turn that into any difference. So every value carries a bound of its size, a grid on which it lies and an error
// bound: while it is small enough for its grid, sums are exact in every order (and bits must be equal); after that it
// has an error bound, grown by each instruction's own rounding and slope, and is kept away from instructions with
// jumps.
#pragma once

#include <memory>
#include <vector>

#include "base/random.h"
#include "hlo/build/builder.h"
#include "hlo/module.h"

namespace xlad::compiler {

struct Sample {
  hlo::Instruction* array = nullptr;  // Null: nothing was made.
  double bound = 0;                   // |element| <= bound, for floats.
  int fraction = 0;                   // Exact floats are multiples of 2^-fraction.
  double error = 0;                   // By how much two right computations may differ; 0: not at all, bit by bit.

  bool exact() const { return error == 0; }
  explicit operator bool() const { return array != nullptr; }
  hlo::ElementType type() const { return array->shape().type(); }
  const hlo::Dims& dims() const { return array->shape().dims(); }
  int64_t ndim() const { return array->shape().ndim(); }
};
using Pool = std::vector<Sample>;

// The largest relative rounding of one operation in this type; 0 for integers.
double RoundingOf(hlo::ElementType type);

// What all families of random instructions share. Each Random* below takes operands from the pool and returns one new
// value, or an empty one where the operands at hand do not suit it.
class RandomValues {
 public:
  RandomValues(hlo::Module* module, Random* random) : module_(*module), random_(*random) {}

  hlo::Module& module() { return module_; }
  Random& random() { return random_; }
  int Below(int64_t n) { return static_cast<int>(random_.Below(static_cast<uint64_t>(n))); }
  bool OneIn(int n) { return Below(n) == 0; }

  hlo::ElementType RandomType();
  hlo::ElementType RandomFloat();
  hlo::Dims RandomDims(int max_ndim);  // At most kMaxElements elements.
  static constexpr int64_t kMaxElements = 600;

  // Recent values more often, so that programs get deep.
  Sample Pick(const Pool& pool);
  Sample PickExact(const Pool& pool);  // Empty where there is none in a few tries.
  Sample PickOf(const Pool& pool, hlo::ElementType type, bool exact);

  // Errors and bounds of what was made, filled up: loses exactness where the grid is too fine for the bound, comes
  // back scaled, clamped or floored where it grew large or fine. Empty where too little of it is certain.
  Sample Settle(hlo::Builder* builder, Sample value);
  // Any exact array of this shape: an iota in disguise.
  Sample Fresh(hlo::Builder* builder, hlo::ElementType type, const hlo::Dims& dims);
  // `x` cut, padded and converted to the shape.
  Sample Fit(hlo::Builder* builder, Sample x, hlo::ElementType type, const hlo::Dims& dims);
  Sample ConvertTo(hlo::Builder* builder, Sample x, hlo::ElementType type);
  Sample FitDims(hlo::Builder* builder, Sample x, const hlo::Dims& dims);

  // Appends an instruction whose attributes and called computations are set; its shape is inferred, the given one only
  // says what inference cannot. Null where it is not well formed (the computation stays as it was).
  static hlo::Instruction* Append(hlo::Builder* builder, std::unique_ptr<hlo::Instruction> instruction,
                                  absl::Span<hlo::Instruction* const> operands);
  static Sample Like(const Sample& x, hlo::Instruction* array) { return {array, x.bound, x.fraction, x.error}; }
  // A scalar of the type on all of `like`.
  static hlo::Instruction* Splat(hlo::Builder* builder, const hlo::Instruction* like, double value);

  Sample RandomElementwise(hlo::Builder* builder, const Pool& pool);
  Sample RandomShapeChange(hlo::Builder* builder, const Pool& pool);
  Sample RandomSlice(hlo::Builder* builder, const Pool& pool);
  Sample RandomIndexed(hlo::Builder* builder, const Pool& pool);      // gather and scatter
  Sample RandomReduction(hlo::Builder* builder, const Pool& pool);    // reduce, argmax, windows, select-and-scatter
  Sample RandomContraction(hlo::Builder* builder, const Pool& pool);  // dot, convolution, fft
  Sample RandomOrder(hlo::Builder* builder, const Pool& pool);        // sort, topk, random bits, barriers

 private:
  Sample Unary(hlo::Builder* builder, Sample x);
  Sample Smooth(hlo::Builder* builder, Sample x);
  Sample Binary(hlo::Builder* builder, Sample x, Sample y);
  Sample IntegerBinary(hlo::Builder* builder, Sample x, Sample y);
  Sample Choose(hlo::Builder* builder, Sample x, Sample y, const Pool& pool);
  Sample ComplexParts(hlo::Builder* builder, Sample x);
  Sample Gather(hlo::Builder* builder, Sample x, const Pool& pool);
  Sample Scatter(hlo::Builder* builder, Sample x, const Pool& pool);
  Sample Reduce(hlo::Builder* builder, Sample x);
  Sample ArgMax(hlo::Builder* builder, Sample x);
  Sample Window(hlo::Builder* builder, Sample x);
  Sample SelectAndScatter(hlo::Builder* builder, Sample x, const Pool& pool);
  Sample Dot(hlo::Builder* builder, Sample x, const Pool& pool);
  Sample Convolution(hlo::Builder* builder, Sample x, const Pool& pool);
  Sample Fourier(hlo::Builder* builder, Sample x);
  Sample Sort(hlo::Builder* builder, Sample x, const Pool& pool);
  Sample TopK(hlo::Builder* builder, Sample x);
  Sample RandomBits(hlo::Builder* builder, const Pool& pool);

  hlo::Module& module_;
  Random& random_;
};

}  // namespace xlad::compiler
