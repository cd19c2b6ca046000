// Halo exchange along one dimension: which indices every shard wants, and the permutes that bring what others hold.
// Pure: knows sizes, no instructions.
#pragma once

#include <algorithm>
#include <vector>

#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

// What the shards of a dimension want. Shard k holds the indices [k * shard, (k + 1) * shard) that are below `size`
// and wants [starts[k], starts[k] + length), of which those outside [first, limit) are nobody's: they are filled.
struct HaloNeed {
  int64_t size = 0;
  int64_t shard = 0;
  Dims starts;
  int64_t length = 0;
  int64_t first = 0, limit = 0;

  int64_t shards() const { return std::ssize(starts); }
  bool IsReal(int64_t index) const { return index >= std::max<int64_t>(first, 0) && index < std::min(limit, size); }
};

// One permute: every source sends `length` elements from `offset` of its shard on.
struct HaloRound {
  int64_t length = 0;
  Dims source;  // By target; -1: receives nothing (zeros).
  Dims offset;  // By source.
};

// A piece of an assembled array: of the own shard (delta 0) or of the shard `delta` further on.
struct HaloSlot {
  int64_t delta = 0;
  int64_t length = 0;
  int round = -1;  // None: the own shard, or nobody needs it.
};

struct HaloPlan {
  std::vector<HaloRound> rounds;
  // Where windows lie about their shards: the pieces that are put side by side, the own shard among them; a left
  // neighbour sends its end, a right one its beginning. Empty: pieces lie anywhere and are written one by one.
  std::vector<HaloSlot> slots;
  int64_t sent() const;  // Elements of the dimension that a device sends.
};

// The cheaper of the two forms. Rounds that share no sender and no receiver are one.
HaloPlan PlanHalo(const HaloNeed& need);

}  // namespace xlad::sharding
