// Runs one program through the whole compiler and runtime and compares its results with those of the evaluator.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/testing/compare.h"
#include "hlo/literal.h"
#include "hlo/module.h"
#include "sharding/model/mesh.h"

namespace xlad {

// How a program is tried.
struct Case {
  uint64_t seed = 0;
  sharding::Mesh mesh;
  std::vector<compiler::Exactness> exactness;  // For each array leaf of the result.
  std::vector<bool> special;  // For each parameter, whether its values include special ones.
};

// Every device of `test.mesh` runs a copy of the module, which is compiled as it is.
absl::Status TryLocal(const hlo::Module& module, const Case& test);

// The module is partitioned by its annotations and run on the evaluator and compiled; both are compared with the
// unpartitioned program.
absl::Status TryAnnotated(const hlo::Module& module, const Case& test);

// One literal per array: the arguments of Evaluate.
std::vector<hlo::Literal> LiteralsOf(const std::vector<tensor::Array>& arrays);

using Try = absl::Status (*)(const hlo::Module&, const Case&);

// The message of `run` about the module, from a child process; empty if it succeeded. A child that does not end within
// a minute is killed.
std::string InChild(Try run, const hlo::Module& module, const Case& test);

}  // namespace xlad
