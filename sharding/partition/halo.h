// Emits halo exchanges: from the shards of a dimension, windows of it that lie elsewhere.
#pragma once

#include <vector>

#include "sharding/partition/emitter.h"
#include "sharding/partition/halo_plan.h"

namespace xlad::sharding {

// One of `values` by this device's position along `axes`, s32[].
hlo::Instruction* ByPosition(Emitter& emitter, const AxisList& axes, const Dims& values);

// A dimension and the axes that split it.
struct Along {
  int64_t dim = 0;
  AxisList axes;
};

struct IndexRange {
  int64_t first = 0, limit = 0;
};

// pred[dims]: whether the index along the dimension, counted from starts[position], lies in the range.
hlo::Instruction* IndexInside(Emitter& emitter, const Along& along, const Dims& starts, const Dims& dims,
                              IndexRange range);
// `size` indices from starts[position] on.
hlo::Instruction* SliceByPosition(Emitter& emitter, hlo::Instruction* x, const Along& along, const Dims& starts,
                                  int64_t size);

// An array whose dimension `dim` is split, of which other parts are wanted.
struct Fetch {
  LocalArray array;
  int64_t dim = 0;
  hlo::Instruction* fill = nullptr;  // A scalar: what indices that are nobody's hold; null: anything.
  Why why;

  Along along() const { return {dim, array.sharding.dims[dim].axes}; }
};

// The array with the dimension replaced by the `need.length` indices that every shard wants. Other dimensions stay as
// they are.
hlo::Instruction* FetchHalo(Emitter& emitter, const Fetch& fetch, const HaloNeed& need);

}  // namespace xlad::sharding
