// Checks that a partitioned program computes the same results as its source program: both run on the evaluator.
#pragma once

#include <string>
#include <vector>

#include "hlo/literal.h"
#include "sharding/partition/partition.h"

namespace xlad::sharding {

// The parameters of every device: its shards of the inputs, padded with zeros. The outer index is the device.
std::vector<std::vector<hlo::Literal>> ShardInputs(const PartitionedProgram& program,
                                                   const std::vector<hlo::Literal>& inputs);
// The global results, assembled from those of the devices. InvalidArgument if devices that hold the same shard differ
// in any bit.
absl::StatusOr<hlo::Literal> JoinResults(const PartitionedProgram& program, const std::vector<hlo::Literal>& results);

// Runs the partitioned program on all its devices and returns the global results (JoinResults).
absl::StatusOr<hlo::Literal> EvaluatePartitioned(const PartitionedProgram& program,
                                                 const std::vector<hlo::Literal>& inputs);

// How exactly values must agree.
enum class Exactness {
  kBits,        // All bits must be equal, as after data movement, bitcasts and selections.
  kArithmetic,  // Floats must agree up to the tolerance. NaN equals NaN; zeros must have equal signs.
  kSums,        // As kArithmetic, but a zero may have either sign, because the order of additions may differ.
};

// Integers, and floats of at most 8 bits, must have equal bits. Other floats must satisfy
// |a - b| <= tolerance * max(1, |b|), or have equal bits if `exactness` is kBits. An infinity equals only itself. The
// tolerance of bf16 and f16 is at least 4e-2 and 5e-3. The first difference is an error: "result 3, element [0,2]:
// partitioned 1.5, source 2". If `exactness` is kBits, the message shows the bytes of the elements in hexadecimal.
absl::Status CompareValues(const hlo::Literal& partitioned, const hlo::Literal& whole, double tolerance,
                           Exactness exactness = Exactness::kSums);

// Writes element i to `parts`, as two doubles if it is complex and otherwise as one, and returns the number of doubles.
// Returns 0 for types that are not floating or have at most 8 bits, whose elements are compared by bits.
int FloatParts(const tensor::Array& array, size_t i, double parts[2]);
// Element i as text: "1.5" with at most `digits` significant digits, "(1.5, 2)" if it is complex. Elements of types for
// which FloatParts returns 0 are shown as integers; those of floats with at most 8 bits by their bits.
std::string ElementText(const tensor::Array& array, size_t i, int digits);

// The values with every float (f32, f64, complex) multiplied by 1 + u or 1 - u at random, where u is twice the machine
// epsilon of its type. A program's results for the nudged values differ from its results for `values` by about the
// program's rounding error. This error is large if the program subtracts nearly equal values.
std::vector<hlo::Literal> Nudged(const std::vector<hlo::Literal>& values);
// The largest |a - b| of two arrays of equal shape. It is infinite if only one of a and b is NaN or infinite, and 0 for
// types that are compared by bits.
double LargestDifference(const tensor::Array& a, const tensor::Array& b);
// The factor by which rounding errors may exceed the difference that Nudged inputs cause.
inline constexpr double kRoundingOverNudging = 64;

// Reproducible values for a parameter of this shape: small numbers. They have both signs if the type is f32, f64,
// complex or a signed integer of at least 16 bits.
hlo::Literal SampleInput(const hlo::Shape& shape, uint64_t seed);
// An input for each parameter of the module's entry. The seeds are seed, seed + 1, ...
std::vector<hlo::Literal> SampleInputs(const hlo::Module& module, uint64_t seed = 0);
// `values` with about half of the elements of type f16, bf16, f32, f64 and complex replaced by special values: zeros of
// both signs, infinities, quiet NaNs with payloads, denormal numbers.
std::vector<hlo::Literal> WithSpecialValues(std::vector<hlo::Literal> values);

}  // namespace xlad::sharding
