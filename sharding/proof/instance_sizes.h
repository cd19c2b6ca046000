// Small sizes for the arrays of an op that are partitioned in the same way as the sizes of the program.
#pragma once

#include <optional>
#include <vector>

#include "hlo/module.h"
#include "sharding/model/sharded_module.h"
#include "sharding/proof/small_mesh.h"

namespace xlad::sharding {

// The sizes of an instance's operands and results, and its window if the window depends on the sizes.
struct InstanceSizes {
  std::vector<Dims> operands, results;
  std::optional<hlo::Window> window;
};

// Small sizes that the shards divide in the same way as the program's sizes, evenly or with a remainder. Along windows,
// the shards of the result also keep their offsets from the shards of the operand. Sizes that depend on each other or
// on attributes are unchanged. If an op has no simple relation between its sizes (a gather, for example), all of its
// sizes are unchanged. Nullopt if an array still has more than 4096 elements, or 65,536 if the op only moves elements.
std::optional<InstanceSizes> SmallSizes(const ShardedModule& program, const hlo::Instruction& instruction,
                                        const SmallMesh& mesh);

// The shapes of an op's results: the elements of a tuple, or the one array.
std::vector<hlo::Shape> ResultsOf(const hlo::Instruction& instruction);

}  // namespace xlad::sharding
