// Random programs. Equal seeds make equal programs.
#pragma once

#include <memory>
#include <vector>

#include "base/random.h"
#include "compiler/testing/compare.h"
#include "compiler/testing/random_inputs.h"
#include "hlo/module.h"
#include "sharding/model/mesh.h"

namespace xlad::compiler {

// A program of one device, or of several that exchange data by collectives.
struct RandomModule {
  std::unique_ptr<hlo::Module> module;
  std::vector<Exactness> exactness;  // For each result. All results are arrays.
  std::vector<bool> special;         // For each parameter, whether RandomInputs chooses special values.
};

// A program that one device runs after partitioning for `devices` devices. It has about `instructions` values
// (elementwise, shape changes, slices, gathers, reductions, windows, dots, convolutions, sorts, random bits, bitcasts,
// loops, branches, calls, and collectives if devices > 1), and some results are aliased to parameters. About half
// of the programs have special values.
RandomModule RandomLocalProgram(uint64_t seed, int instructions, int devices);

// A program that a user could write for a mesh of up to eight devices. The sizes of its global shapes need not be
// divisible by sizes of axes. Parameters, values and results have annotations with open and closed dimensions,
// sub-axes, replicated and unreduced axes, and priorities. There are also propagation barriers.
struct RandomUserProgram {
  RandomModule program;
  sharding::Mesh mesh;
};
// If `manual` is true, some values are results of manual computations (jax.shard_map) on some of the axes, which
// contain collectives.
RandomUserProgram RandomAnnotatedProgram(uint64_t seed, int instructions, bool manual = false);

// The module of RandomLocalProgram.
std::unique_ptr<hlo::Module> RandomProgram(uint64_t seed, int instructions, int devices);

}  // namespace xlad::compiler
