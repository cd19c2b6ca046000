#include "sharding/import/annotations.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "hlo/attribute_keys.h"
#include "hlo/verify/verifier.h"
#include "sharding/import/mesh_translation.h"
#include "sharding/import/named_annotations.h"
#include "sharding/import/tile_sharding.h"
#include "sharding/rules/rules.h"

namespace xlad::sharding {
namespace {

int64_t Devices(const std::vector<Axis>& axes) { return Mesh("", axes).devices(); }

template <typename Visit>
void ForEachInstruction(const hlo::Module& module, Visit visit) {
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) visit(*instruction);
  }
}

template <typename Visit>
void ForEachNamed(const hlo::OpSharding* sharding, Visit visit) {
  if (sharding == nullptr) return;
  if (sharding->kind == hlo::OpSharding::Kind::kNamed) visit(*sharding);
  for (const hlo::OpSharding& element : sharding->tuple) ForEachNamed(&element, visit);
}

std::string AxisNames(const std::vector<Axis>& axes) {
  return absl::StrCat("{", absl::StrJoin(axes, ",", [](std::string* out, const Axis& a) { out->append(a.name); }), "}");
}

// Adds the first link of an origin chain for every axis of the annotation.
void AddOrigins(const Mesh& mesh, const hlo::Instruction& instruction, const std::string& source,
                TensorSharding* sharding) {
  for (size_t d = 0; d < sharding->dims.size(); ++d) {
    DimensionSharding& dim = sharding->dims[d];
    for (const AxisRef& axis : dim.axes) {
      dim.origins.push_back(std::make_shared<const Origin>(Origin{
          Origin::Kind::kAnnotation, instruction.name(),
          absl::StrCat("annotated {\"", ToString(mesh, AxisList{axis}), "\"} on dimension ", d), source, nullptr}));
    }
  }
}

bool InOrder(const SdyMesh& mesh) {
  for (const int64_t i : tensor::Indices(mesh.device_ids)) {
    if (mesh.device_ids[i] != i) return false;
  }
  return true;
}

}  // namespace

absl::Status Annotations::FindSdyMesh(const hlo::Module& module) {
  if (const std::string* text = hlo::FindAttribute(module.frontend_attributes, hlo::kMeshesKey)) {
    auto meshes = ParseSdyMeshes(*text);
    XLAD_RETURN_IF_ERROR(Annotate(meshes.status(), hlo::kMeshesKey));
    meshes_ = *std::move(meshes);
  }
  absl::Status status;
  ForEachInstruction(module, [&](const hlo::Instruction& instruction) {
    const std::string* text = hlo::FindAttribute(instruction, hlo::kShardingKey);
    if (!status.ok() || text == nullptr || !absl::StrContains(*text, "<mesh<")) return;
    auto shardings = ParseSdyShardings(*text);
    status = AtInstruction(shardings.status(), instruction);
    if (!status.ok()) return;
    for (SdySharding& sharding : *shardings) {
      if (sharding.inline_mesh.has_value()) meshes_.emplace_back("", std::move(*sharding.inline_mesh));
    }
  });
  XLAD_RETURN_IF_ERROR(status);
  if (meshes_.empty()) XLAD_RETURN_IF_ERROR(FindNamedMeshes(module));
  for (const auto& [name, mesh] : meshes_) XLAD_RETURN_IF_ERROR(CheckOrder(module, mesh));
  for (const auto& [name, mesh] : meshes_) {
    if (Devices(mesh.axes) > mesh_.devices() || mesh_.axes().empty()) mesh_ = Mesh(name, mesh.axes);
  }
  return absl::OkStatus();
}

// Finds the meshes of a program that has no attributes of Shardy.
absl::Status Annotations::FindNamedMeshes(const hlo::Module& module) {
  absl::Status status;
  ForEachInstruction(module, [&](const hlo::Instruction& instruction) {
    ForEachNamed(instruction.sharding(), [&](const hlo::OpSharding& sharding) {
      if (!status.ok()) return;
      absl::StatusOr<SdySharding> named = FromNamed(sharding, 0);
      status = AtInstruction(named.status(), instruction);
      if (status.ok()) meshes_.emplace_back("", *std::move(named->inline_mesh));
      named_ = true;
    });
  });
  return status;
}

// The device_ids of a mesh say which device has which shard. They are ignored, because the scheduler decides this. A
// manual computation can read device numbers, so it is refused on a mesh whose device_ids are not in order.
absl::Status Annotations::CheckOrder(const hlo::Module& module, const SdyMesh& mesh) const {
  if (InOrder(mesh) || mesh.axes.empty()) return absl::OkStatus();
  absl::Status status;
  ForEachInstruction(module, [&](const hlo::Instruction& instruction) {
    if (status.ok() && IsCustomCall(instruction, hlo::kEnterManualCall)) {
      status = AtInstruction(
          absl::UnimplementedError(absl::StrCat(
              "found a manual computation on a mesh with device_ids=[", absl::StrJoin(mesh.device_ids, ", "),
              "], expected devices in order: make the mesh of jax.devices() without reordering them")),
          instruction);
    }
  });
  return status;
}

