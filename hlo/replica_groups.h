// Replica groups that are given as axes of a mesh.
#pragma once

#include "hlo/attributes.h"

namespace xlad::hlo {

// Returns true if the parts of axes are in the mesh and do not overlap, so that ReplicaGroups::Expand is defined. The
// time depends on the number of axes, not of devices.
bool AxesFit(const ReplicaGroups::MeshAxes& mesh_axes);

}  // namespace xlad::hlo
