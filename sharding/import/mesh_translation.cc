#include "sharding/import/mesh_translation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace xlad::sharding {
namespace {

// Devices between two neighbours along an axis.
int64_t Stride(const Mesh& mesh, size_t axis) {
  int64_t stride = 1;
  for (size_t a = axis + 1; a < mesh.axes().size(); ++a) stride *= mesh.axes()[a].size;
  return stride;
}

// The parts of axes of `to` that count in steps of `low` up to `high` devices, major to minor; empty where none do.
AxisList Parts(const Mesh& to, int64_t low, int64_t high) {
  AxisList parts;
  int64_t covered = 1;
  for (size_t a = 0; a < to.axes().size(); ++a) {
    const int64_t stride = Stride(to, a), end = stride * to.axes()[a].size;
    const int64_t from = std::max(stride, low), until = std::min(end, high);
    if (from >= until) continue;
    if (end % until != 0 || until % from != 0 || from % stride != 0) return {};
    parts.push_back({static_cast<int>(a), end / until, until / from});
    covered *= until / from;
  }
  return covered == high / low ? parts : AxisList{};
}

}  // namespace

absl::StatusOr<TensorSharding> OnMesh(const Mesh& to, const Mesh& from, TensorSharding sharding) {
  const absl::Status apart = absl::UnimplementedError(
      absl::StrCat("found a sharding on the mesh ", from.ToString(), " in a program on the mesh ", to.ToString(),
                   ", expected meshes over the same devices whose axes are parts of each other's"));
  if (to.devices() != from.devices()) return apart;
  const auto translate = [&](AxisList* axes) {
    AxisList result;
    for (const AxisRef& axis : *axes) {
      const int64_t size = from.axes()[axis.axis].size;
      const int64_t low = Stride(from, static_cast<size_t>(axis.axis)) * (size / (axis.pre * axis.size));
      const AxisList parts = Parts(to, low, low * axis.size);
      if (parts.empty()) return false;
      result.insert(result.end(), parts.begin(), parts.end());
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