namespace {

absl::Status CheckOnePerLeaf(size_t shardings, size_t leaves) {
  if (shardings == leaves) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("found ", shardings, " shardings, expected one for each of ", leaves, " arrays"));
}

// A program that has no mesh but contains collectives has already been partitioned.
absl::Status CheckNotPartitioned(const hlo::Module& module) {
  absl::Status status;
  ForEachInstruction(module, [&](const hlo::Instruction& instruction) {
    if (!status.ok() || !hlo::IsCollective(instruction.opcode())) return;
    status = AtInstruction(absl::InvalidArgumentError(absl::StrCat(
                               "found collectives in a program for ", Counted(module.num_partitions, "device"),
                               " without a mesh: it is already partitioned, expected the unpartitioned program with "
                               "its shardings")),
                           instruction);
  });
  return status;
}

}  // namespace

absl::StatusOr<Annotations> Annotations::Create(const hlo::Module& module) {
  Annotations annotations;
  annotations.module_ = &module;
  XLAD_RETURN_IF_ERROR(annotations.FindSdyMesh(module));
  if (annotations.mesh_.axes().empty()) {
    std::vector<const hlo::OpSharding*> tiles;
    absl::Status status;
    ForEachInstruction(module, [&](const hlo::Instruction& instruction) {
      if (instruction.sharding() == nullptr || !status.ok()) return;
      tiles.push_back(instruction.sharding());
      // If a sharding cannot be expressed on any mesh, the error names its instruction.
      status = AtInstruction(MeshOfTiles({tiles.back()}).status(), instruction);
    });
    XLAD_RETURN_IF_ERROR(status);
    annotations.tiles_only_ = true;
    XLAD_ASSIGN_OR_RETURN(annotations.mesh_, MeshOfTiles(tiles));
  }
  const int64_t devices = annotations.mesh_.devices();
  if (module.num_partitions > 1 && devices == 1) XLAD_RETURN_IF_ERROR(CheckNotPartitioned(module));
  if (module.num_partitions > 1 && devices > 1 && module.num_partitions != devices) {
    return absl::InvalidArgumentError(absl::StrCat("found num_partitions=", module.num_partitions, ", expected the ",
                                                   devices, " devices of the mesh ", annotations.mesh_.ToString()));
  }
  annotations.written_mesh_ = annotations.mesh_;
  return annotations;
}

absl::Status Annotations::Rebind(const Mesh& sizes) {
  std::vector<Axis> axes = mesh_.axes();
  for (const Axis& axis : sizes.axes()) {
    const std::optional<int> found = mesh_.Find(axis.name);
    if (!found.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("mesh ", sizes.ToString(), ": found axes ",
                                                     AxisNames(sizes.axes()), ", expected ", AxisNames(axes)));
    }
    axes[*found].size = axis.size;
  }
  for (const Axis& axis : axes) {
    if (axis.size > 1 && !sizes.Find(axis.name).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("mesh ", sizes.ToString(), ": found axes ",
                                                     AxisNames(sizes.axes()), ", expected ", AxisNames(axes)));
    }
  }
  if (axes == mesh_.axes()) return absl::OkStatus();
  absl::Status status;
  ForEachInstruction(*module_, [&](const hlo::Instruction& instruction) {
    if (!status.ok()) return;
    if (IsCustomCall(instruction, hlo::kEnterManualCall) || IsCustomCall(instruction, hlo::kEnterManualTilesCall)) {
      status = AtInstruction(absl::InvalidArgumentError(absl::StrCat(
                                 "the manual computation (shard_map) is written for the mesh ", mesh_.ToString(),
                                 ", found ", sizes.ToString(), "; export the program for that mesh")),
                             instruction);
    }
  });
  XLAD_RETURN_IF_ERROR(status);
  if (tiles_only_) {
    return absl::InvalidArgumentError(absl::StrCat("the program's tile shardings are made for ", mesh_.devices(),
                                                   " devices, found the mesh ", sizes.ToString(),
                                                   "; export the program for that mesh"));
  }
  mesh_ = Mesh(mesh_.name(), std::move(axes));
  return absl::OkStatus();
}

