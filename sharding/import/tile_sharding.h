// Tile shardings (HLO's sharding={devices=...}, as device lists or in the iota form), expressed by mesh axes.
//
// Tile shardings have no mesh: they arrange device numbers. A tile dimension is split by digits of the device number.
// The digits of all shardings of a program, cut into common parts, become the axes axis_0, axis_1, ... of a mesh.
// Example: a program with
//
//   {devices=[4,1]<=[4]}                                  dimension 0 is split by the digit of stride 1 and size 4
//   {devices=[1,2,2]0,1,2,3 last_tile_dim_replicate}      dimension 1 is split by the digit of stride 2 and size 2
//
// has the mesh "axis_0=2,axis_1=2"; the shardings are [{"axis_0", "axis_1"}, {}] and [{}, {"axis_0"}].
#pragma once

#include <vector>

#include "hlo/attributes.h"
#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

// The mesh of the tile shardings of a program. It has no axes if no sharding splits anything. InvalidArgument if the
// shardings are over different numbers of devices, or if their cuts do not nest (for example, 6 devices as 2x3 in one
// sharding and 3x2 in another). Unimplemented if a list of devices does not begin with device 0 or is not evenly
// spaced, or if a tile dimension ends inside a digit and its size does not divide the digit's.
absl::StatusOr<Mesh> MeshOfTiles(const std::vector<const hlo::OpSharding*>& shardings);

// Expresses one tile sharding (not a tuple) of an array of `ndim` dimensions on a mesh from MeshOfTiles, or on another
// mesh whose axes can express it. All dimensions are closed, or open if the kind is kUnknown. An array on one
// device (kMaximal) is replicated instead. InvalidArgument if the sharding does not fit the mesh or `ndim`.
// Unimplemented for manual shardings, and for unreduced ones that are not tiled.
absl::StatusOr<TensorSharding> ResolveTiles(const Mesh& mesh, const hlo::OpSharding& sharding, int64_t ndim);

}  // namespace xlad::sharding
