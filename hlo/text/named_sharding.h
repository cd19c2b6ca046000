// The third generation of sharding={...}, which names axes of a mesh:
//   mesh['a'=2,'b'=4], [{'a'}, {'b':(1)2, ?}], replicated={'b':(2)2}
// splits dimension 0 over axis a and dimension 1 over the major half of axis b; propagation may add further axes to
// dimension 1, and the minor half of b is replicated. Instructions store the canonical text (OpSharding::named). This
// is the parsed form, for the parser and the proto.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "hlo/attributes.h"
#include "hlo/text/lexer.h"

namespace xlad::hlo {

struct NamedSharding {
  using Axis = ReplicaGroups::MeshAxes::Axis;
  struct Dimension {
    std::vector<Axis> axes;
    bool open = false;  // '?' follows the axes.
  };
  std::vector<std::pair<std::string, int64_t>> mesh;  // If empty, the sharding has one device, `device_ids[0]`.
  Dims device_ids;                      // Empty if the devices are in the order of the mesh,
  Dims iota_reshape, iota_transpose;    // or if their order is an iota of these sizes, transposed.
  std::vector<Dimension> dims;
  std::vector<Axis> replicated, unreduced, manual;
  std::string unreduced_op;             // "max" or "min"; a sum if empty.
  std::vector<Metadata> metadata;
};

// Parses "mesh[...]..." up to the '}' at the end of the sharding, which is not consumed.
bool ParseNamedSharding(Lexer& lexer, NamedSharding* named);
std::string PrintNamedSharding(const NamedSharding& named);

// Parses 'a'=2,'b'=4] after "mesh[".
bool ParseMeshAxes(Lexer& lexer, std::vector<std::pair<std::string, int64_t>>* mesh);
// Parses {'a','b':(1)2}. The axes must be in `mesh`.
bool ParseAxes(Lexer& lexer, const std::vector<std::pair<std::string, int64_t>>& mesh,
               std::vector<NamedSharding::Axis>* axes);
// Parses "(0,3,1,2)" or "([4,2]T(1,0))".
bool ParseDeviceIds(Lexer& lexer, NamedSharding* named);

void AppendMesh(const std::vector<std::pair<std::string, int64_t>>& mesh, std::string* out);
// Appends ", device_ids=(...)" if the devices are not in the order of the mesh.
void AppendDeviceIds(const NamedSharding& named, std::string* out);
void AppendAxes(const std::vector<NamedSharding::Axis>& axes, std::string* out);

}  // namespace xlad::hlo
