// Small meshes on which single ops are checked instead of large ones, because an op is partitioned in the same way over
// 16 devices as over 65,536.
#pragma once

#include <vector>

#include "hlo/module.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// A mesh in which axes are shortened. A mesh of up to 64 devices is unchanged. In a larger mesh, an axis that the op
// does not use gets size 1. An axis that the op uses only as a whole gets at most size 4 if its size is even, otherwise
// at most 3. An axis that the op uses in part is unchanged. "d=256,t=256" becomes "d=4,t=1" for an op whose operands
// and results are split over "d".
class SmallMesh {
 public:
  SmallMesh(const ShardedModule& program, const hlo::Instruction& instruction);

  const Mesh& mesh() const { return mesh_; }
  AxisRef Shortened(const AxisRef& axis) const {
    return axis.size == mesh_.axes()[axis.axis].size || !shortened_[axis.axis] ? axis : mesh_.Whole(axis.axis);
  }
  ValueSharding Shortened(ValueSharding value) const;

 private:
  Mesh mesh_;
  std::vector<bool> shortened_;  // By axis: whether it was shortened.
};

}  // namespace xlad::sharding
