#include "sharding/model/axes.h"

#include <algorithm>

#include "base/rounding.h"
#include "base/sort_distinct.h"

namespace xlad::sharding {

bool Overlap(const AxisRef& a, const AxisRef& b) {
  return a.axis == b.axis && std::max(a.pre, b.pre) < std::min(a.pre * a.size, b.pre * b.size);
}

bool OverlapsAny(const AxisRef& a, const AxisList& list) {
  return std::any_of(list.begin(), list.end(), [&](const AxisRef& b) { return Overlap(a, b); });
}

bool SplitsDims(const TensorSharding& sharding, const AxisRef& axis) {
  return std::any_of(sharding.dims.begin(), sharding.dims.end(),
                     [&](const DimensionSharding& dim) { return OverlapsAny(axis, dim.axes); });
}

bool AppendAxis(const AxisRef& axis, AxisList* list) {
  const bool continues =
      !list->empty() && list->back().axis == axis.axis && list->back().pre * list->back().size == axis.pre;
  if (continues) {
    list->back().size *= axis.size;
  } else {
    list->push_back(axis);
  }
  return continues;
}

AxisList Merged(const AxisList& axes) {
  AxisList merged;
  for (const AxisRef& axis : axes) {
    if (axis.size > 1) AppendAxis(axis, &merged);
  }
  return merged;
}

namespace {

AxisList AllAxes(const Mesh& mesh) {
  AxisList all;
  for (int axis = 0; axis < std::ssize(mesh.axes()); ++axis) all.push_back(mesh.Whole(axis));
  return all;
}

}  // namespace

AxisList UnusedAxes(const Mesh& mesh, const AxisList& list) {
  AxisCuts cuts;
  cuts.Add(list);
  const AxisList all = AllAxes(mesh);
  cuts.Add(all);
  XLAD_CHECK(cuts.Resolve(mesh)) << "the cuts of " << ToString(mesh, list) << " do not nest";
  AxisList unused;
  for (const AxisRef& part : cuts.Cut(all)) {
    if (!OverlapsAny(part, list)) unused.push_back(part);
  }
  return unused;
}

DimensionAxes DimensionAxesOf(const TensorSharding& sharding) {
  DimensionAxes axes;
  for (const DimensionSharding& dim : sharding.dims) axes.push_back(dim.axes);
  return axes;
}

void AxisCuts::Add(const AxisList& axes) { seen_.insert(seen_.end(), axes.begin(), axes.end()); }

void AxisCuts::Add(const DimensionAxes& axes) {
  for (const AxisList& list : axes) Add(list);
}

bool AxisCuts::Resolve(const Mesh& mesh) {
  cuts_.assign(mesh.axes().size(), {});
  for (const AxisRef& ref : seen_) {
    auto& cuts = cuts_[ref.axis];
    cuts.push_back(ref.pre);
    cuts.push_back(ref.pre * ref.size);
  }
  for (auto& cuts : cuts_) {
    SortDistinct(&cuts);
    for (size_t i = 1; i < cuts.size(); ++i) {
      if (cuts[i] % cuts[i - 1] != 0) return false;
    }
  }
  return true;
}

AxisList AxisCuts::Cut(const AxisList& axes) const {
  AxisList result;
  for (const AxisRef& ref : axes) {
    int64_t at = ref.pre;
    for (int64_t cut : cuts_[ref.axis]) {
      if (cut <= at || cut > ref.pre * ref.size) continue;
      result.push_back({ref.axis, at, cut / at});
      at = cut;
    }
  }
  return result;
}

DimensionAxes AxisCuts::Cut(const DimensionAxes& axes) const {
  DimensionAxes result;
  for (const AxisList& list : axes) result.push_back(Cut(list));
  return result;
}

std::optional<AxisList> AxesOfStride(const Mesh& mesh, int64_t stride, int64_t size) {
  AxisList axes;
  for (const AxisRef& axis : AllAxes(mesh)) {
    const int64_t begin = mesh.Stride(axis), end = begin * axis.size;
    const int64_t low = std::max(begin, stride), high = std::min(end, stride * size);
    if (low >= high) continue;
    if (end % high != 0 || high % low != 0 || low % begin != 0) return std::nullopt;
    axes.push_back({axis.axis, end / high, high / low});
  }
  if (ShardCount(axes) != size) return std::nullopt;
  return axes;
}

hlo::ReplicaGroups ReplicaGroupsOver(const Mesh& mesh, const AxisList& axes) {
  hlo::ReplicaGroups groups;
  AxisCuts cuts;
  const AxisList all = AllAxes(mesh);
  cuts.Add(all);
  cuts.Add(axes);
  if (!cuts.Resolve(mesh)) {
    groups.groups = mesh.Groups(axes);
    return groups;
  }
  // The iota form describes an array of the device numbers with a dimension for each part of an axis. Its transpose
  // moves the parts in `axes` to the end, so each row is a group.
  hlo::ReplicaGroups::Iota& iota = groups.iota.emplace();
  const AxisList parts = cuts.Cut(all), moved = cuts.Cut(axes);
  for (const AxisRef& part : parts) iota.reshape_dims.push_back(part.size);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!OverlapsAny(parts[i], moved)) iota.transpose.push_back(i);
  }
  for (const AxisRef& part : moved) {
    iota.transpose.push_back(std::find(parts.begin(), parts.end(), part) - parts.begin());
  }
  const int64_t size = ShardCount(axes);
  iota.dims = {mesh.devices() / size, size};
  if (std::is_sorted(iota.transpose.begin(), iota.transpose.end())) {
    iota.transpose.clear();
    iota.reshape_dims = {mesh.devices()};
  }
  return groups;
}

int64_t ShardSize(int64_t size, int64_t shards) { return CeilDiv(size, shards); }

}  // namespace xlad::sharding
