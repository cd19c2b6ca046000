// Whether a partitioned program computes what the whole one does, by running both on the evaluator.
#pragma once

#include <vector>

#include "hlo/literal.h"
#include "sharding/partition/partition.h"

namespace xlad::sharding {

// Every device's parameters: its shards of the whole ones, padded with zeros. Outer index: device.
std::vector<std::vector<hlo::Literal>> ShardInputs(const PartitionedProgram& program,
                                                   const std::vector<hlo::Literal>& inputs);
// The whole results from every device's; InvalidArgument where devices that hold the same part disagree in bits.
absl::StatusOr<hlo::Literal> JoinResults(const PartitionedProgram& program, const std::vector<hlo::Literal>& results);

// Runs the partitioned program on all its devices.
absl::StatusOr<hlo::Literal> EvaluatePartitioned(const PartitionedProgram& program,
                                                 const std::vector<hlo::Literal>& inputs);

// Integers bit-equal; floats |a - b| <= tolerance * max(1, |b|), NaN equal to NaN. The first difference is an error:
// "result 3, element [0,2]: partitioned 1.5, whole 2".
absl::Status CompareValues(const hlo::Literal& partitioned, const hlo::Literal& whole, double tolerance);

// The parts of element i as doubles (two of a complex one) for the types that CompareValues allows a tolerance; 0 for
// the others, which are compared by bits.
int FloatParts(const tensor::Array& array, size_t i, double parts[2]);

// The same values but for the last places of floats (f32, f64, complex), which go up or down at random. What a program
// makes of them differs from what it makes of `values` by about its rounding: by much where it subtracts what is nearly
// equal, or divides by that.
std::vector<hlo::Literal> Nudged(const std::vector<hlo::Literal>& values);
// The largest |a - b| of two arrays of one shape; infinite where one alone is NaN; 0 for types without a tolerance.
double LargestDifference(const tensor::Array& a, const tensor::Array& b);
// How much larger than the difference that nudging makes rounding may be.
inline constexpr double kRoundingOverNudging = 64;

// Reproducible input for a parameter of this shape: small values, of both signs where the type has them.
hlo::Literal SampleInput(const hlo::Shape& shape, uint64_t seed);
// One for each parameter of the module's entry, from seeds that are counted on from `seed`.
std::vector<hlo::Literal> SampleInputs(const hlo::Module& module, uint64_t seed = 0);

}  // namespace xlad::sharding
