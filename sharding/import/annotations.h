// What the user's program says about shardings, instruction by instruction, on the program's one mesh.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sharding/import/sdy_text.h"
#include "sharding/model/sharded_module.h"

namespace xlad::sharding {

// "12:3: %dot.4: " in front of a message about an instruction.
absl::Status At(const hlo::Instruction& instruction, const absl::Status& status);

bool IsCustomCall(const hlo::Instruction& instruction, absl::string_view target);

class Annotations {
 public:
  // Finds the program's mesh: of several the largest, on which the others are then expressed; of tile shardings the one
  // behind them. `module` must outlive
  // this.
  static absl::StatusOr<Annotations> Create(const hlo::Module& module);

  const Mesh& mesh() const { return mesh_; }
  // Gives the mesh other sizes. InvalidArgument where `sizes` does not name the program's axes, or where something
  // in the program (manual computations) holds it to the old ones.
  absl::Status Rebind(const Mesh& sizes);

  // The shardings of an instruction's leaves as annotated, with origins; empty where it has no annotation.
  absl::StatusOr<std::optional<ValueSharding>> Of(const hlo::Instruction& instruction) const;
  // The shardings in another attribute of the instruction, one for each leaf of its shape. InvalidArgument where it
  // is missing.
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
  bool tiles_only_ = false;  // The program has no sdy annotation.
  bool named_ = false;       // Instead it names axes in sharding={...}.
};

}  // namespace xlad::sharding
