// Placements: which chip of a slice each device of a mesh is, by mapping the axes of the mesh to dimensions of the
// torus.
//
// An axis occupies one or more segments. On the slice v5p-16x20x28, the mesh dp=2240,tp=4 can be placed as
// "tp=x4,dp=x4yz": the four devices of a tp group are neighbors along x, and dp has the other factor of x, with steps
// of four chips, and all of y and z. If axes share a dimension, the one that is named first is the innermost. The
// letter s stands for the slices, if there are several.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "sharding/model/mesh.h"
#include "simulate/slice.h"

namespace xlad::simulate {

// `size` positions along a dimension, `stride` chips apart.
struct Segment {
  int dimension = 0;
  int size = 1;
  int stride = 1;
  friend bool operator==(const Segment&, const Segment&) = default;
};

struct AxisPlacement {
  int axis = 0;                   // An axis of the mesh.
  std::vector<Segment> segments;  // The position along the axis counts the first segment fastest.
  friend bool operator==(const AxisPlacement&, const AxisPlacement&) = default;
};

struct Placement {
  std::vector<AxisPlacement> axes;  // Innermost first. Axes of size 1 are missing.

  // The coordinates of the chip of a device.
  std::vector<int> ChipOf(int64_t device, const sharding::Mesh& mesh, const Slice& slice) const;
  std::string ToString(const sharding::Mesh& mesh,
                       const Slice& slice) const;  // "tp=x4,dp=x4yz". ParsePlacements reads it.
};

inline constexpr size_t kMaxPlacements = 128;

// The placements that fit `assign`: "tp=z,dp=xy", or with sizes as ToString prints them. The axes that it names are
// placed innermost first, in its order, on its dimensions only; the others on any. Without `assign` all are candidates,
// at most kMaxPlacements of them, those first in which axes have whole dimensions. InvalidArgument if the mesh does not
// have as many devices as the slice has chips, the text is malformed, or there is no such placement.
absl::StatusOr<std::vector<Placement>> ParsePlacements(absl::string_view assign, const sharding::Mesh& mesh,
                                                       const Slice& slice);

}  // namespace xlad::simulate
