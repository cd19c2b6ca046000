#include "sharding/import/mesh_translation.h"

#include "absl/strings/str_cat.h"
#include "sharding/model/axes.h"

namespace xlad::sharding {

absl::StatusOr<TensorSharding> OnMesh(const Mesh& to, const Mesh& from, TensorSharding sharding) {
  const absl::Status apart = absl::UnimplementedError(
      absl::StrCat("found a sharding on the mesh ", from.ToString(), " in a program on the mesh ", to.ToString(),
                   ", expected meshes over the same devices, with axes that can be cut into common parts"));
  if (to.devices() != from.devices()) return apart;
  const auto translate = [&](AxisList* axes) {
    AxisList result;
    for (const AxisRef& axis : *axes) {
      const std::optional<AxisList> parts = AxesOfStride(to, from.Stride(axis), axis.size);
      if (!parts.has_value()) return false;
      for (const AxisRef& part : *parts) AppendAxis(part, &result);
    }
    *axes = std::move(result);
    return true;
  };
  bool fits = translate(&sharding.replicated) && translate(&sharding.unreduced);
  for (DimensionSharding& dim : sharding.dims) fits = fits && translate(&dim.axes);
  if (!fits) return apart;
  return sharding;
}

}  // namespace xlad::sharding
