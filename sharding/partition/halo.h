// Emits halo exchanges: fetches windows of a split dimension of which other shards hold a part.
#pragma once

#include <vector>

#include "sharding/partition/halo_plan.h"
#include "sharding/partition/local_builder.h"

namespace xlad::sharding {

// The element of `values` at the device's position along `axes`, a scalar. `type`: that of the values, s32 or s64.
hlo::Instruction* ByPosition(LocalBuilder& local, const AxisList& axes, const Dims& values, tensor::ElementType type);

// A dimension and the axes that split it.
struct SplitDim {
  int64_t dim = 0;
  AxisList axes;
};

struct IndexRange {
  int64_t first = 0, limit = 0;
};

// pred[dims]: whether the index along the dimension, counted from starts[position], is in `range`.
hlo::Instruction* IsIndexInRange(LocalBuilder& local, const SplitDim& split, const Dims& starts, const Dims& dims,
                                 IndexRange range);
// The `size` elements of x from starts[position] on.
hlo::Instruction* SliceByPosition(LocalBuilder& local, hlo::Instruction* x, const SplitDim& split, const Dims& starts,
                                  int64_t size);

// An array whose dimension `dim` is split, of which elements of other shards are needed.
struct HaloFetch {
  LocalArray array;
  int64_t dim = 0;
  hlo::Instruction* fill = nullptr;  // A scalar: the value of padding. Null: padding may hold any value.
  ReshardCause cause;

  SplitDim split() const { return {dim, array.sharding.dims[dim].axes}; }
};

// The array with the dimension replaced by the need.length elements that the shard needs. Other dimensions do not
// change.
hlo::Instruction* FetchHalo(LocalBuilder& local, const HaloFetch& fetch, const HaloNeed& need);

}  // namespace xlad::sharding
