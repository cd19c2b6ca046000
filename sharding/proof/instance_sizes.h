// Small sizes for the arrays of an op that are partitioned in the same way as the sizes of the program.
#pragma once

#include <optional>
#include <vector>

#include "hlo/module.h"
#include "sharding/model/mesh.h"
#include "sharding/model/sharded_module.h"
#include "sharding/proof/small_mesh.h"

namespace xlad::sharding {

// The sizes of an instance's operands and results, and its window if that changes with them.
struct InstanceSizes {
  std::vector<Dims> operands, results;
  std::optional<hlo::Window> window;
};

// The smallest sizes that shards still divide as before, evenly or with a remainder. Along windows, shards of the
// result also keep their offsets to those of the operand. Nothing if an array remains too large to evaluate quickly.
std::optional<InstanceSizes> SmallSizes(const ShardedModule& program, const hlo::Instruction& instruction,
                                        const SmallMesh& mesh);

// The array leaves of a result.
std::vector<hlo::Shape> ResultsOf(const hlo::Instruction& instruction);

}  // namespace xlad::sharding
