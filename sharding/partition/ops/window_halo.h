// What sliding windows over a split dimension want of other shards, holes of a base dilation included.
#pragma once

#include "sharding/partition/halo.h"

namespace xlad::sharding {

// Every shard wants `span` positions of the dilated dimension (index i lies at i * dilation), from its start on.
struct WindowNeed {
  HaloNeed need;  // The indices that lie there.
  int64_t span = 0, dilation = 1;
  int64_t low = 0;  // Positions before the first index fetched; negative: of the fetched piece to cut off.
  Dims phases;      // Where shards differ: by position, where the span begins in the dilated piece. Else empty.
};

// `starts`: by shard, positions; may lie outside of the dimension of `size`, of which every shard holds `shard`.
WindowNeed NeedOf(int64_t size, int64_t shard, const Dims& starts, int64_t span, int64_t dilation);

// Fetches; the dimension becomes the span where `window` is nullptr. Otherwise the window's padding and base dilation
// are set to what makes the span of what is returned. `fetch.fill` lies outside, and in the holes.
hlo::Instruction* FetchWindow(Emitter& emitter, const Fetch& fetch, const WindowNeed& need,
                              hlo::WindowDimension* window);

// Where the windows of shards of `shard` windows each begin, as positions, and the span of each.
Dims WindowStarts(const hlo::WindowDimension& window, int64_t shard, int64_t shards);
int64_t WindowSpan(const hlo::WindowDimension& window, int64_t shard);

int64_t FloorDivide(int64_t a, int64_t b);  // b > 0
int64_t CeilDivide(int64_t a, int64_t b);

}  // namespace xlad::sharding
