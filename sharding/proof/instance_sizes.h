// Small sizes for an op's arrays that keep what matters to its partitioning.
#pragma once

#include <optional>
#include <vector>

#include "hlo/module.h"
#include "sharding/model/mesh.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// Sizes of an instance's arrays: operands first, then results; and its window, where that changes with them.
struct InstanceSizes {
  std::vector<Dims> operands, results;
  std::optional<hlo::Window> window;
};

// Every size as small as keeps the way in which shards divide it, evenly or with a rest; along windows, also how shards
// of the result lie to those of the operand. Nullopt where an array stays too large to try.
std::optional<InstanceSizes> SmallSizes(const ShardedModule& program, const hlo::Instruction& instruction);

// The array leaves of a result.
std::vector<hlo::Shape> ResultsOf(const hlo::Instruction& instruction);

}  // namespace xlad::sharding