absl::StatusOr<TensorSharding> Annotations::ResolveSdy(const SdySharding& sharding, int64_t ndim) const {
  const SdyMesh* mesh = sharding.inline_mesh.has_value() ? &*sharding.inline_mesh : nullptr;
  for (const auto& [name, candidate] : meshes_) {
    if (mesh == nullptr && name == sharding.mesh_name) mesh = &candidate;
  }
  if (mesh == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("found mesh @", sharding.mesh_name, ", expected one of ", hlo::kMeshesKey));
  }
  // A mesh without axes. If it has device_ids, the array is on one device, and every device computes it instead.
  // Otherwise the annotation can only close dimensions.
  if (mesh->axes.empty()) {
    if (!mesh->device_ids.empty()) return TensorSharding::Replicated(ndim);
    return Resolve(Mesh(), sharding, ndim);
  }
  if (mesh->axes == written_mesh_.axes()) return Resolve(mesh_, sharding, ndim);
  const Mesh from("", mesh->axes);
  if (mesh_.axes() != written_mesh_.axes()) {
    return absl::UnimplementedError(
        absl::StrCat("found a sharding on mesh ", from.ToString(), " in a program on mesh ", written_mesh_.ToString(),
                     ", expected one mesh, because its sizes are changed to ", mesh_.ToString()));
  }
  if (!std::all_of(meshes_.begin(), meshes_.end(), [](const auto& named) { return InOrder(named.second); })) {
    return absl::UnimplementedError(absl::StrCat("found several meshes, ", from.ToString(), " and ", mesh_.ToString(),
                                                 ", one with device_ids, expected devices in order: make all meshes "
                                                 "of jax.devices() without reordering them"));
  }
  XLAD_ASSIGN_OR_RETURN(TensorSharding resolved, Resolve(from, sharding, ndim));
  return OnMesh(mesh_, from, std::move(resolved));
}

absl::StatusOr<ValueSharding> Annotations::FromSdy(const hlo::Instruction& instruction, absl::string_view text) const {
  XLAD_ASSIGN_OR_RETURN(const std::vector<SdySharding> written, ParseSdyShardings(text));
  const std::vector<const hlo::Shape*> leaves = ArrayLeaves(instruction.shape());
  XLAD_RETURN_IF_ERROR(CheckOnePerLeaf(written.size(), leaves.size()));
  ValueSharding shardings;
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    XLAD_ASSIGN_OR_RETURN(TensorSharding sharding, ResolveSdy(written[leaf], leaves[leaf]->ndim()));
    shardings.push_back(std::move(sharding));
  }
  return shardings;
}

// A tuple has one sharding per array leaf, or one sharding for all leaves.
absl::StatusOr<ValueSharding> Annotations::FromTiles(const hlo::Instruction& instruction) const {
  std::vector<const hlo::OpSharding*> written;
  const hlo::OpSharding& sharding = *instruction.sharding();
  const std::vector<const hlo::Shape*> leaves = ArrayLeaves(instruction.shape());
  if (sharding.kind == hlo::OpSharding::Kind::kTuple) {
    for (const hlo::OpSharding& element : sharding.tuple) written.push_back(&element);
  } else {
    written.assign(leaves.size(), &sharding);
  }
  XLAD_RETURN_IF_ERROR(CheckOnePerLeaf(written.size(), leaves.size()));
  ValueSharding shardings;
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    const int64_t ndim = leaves[leaf]->ndim();
    if (written[leaf]->kind == hlo::OpSharding::Kind::kNamed) {
      XLAD_ASSIGN_OR_RETURN(const SdySharding named, FromNamed(*written[leaf], ndim));
      XLAD_ASSIGN_OR_RETURN(TensorSharding on_mesh, ResolveSdy(named, ndim));
      shardings.push_back(std::move(on_mesh));
      continue;
    }
    XLAD_ASSIGN_OR_RETURN(TensorSharding resolved, ResolveTiles(mesh_, *written[leaf], ndim));
    shardings.push_back(std::move(resolved));
  }
  return shardings;
}

absl::StatusOr<ValueSharding> Annotations::OfAttribute(const hlo::Instruction& instruction, const char* key) const {
  const std::string* text = hlo::FindAttribute(instruction, key);
  if (text == nullptr) return absl::InvalidArgumentError(absl::StrCat("found no ", key, ", expected shardings"));
  XLAD_ASSIGN_OR_RETURN(ValueSharding shardings, FromSdy(instruction, *text));
  const std::string source = module_->SourceOf(instruction);
  for (TensorSharding& sharding : shardings) AddOrigins(mesh_, instruction, source, &sharding);
  return shardings;
}

absl::StatusOr<std::optional<ValueSharding>> Annotations::Of(const hlo::Instruction& instruction) const {
  const std::string* text = hlo::FindAttribute(instruction, hlo::kShardingKey);
  absl::StatusOr<ValueSharding> shardings;
  if (text != nullptr) {
    shardings = FromSdy(instruction, *text);
  } else if (const bool counts = tiles_only_ || named_ || IsCustomCall(instruction, hlo::kShardingCall);
             counts && instruction.sharding() != nullptr && mesh_.devices() > 1) {
    shardings = FromTiles(instruction);
  } else {
    return std::optional<ValueSharding>();
  }
  XLAD_RETURN_IF_ERROR(AtInstruction(shardings.status(), instruction));
  const std::string source = module_->SourceOf(instruction);
  for (TensorSharding& sharding : *shardings) {
    sharding.unreduced.clear();
    sharding.unreduced_reduction = hlo::Opcode::kAdd;
    AddOrigins(mesh_, instruction, source, &sharding);
  }
  return std::optional<ValueSharding>(*std::move(shardings));
}

}  // namespace xlad::sharding
