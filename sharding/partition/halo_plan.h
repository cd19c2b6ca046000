// Halo exchange along one dimension: which elements every shard needs, and the permutes that bring those that other
// shards hold. Knows sizes only, no instructions. Takes time proportional to the number of shards and of pieces that
// they exchange, and does not depend on the number of elements.
//
// Example: f32[16] split over 4 devices, slice={[1:16]} with a result f32[15] split over the same 4 devices. Every
// shard of the result has 4 elements. Shard k needs the elements [1 + 4k, 5 + 4k): the last three of its own and the
// first one of the shard to its right.
//
//   HaloNeed{size = 16, shard = 4, starts = {1, 5, 9, 13}, length = 4, first = 1, limit = 16}
//
// The plan has one round, in which every shard sends its first element to its left neighbor (1 element instead of the
// 12 that an all-gather sends), and two slots: the own shard, then 1 element of the shard with delta 1. Element 16,
// which the last shard would need, is outside of [first, limit) and therefore padding.
#pragma once

#include <algorithm>
#include <vector>

#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

// What the shards of a dimension need. Shard k holds the indices [k * shard, (k + 1) * shard) that are below `size`,
// and needs [starts[k], starts[k] + length). Indices outside of [first, limit) or of the dimension are padding.
struct HaloNeed {
  int64_t size = 0;
  int64_t shard = 0;
  Dims starts;
  int64_t length = 0;
  int64_t first = 0, limit = 0;

  int64_t shards() const { return std::ssize(starts); }
  int64_t real_first() const { return std::max<int64_t>(first, 0); }
  int64_t real_limit() const { return std::min(limit, size); }
  // Whether [begin, end) has an index that is padding.
  bool HasPadding(int64_t begin, int64_t end) const {
    return begin < end && (begin < real_first() || end > real_limit());
  }
};

// One permute: every source sends `length` elements, starting at `offset` of its shard.
struct HaloRound {
  int64_t length = 0;
  Dims source;  // By target; -1: the target receives nothing, which means zeros.
  Dims offset;  // By source.
};

// A piece of an assembled array: the own shard (delta 0), or a part of the shard that is `delta` positions further on.
struct HaloSlot {
  int64_t delta = 0;
  int64_t length = 0;
  int round = -1;  // The round that brings the piece; -1: the own shard, or a piece that no shard needs.
};

struct HaloPlan {
  std::vector<HaloRound> rounds;
  // Adjacent form, if what a shard needs is close to it: the pieces that are concatenated, the own shard among them. A
  // shard to the left sends its end, a shard to the right its beginning. Empty in the scattered form, in which every
  // piece is written to its place.
  std::vector<HaloSlot> slots;
  int64_t sent() const;  // Elements along the dimension that a device sends.
};

// The cheaper of the two forms. Exchanges that share no sender and no receiver are one round.
HaloPlan PlanHalo(const HaloNeed& need);

}  // namespace xlad::sharding
