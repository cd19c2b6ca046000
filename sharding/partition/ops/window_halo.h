// Halos of sliding windows over a split dimension, which may have a base dilation.
#pragma once

#include "sharding/partition/halo.h"

namespace xlad::sharding {

// What every shard needs of a dimension for its windows. Positions count in the dilated dimension: index i is at
// position i * dilation. Every shard needs the positions [start, start + span).
struct WindowNeed {
  HaloNeed need;  // The indices at these positions.
  int64_t span = 0, dilation = 1;
  int64_t low = 0;  // Positions before the first fetched index. If negative, positions to cut from the fetched piece.
  // By shard: where the span starts in the dilated piece. Empty if it starts at -low on every shard.
  Dims phases;
};

// `starts`: by shard, the first position; may be outside of the dimension. The dimension has `size` elements, of which
// every shard holds `shard`.
WindowNeed NeedOf(int64_t size, int64_t shard, const Dims& starts, int64_t span, int64_t dilation);

// Fetches the halo. If `window` is null, the dimension of the result is the span. Otherwise the padding and base
// dilation of `window` are set so that the window covers the span. `fetch.fill` is the value of padding and of holes.
hlo::Instruction* FetchWindow(LocalBuilder& local, const HaloFetch& fetch, const WindowNeed& need,
                              hlo::WindowDimension* window);

// By shard, the position of the first window, and the positions that its `shard` windows span together.
Dims WindowStarts(const hlo::WindowDimension& window, int64_t shard, int64_t shards);
int64_t WindowSpan(const hlo::WindowDimension& window, int64_t shard);

int64_t FloorDivide(int64_t a, int64_t b);  // Requires b > 0.
int64_t CeilDivide(int64_t a, int64_t b);

}  // namespace xlad::sharding
