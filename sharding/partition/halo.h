// Emits halo exchanges, which fetch windows of a split dimension that are partly in other shards.
#pragma once

#include <vector>

#include "sharding/partition/halo_plan.h"
#include "sharding/partition/local_builder.h"

namespace xlad::sharding {

// A scalar: the element of `values` at the device's position along `axes`. `type` is the type of the scalar, s32 or
// s64.
hlo::Instruction* ByPosition(LocalBuilder& local, const AxisList& axes, const Dims& values, tensor::ElementType type);

// A dimension and the axes that split it.
struct SplitDim {
  int64_t dim = 0;
  AxisList axes;
};

struct IndexRange {
  int64_t first = 0, limit = 0;
};

// pred[dims]: whether the index of an element along the dimension is in `range`. The index of the first element is
// starts[position].
hlo::Instruction* IsIndexInRange(LocalBuilder& local, const SplitDim& split, const Dims& starts, const Dims& dims,
                                 IndexRange range);
// The `size` elements of x that begin at starts[position].
hlo::Instruction* SliceByPosition(LocalBuilder& local, hlo::Instruction* x, const SplitDim& split, const Dims& starts,
                                  int64_t size);

// An array whose dimension `dim` is split. A device needs elements of other shards.
struct HaloFetch {
  LocalArray array;
  int64_t dim = 0;
  hlo::Instruction* fill = nullptr;  // The value of padding, a scalar, or null if padding may hold any value.
  ReshardCause cause;

  SplitDim split() const { return {dim, array.sharding.dims[dim].axes}; }
};

// The array in which dimension `dim` consists of the need.length elements that the shard needs. Other dimensions are
// unchanged.
hlo::Instruction* FetchHalo(LocalBuilder& local, const HaloFetch& fetch, const HaloNeed& need);

}  // namespace xlad::sharding
