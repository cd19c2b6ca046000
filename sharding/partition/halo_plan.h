// Plans a halo exchange along one dimension: the elements that every shard needs, and the permutes that send it the
// elements of other shards. A plan depends only on sizes, not on instructions. The time to plan depends on the numbers
// of shards and of exchanged pieces, but not on the number of elements.
//
// Example: f32[16] split over 4 devices, slice={[1:16]} with a result f32[15] split over the same 4 devices. Every
// shard of the result has 4 elements. Shard k needs the elements [1 + 4k, 5 + 4k): the last three of its own and the
// first one of the shard to its right.
//
//   HaloNeed{size = 16, shard = 4, starts = {1, 5, 9, 13}, length = 4, first = 1, limit = 16}
//
// The plan has one round, in which every shard except the first sends its first element to its left neighbor. This
// sends 1 element instead of the 12 elements of an all-gather. The plan has two slots: the device's own shard, then 1
// element of the right neighbor (delta 1). Element 16, which the last shard would need, is outside of [first, limit)
// and therefore padding.
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
  Dims source;  // By target: the source, or -1 if the target receives nothing and therefore gets zeros.
  Dims offset;  // By source: the first element that it sends.
};

// A piece of an assembled array: the device's own shard (delta 0), or a part of the shard `delta` positions to the
// right (to the left if negative).
struct HaloSlot {
  int64_t delta = 0;
  int64_t length = 0;
  int round = -1;  // The round that sends the piece, or -1 for the own shard and for a piece that no shard needs.
};

struct HaloPlan {
  std::vector<HaloRound> rounds;
  // The pieces that are concatenated in the adjacent form, including the own shard. A shard to the left sends its last
  // elements, and a shard to the right its first elements. Empty in the scattered form, in which every piece is written
  // to its place. The adjacent form suits elements of nearby shards.
  std::vector<HaloSlot> slots;
  // The largest number of elements along the dimension that a device may send: the sum of the lengths of the rounds.
  int64_t sent() const;
};

// Plans the form in which devices send fewer elements, or the scattered form if the adjacent form would concatenate
// more than 2 (need.length + need.shard) elements. In a round, every shard sends at most once and receives at most
// once.
HaloPlan PlanHalo(const HaloNeed& need);

}  // namespace xlad::sharding
