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
  std::vector<Exactness> exactness;  // For each result; all are arrays.
  std::vector<bool> special;         // For each parameter: whether RandomInputs chooses special values.
};

// A program as one device runs it after partitioning for `devices`: `instructions` random values (elementwise, shape
// changes, slices, gathers, reductions, windows, dots, convolutions, sorts, random bits, bitcasts, loops, branches,
// calls, and collectives if devices > 1), some results aliased to parameters. Every other program has special values.
RandomModule RandomLocalProgram(uint64_t seed, int instructions, int devices);

// A program as users write it for a mesh of up to eight devices: global shapes whose sizes need not divide, annotations
// on parameters, values and results with open and closed dimensions, sub-axes and priorities, barriers and groups.
struct RandomUserProgram {
  RandomModule program;
  sharding::Mesh mesh;
};
// If `manual`, some values come from manual computations (jax.shard_map) on some of the axes, with collectives inside.
RandomUserProgram RandomAnnotatedProgram(uint64_t seed, int instructions, bool manual = false);

// The module of RandomLocalProgram.
std::unique_ptr<hlo::Module> RandomProgram(uint64_t seed, int instructions, int devices);

}  // namespace xlad::compiler
