// Replica groups that are said by the axes of a mesh.
#pragma once

#include "hlo/attributes.h"

namespace xlad::hlo {

// Whether the axes' parts lie in the mesh without overlap, so that ReplicaGroups::Expand gives groups. Takes time by
// the number of axes, not of devices.
bool AxesFit(const ReplicaGroups::MeshAxes& mesh_axes);

}  // namespace xlad::hlo
