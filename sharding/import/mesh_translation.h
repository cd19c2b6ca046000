// Shardings on one mesh, expressed on another mesh over the same devices in the same order.
#pragma once

#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

// Converts a sharding on mesh `from` to mesh `to`. Both meshes number the same devices row by row. A part of an axis of
// `from` is therefore a digit of the device number, and this digit consists of parts of the axes of `to`:
//
//   "a":(1)2 on "a=4,b=2" is the digit of stride 4 and size 2, which is "x":(1)2 on "x=8"
//
// Unimplemented if the numbers of devices differ, or if a digit begins or ends inside an axis that cannot be cut there
// (the axes of "a=2,b=3" on "c=3,d=2").
absl::StatusOr<TensorSharding> OnMesh(const Mesh& to, const Mesh& from, TensorSharding sharding);

}  // namespace xlad::sharding
