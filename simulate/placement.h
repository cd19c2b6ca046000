// Placements: a placement maps the axes of a mesh to dimensions of the torus, and so maps each device to a chip of a
// slice.
//
// An axis occupies one or more segments. On the slice v5p-16x20x28, the mesh dp=2240,tp=4 can be placed as
// "tp=x4,dp=x4yz": the four devices of a tp group are neighbors along x. The axis dp has the other factor of x, with
// steps of four chips, and all of y and z. If axes share a dimension, the axis that is named first is the innermost.
// The letter s names the dimension of slices, if there are several.
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
  int axis = 0;                   // The axis of the mesh.
  std::vector<Segment> segments;  // The position in the first segment varies fastest.
  friend bool operator==(const AxisPlacement&, const AxisPlacement&) = default;
};

struct Placement {
  std::vector<AxisPlacement> axes;  // Innermost first, without axes of size 1.

  // The coordinates of the chip on which `device` runs.
  std::vector<int> ChipOf(int64_t device, const sharding::Mesh& mesh, const Slice& slice) const;
  std::string ToString(const sharding::Mesh& mesh,
                       const Slice& slice) const;  // "tp=x4,dp=x4yz". ParsePlacements reads it.
};

inline constexpr size_t kMaxPlacements = 1024;

// The placements that fit `assign`: "tp=z,dp=xy", or with sizes as ToString prints them. The axes in `assign` are
// placed in its order, innermost first, and only on the given dimensions. Other axes may be on any dimensions. Without
// `assign`, all placements are candidates. Returns at most kMaxPlacements of them, beginning with those that give the
// innermost axes the largest parts of the first dimensions. InvalidArgument if the mesh does not have as many devices
// as the slice has chips, the text is malformed, or there is no such placement.
absl::StatusOr<std::vector<Placement>> ParsePlacements(absl::string_view assign, const sharding::Mesh& mesh,
                                                       const Slice& slice);

}  // namespace xlad::simulate
