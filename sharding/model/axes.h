// Arithmetic on lists of axes: overlap, cutting into common parts, merging, shard sizes.
#pragma once

#include <optional>
#include <vector>

#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

// Whether two axis parts share devices' coordinates.
bool Overlap(const AxisRef& a, const AxisRef& b);
bool OverlapsAny(const AxisRef& a, const AxisList& list);

// Neighbours that are one part of an axis are written as one: "x":(1)2, "x":(2)2 is "x":(1)4.
AxisList Merged(const AxisList& axes);

// The parts of the mesh's axes that no axis of `list` (cuts nest) touches, in mesh order.
AxisList RestOf(const Mesh& mesh, const AxisList& list);

// The axes of each dimension; what the planner moves around.
using Placement = std::vector<AxisList>;
Placement PlacementOf(const TensorSharding& sharding);

// Every axis that a list of placements mentions, cut so that any two parts are equal or disjoint; nullopt where cuts
// do not nest (2 and 3 of an axis of 6).
class AxisCuts {
 public:
  void Add(const AxisList& axes);
  void Add(const Placement& placement);
  // False where cuts do not nest.
  bool Resolve(const Mesh& mesh);
  AxisList Cut(const AxisList& axes) const;
  Placement Cut(const Placement& placement) const;

 private:
  std::vector<AxisRef> seen_;
  std::vector<std::vector<int64_t>> cuts_;  // By axis of the mesh, ascending.
};

// ceil(size / shards).
int64_t ShardSize(int64_t size, int64_t shards);

}  // namespace xlad::sharding
