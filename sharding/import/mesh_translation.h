// Shardings on one mesh in terms of another over the same devices in the same order.
#pragma once

#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

// "a":(1)2 on ["a"=4, "b"=2] is "x":(1)2 on ["x"=8]: meshes count the same devices row by row, so an axis, or a part of
// one, is a digit of a device's number, which is made of axes of the other mesh or parts of them. Unimplemented where
// the meshes have other numbers of devices or a digit begins or ends where no part of an axis does (2x3 beside 3x2).
absl::StatusOr<TensorSharding> OnMesh(const Mesh& to, const Mesh& from, TensorSharding sharding);

}  // namespace xlad::sharding
