// Compiles and runs one program and compares its results with those of the evaluator.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/testing/compare.h"
#include "hlo/literal.h"
#include "hlo/module.h"
#include "sharding/model/mesh.h"

namespace xlad {

// How a program is compiled and compared.
struct Case {
  uint64_t seed = 0;  // Determines the inputs.
  sharding::Mesh mesh;
  std::vector<compiler::Exactness> exactness;  // The exactness of each array leaf of the result.
  // For each parameter, whether its values include NaN, infinities and other special values.
  std::vector<bool> special;
};

// Compiles the module without partitioning it; every device of `test.mesh` runs a copy. The seed determines whether
// collectives overlap with computation, whether instructions are fused, and whether the program may be compiled
// quickly.
absl::Status TryLocal(const hlo::Module& module, const Case& test);

// Partitions the module by its annotations. The partitioned program is run by the evaluator and as compiled code, and
// both results are compared with those of the unpartitioned program.
absl::Status TryAnnotated(const hlo::Module& module, const Case& test);

// Returns the results of the program when only manual computations are partitioned.
absl::StatusOr<hlo::Literal> Meaning(const hlo::Module& module, const std::vector<hlo::Literal>& inputs);

// One literal per array: the arguments of Evaluate.
std::vector<hlo::Literal> LiteralsOf(const std::vector<tensor::Array>& arrays);

using Try = absl::Status (*)(const hlo::Module&, const Case&);

// Calls `run` on the module in a child process and returns its error message, or an empty text if it succeeded. A child
// that does not end within five minutes is killed.
std::string InChild(Try run, const hlo::Module& module, const Case& test);

}  // namespace xlad
