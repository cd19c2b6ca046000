// The third generation of sharding={...}: axes of a mesh by name, as in
// mesh['a'=2,'b'=4], [{'a'}, {'b':(1)2, ?}], replicated={'b':(2)2}. Instructions keep it as canonical text
// (OpSharding::named); this is the text taken apart, for the parser and the proto.
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
    bool open = false;  // '?' behind the axes.
  };
  std::vector<std::pair<std::string, int64_t>> mesh;  // No axis: one device, `device_ids[0]`.
  Dims device_ids;                      // Empty where the order of devices is that of the mesh, or:
  Dims iota_reshape, iota_transpose;    // it is an iota of these sizes, transposed.
  std::vector<Dimension> dims;
  std::vector<Axis> replicated, unreduced, manual;
  std::string unreduced_op;             // max or min; empty: sum.
  std::vector<Metadata> metadata;
};

// "mesh[...]..." up to the '}' that closes the sharding, which stays.
bool ParseNamedSharding(Lexer& lexer, NamedSharding* named);
std::string PrintNamedSharding(const NamedSharding& named);

// 'a'=2,'b'=4 behind "mesh[", with the ']'.
bool ParseMeshAxes(Lexer& lexer, std::vector<std::pair<std::string, int64_t>>* mesh);
// {'a','b':(1)2}: axes that must be in `mesh`.
bool ParseAxes(Lexer& lexer, const std::vector<std::pair<std::string, int64_t>>& mesh,
               std::vector<NamedSharding::Axis>* axes);
// "(0,3,1,2)" or "([4,2]T(1,0))".
bool ParseDeviceIds(Lexer& lexer, NamedSharding* named);

void AppendMesh(const std::vector<std::pair<std::string, int64_t>>& mesh, std::string* out);
// ", device_ids=(...)" where the order of devices is not the mesh's.
void AppendDeviceIds(const NamedSharding& named, std::string* out);
void AppendAxes(const std::vector<NamedSharding::Axis>& axes, std::string* out);

}  // namespace xlad::hlo
