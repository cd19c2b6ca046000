// How a value gets from one sharding to another with few bytes sent. Pure: knows meshes and sizes, no instructions.
//
// The order of a plan follows Shardy's and GSPMD's practice: slices first (they are free), then reductions of partial
// results, all-to-alls and permutes on the small pieces, all-gathers last. A handful of candidate plans is priced and
// the cheapest taken.
#pragma once

#include <optional>
#include <vector>

#include "sharding/model/axes.h"

namespace xlad::sharding {

struct ReshardStep {
  enum class Kind { kSlice, kAllReduce, kReduceScatter, kAllToAll, kPermute, kAllGather };
  Kind kind = Kind::kSlice;
  int64_t dim = -1;       // Gets the axes (slice, reduce-scatter, all-to-all) or loses them (all-gather).
  int64_t from_dim = -1;  // all-to-all: loses the axes.
  AxisList axes;          // Major to minor; merged. Empty for a permute.
  DimensionAxes before, after;
  double bytes = 0;       // The least that each device sends.
};

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  double bytes = 0;
};

// From `from` (with partial results along from.unreduced) to `to`, whose unreduced axes are a subset of from's.
// Every state in between has shards of ceil(size / shards) elements; a step is taken only where the data that a shard
// needs lies wholly inside its group.
ReshardPlan PlanReshard(const Mesh& mesh, const tensor::Shape& shape, const TensorSharding& from,
                        const TensorSharding& to);

}  // namespace xlad::sharding
