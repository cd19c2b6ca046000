// A module with a mesh and a sharding for every value: what propagation fills and partitioning consumes.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"
#include "sharding/tensor_sharding.h"

namespace xlad::sharding {

// Result r feeds parameter p of the next step.
struct Feed {
  int64_t result = 0;
  int64_t parameter = 0;
};

// A value's shardings, one for each leaf array of its shape, in order.
using ValueSharding = std::vector<TensorSharding>;

struct ShardedModule {
  std::unique_ptr<hlo::Module> module;  // Calls inlined, annotations taken out of the graph.
  Mesh mesh;
  absl::flat_hash_map<const hlo::Instruction*, ValueSharding> shardings;
  ValueSharding results;                // Of the entry's leaves, as annotated or propagated.
  std::vector<Feed> feeds;
};

}  // namespace xlad::sharding
