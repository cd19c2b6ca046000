// Replica groups that are given as axes of a mesh or as a transposed iota.
#pragma once

#include "hlo/attributes.h"

namespace xlad::hlo {

// Returns true if the parts of axes are in the mesh and do not overlap, so that ReplicaGroups::Expand is defined. The
// time depends on the number of axes, not of devices.
bool AxesFit(const ReplicaGroups::MeshAxes& mesh_axes);

// The elements of an iota of sizes `dims` in row-major order after a transposition, or as they are if `transpose` is
// empty.
//   TransposedIota({2, 3}, {1, 0}) == {0, 3, 1, 4, 2, 5}
Dims TransposedIota(const Dims& dims, const Dims& transpose);

}  // namespace xlad::hlo
