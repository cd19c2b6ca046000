// Shardy's attribute text, taken apart: meshes and tensor shardings as JAX and XLA write them into HLO.
//
//   {mesh = #sdy.mesh<["dp"=4, "tp"=2]>, empty_mesh = #sdy.mesh<[]>}
//   #sdy.sharding<@mesh, [{"dp"}, {"tp":(1)2, ?}p1], replicated={"x"}, unreduced=max{"y"}>
//   #sdy.sharding_per_value<[<@mesh, [{}]>, <mesh<["a"=4]>, [{"a"}]>]>
//
// Errors are InvalidArgument: what was found at which character, what was expected.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sharding/model/tensor_sharding.h"

namespace xlad::sharding {

struct SdyAxis {
  std::string name;
  int64_t pre = 1;
  int64_t size = 0;  // 0: the whole axis.
};

struct SdyDimension {
  std::vector<SdyAxis> axes;
  bool open = false;
  int priority = 0;
};

struct SdyMesh {
  std::vector<Axis> axes;
  Dims device_ids;  // Empty: in order.
};

struct SdySharding {
  std::string mesh_name;  // Of @mesh; empty where the mesh is inline.
  std::optional<SdyMesh> inline_mesh;
  std::vector<SdyDimension> dims;
  std::vector<SdyAxis> replicated, unreduced;
  hlo::Opcode unreduced_reduction = hlo::Opcode::kAdd;
};

// Meshes by name, in the order of the text.
absl::StatusOr<std::vector<std::pair<std::string, SdyMesh>>> ParseSdyMeshes(absl::string_view text);

// A single sharding or a per-value list.
absl::StatusOr<std::vector<SdySharding>> ParseSdyShardings(absl::string_view text);

// {"a", "b"} or [..]: a list of axes, as in manual_axes.
absl::StatusOr<std::vector<SdyAxis>> ParseSdyAxes(absl::string_view text);

// In terms of `mesh`: axes of size 1 are dropped, every axis exists and is used once. `ndim` is the tensor's.
absl::StatusOr<TensorSharding> Resolve(const Mesh& mesh, const SdySharding& sharding, int64_t ndim);
absl::StatusOr<AxisList> ResolveAxes(const Mesh& mesh, const std::vector<SdyAxis>& axes);

}  // namespace xlad::sharding
