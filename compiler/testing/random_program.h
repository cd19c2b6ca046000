// Random programs and inputs, from a seed. Always the same ones for a seed.
#pragma once

#include <memory>
#include <vector>

#include "base/random.h"
#include "compiler/testing/random_values.h"
#include "hlo/module.h"
#include "sharding/model/mesh.h"
#include "tensor/array.h"

namespace xlad::compiler {

// A program of one device, or of several that exchange data by collectives.
struct RandomModule {
  std::unique_ptr<hlo::Module> module;
  // By how much two right ways to compute a result may differ, element by element; 0: not in one bit.
  std::vector<double> errors;  // For every result, an array each.
};

// What a partitioned program of `devices` looks like: `instructions` random ones (elementwise, shape changes, slices,
// gathers, reductions, windows, dots, convolutions, sorts, random bits, loops, branches, calls, and with devices > 1
// collectives), some results aliased to parameters.
RandomModule RandomLocalProgram(uint64_t seed, int instructions, int devices);

// What a user writes for a mesh of up to eight devices: global shapes whose sizes need not divide, annotations on
// parameters, values and results with open and closed dimensions, sub-axes and priorities, barriers and groups.
struct RandomUserProgram {
  RandomModule program;
  sharding::Mesh mesh;
};
// With `manual`, also manual computations (jax.shard_map) on some of the axes, with collectives inside.
RandomUserProgram RandomAnnotatedProgram(uint64_t seed, int instructions, bool manual = false);

// RandomLocalProgram's module.
std::unique_ptr<hlo::Module> RandomProgram(uint64_t seed, int instructions, int devices);

// An array with values in a small range: floats in [-2, 2] in steps of 1/8, integers in [0, 7], pred 0 or 1.
tensor::Array RandomArray(const tensor::Shape& shape, Random* random);
// The entry's parameters' leaves.
std::vector<tensor::Array> RandomInputs(const hlo::Module& module, Random* random);

}  // namespace xlad::compiler
