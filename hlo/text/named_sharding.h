// The form of sharding={...} that names the axes of a mesh. Example:
//
//   mesh['a'=2,'b'=4], [{'a'}, {'b':(1)2, ?}], replicated={'b':(2)2}
//
// This sharding splits dimension 0 over axis a and dimension 1 over b:(1)2, the major part of axis b. Propagation may
// add further axes to dimension 1. The tensor is replicated over b:(2)2, the minor part of b. Instructions store the
// canonical text (OpSharding::named); NamedSharding is the parsed form, which the parser and the proto conversion use.
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
  // The order of the devices, as a list or as a transposed iota. If both are empty, it is the order of the mesh.
  Dims device_ids;
  Dims iota_reshape, iota_transpose;
  std::vector<Dimension> dims;
  std::vector<Axis> replicated, unreduced, manual;
  std::string unreduced_op;             // "max" or "min". Empty for a sum.
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
