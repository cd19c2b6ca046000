// The sharding annotations of a user's program, in all syntaxes, expressed on one mesh.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sharding/import/sdy_text.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

class Annotations {
 public:
  // Finds the program's mesh. If there are several meshes, this is the largest one, and shardings on the others are
  // expressed on it. Tile shardings have no mesh; one is derived from them (MeshOfTiles). InvalidArgument if a mesh is
  // malformed or does not have as many devices as the program, or if a program without a mesh has collectives, which
  // means that it is already partitioned. Unimplemented if a program with manual computations has a mesh whose devices
  // are not in order. `module` must outlive this object.
  static absl::StatusOr<Annotations> Create(const hlo::Module& module);

  const Mesh& mesh() const { return mesh_; }
  // Changes the sizes of the mesh's axes. InvalidArgument if `sizes` names an axis that the mesh does not have, or
  // omits an axis of a size above 1. Also InvalidArgument if the sizes change although the program has manual
  // computations or tile shardings, which depend on the old sizes.
  absl::Status Rebind(const Mesh& sizes);

  // The annotated shardings of an instruction's array leaves, with origins; nullopt if it has no annotation. In a
  // program with Shardy's meshes, sharding={...} counts only on a Sharding call, and on one device it never counts.
  // Unreduced axes are ignored: they do not change the value, and the partitioner chooses where to reduce partial sums.
  absl::StatusOr<std::optional<ValueSharding>> Of(const hlo::Instruction& instruction) const;
  // The shardings in the frontend attribute `key` of the instruction, one for each array leaf. InvalidArgument if there
  // is no such attribute.
  absl::StatusOr<ValueSharding> OfAttribute(const hlo::Instruction& instruction, const char* key) const;

 private:
  Annotations() = default;
  absl::Status FindSdyMesh(const hlo::Module& module);
  absl::Status FindNamedMeshes(const hlo::Module& module);
  absl::Status CheckOrder(const hlo::Module& module, const SdyMesh& mesh) const;
  absl::StatusOr<TensorSharding> ResolveSdy(const SdySharding& sharding, int64_t ndim) const;
  absl::StatusOr<ValueSharding> FromSdy(const hlo::Instruction& instruction, absl::string_view text) const;
  absl::StatusOr<ValueSharding> FromTiles(const hlo::Instruction& instruction) const;

  const hlo::Module* module_ = nullptr;
  Mesh mesh_, written_mesh_;
  std::vector<std::pair<std::string, SdyMesh>> meshes_;
  bool tiles_only_ = false;  // The program has only tile shardings.
  bool named_ = false;       // The program names axes in sharding={...}.
};

}  // namespace xlad::sharding
