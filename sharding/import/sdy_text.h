// A parser of Shardy's attribute text: meshes and tensor shardings as JAX and XLA write them into HLO.
//
//   {mesh = #sdy.mesh<["dp"=4, "tp"=2]>, empty_mesh = #sdy.mesh<[]>}
//   #sdy.sharding<@mesh, [{"dp"}, {"tp":(1)2, ?}p1], replicated={"x"}, unreduced=max{"y"}>
//   #sdy.sharding_per_value<[<@mesh, [{}]>, <mesh<["a"=4]>, [{"a"}]>]>
//
// Errors are InvalidArgument and state what was found and what was expected, and for syntax errors also the position in
// the text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

struct SdyAxis {
  std::string name;
  int64_t pre = 1;   // As in AxisRef.
  int64_t size = 0;  // 0 means the full axis.
};

struct SdyDimension {
  std::vector<SdyAxis> axes;
  bool open = false;  // '?' follows the axes.
  int priority = 0;   // The number after 'p'.
};

struct SdyMesh {
  std::vector<Axis> axes;
  Dims device_ids;  // Empty if the devices are in order.
};

struct SdySharding {
  std::string mesh_name;  // The name after @; empty if the mesh is inline.
  std::optional<SdyMesh> inline_mesh;
  std::vector<SdyDimension> dims;
  std::vector<SdyAxis> replicated, unreduced;
  hlo::Opcode unreduced_reduction = hlo::Opcode::kAdd;
};

// Whether the ids of the devices, if there are any, contain each device of the mesh once. The device of a mesh without
// axes may have any id.
bool HasValidDevices(const SdyMesh& mesh);

// Parses named meshes. The result is in the order of the text.
absl::StatusOr<std::vector<std::pair<std::string, SdyMesh>>> ParseSdyMeshes(absl::string_view text);

// Parses a single sharding or a list with one sharding per value.
absl::StatusOr<std::vector<SdySharding>> ParseSdyShardings(absl::string_view text);

// Parses a list of axes, {"a", "b"} or ["a", "b"], as in manual_axes.
absl::StatusOr<std::vector<SdyAxis>> ParseSdyAxes(absl::string_view text);

// Resolves the names of axes on `mesh`. Omits the axes of size 1. InvalidArgument if an axis or a part of it does not
// exist or is used twice, or if the sharding does not have `ndim` dimensions.
absl::StatusOr<TensorSharding> Resolve(const Mesh& mesh, const SdySharding& sharding, int64_t ndim);
absl::StatusOr<AxisList> ResolveAxes(const Mesh& mesh, const std::vector<SdyAxis>& axes);

}  // namespace xlad::sharding
