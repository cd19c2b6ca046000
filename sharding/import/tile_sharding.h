// Tile shardings (HLO's sharding={devices=...}, device lists and iota) in terms of mesh axes.
//
// Tile shardings have no mesh: they number devices. The digits of a device's number, cut wherever any sharding of the
// program cuts them, become the axes axis_0, axis_1, ... of a mesh in which every one of them can be said.
#pragma once

#include <vector>

#include "hlo/attributes.h"
#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

// The mesh behind the tile shardings of a program; no axes where none splits anything. InvalidArgument where they
// number different counts of devices, or their cuts do not nest (6 devices as 2x3 here and 3x2 there).
absl::StatusOr<Mesh> MeshOfTiles(const std::vector<const hlo::OpSharding*>& shardings);

// One tile sharding (not a tuple) of an array of `ndim` dimensions on a mesh made by MeshOfTiles, or on another mesh
// whose axes can say it. Dimensions are closed; of kUnknown open. Unimplemented for manual ones.
absl::StatusOr<TensorSharding> ResolveTiles(const Mesh& mesh, const hlo::OpSharding& sharding, int64_t ndim);

}  // namespace xlad::sharding
