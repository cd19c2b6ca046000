// Halos of sliding windows over a split dimension, with or without base dilation.
#pragma once

#include "sharding/partition/halo.h"

namespace xlad::sharding {

// The part of a dimension that every shard needs for its windows. Positions refer to the dilated dimension: the element
// with index i is at position i * dilation. Every shard needs the positions [start, start + span).
struct WindowNeed {
  HaloNeed need;  // The indices of the elements at these positions.
  int64_t span = 0, dilation = 1;
  // The number of padding positions before the first fetched element. If negative, -low positions are cut off.
  int64_t low = 0;
  // For each shard, the position in the dilated piece at which the span starts. Empty if it is -low on every shard.
  Dims phases;
};

// `starts` contains the first position that each shard needs, which may be outside of the dimension. The dimension has
// `size` elements, and every shard holds `shard` elements.
WindowNeed NeedOf(int64_t size, int64_t shard, const Dims& starts, int64_t span, int64_t dilation);

// Fetches the halo. If `window` is null, the dimension of the result is the span. Otherwise the padding and base
// dilation of `window` are set so that the window covers the span. `fetch.fill` is the value of the padding and of
// the positions that base dilation inserts.
hlo::Instruction* FetchWindow(LocalBuilder& local, const HaloFetch& fetch, const WindowNeed& need,
                              hlo::WindowDimension* window);

// The position of the first window of each shard.
Dims WindowStarts(const hlo::WindowDimension& window, int64_t shard, int64_t shards);
// The number of positions from the first to the last one that the `shard` windows of one shard cover.
int64_t WindowSpan(const hlo::WindowDimension& window, int64_t shard);

// These require b > 0.
int64_t FloorDivide(int64_t a, int64_t b);
int64_t CeilDivide(int64_t a, int64_t b);

}  // namespace xlad::sharding
