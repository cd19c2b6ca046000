// Attributes: equality, and the expansion of the three forms of replica groups.
#include "hlo/attributes.h"

#include <algorithm>
#include <numeric>

#include "hlo/replica_groups.h"
#include "tensor/indices.h"

namespace xlad::hlo {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

Groups Split(const Dims& ids, int64_t group_size) {
  Groups groups;
  if (group_size <= 0) return groups;
  for (size_t i = 0; i < ids.size(); i += group_size) {
    const size_t end = std::min<size_t>(ids.size(), i + group_size);
    groups.emplace_back(ids.begin() + i, ids.begin() + end);
  }
  return groups;
}

Groups ExpandIota(const ReplicaGroups::Iota& iota) {
  return Split(TransposedIota(iota.reshape_dims, iota.transpose), iota.dims.empty() ? 0 : iota.dims.back());
}

// The factors of a mesh: each axis is split at the beginning and at the end of each part of it that `axes` uses.
// `order` lists the factors such that the used parts are last, in the order of `axes`. Devices that differ only along
// used factors form a group.
struct CutMesh {
  Dims factors, order;
  int64_t group_size = 1;
};

// Returns false if parts overlap or exceed their axis.
bool Cut(const ReplicaGroups::MeshAxes& mesh_axes, CutMesh* cut) {
  Dims& factors = cut->factors;
  std::vector<bool> used;
  std::vector<int64_t> factor_of(mesh_axes.axes.size(), -1);
  for (const auto& [name, size] : mesh_axes.mesh) {
    std::vector<size_t> parts;
    for (size_t i = 0; i < mesh_axes.axes.size(); ++i) {
      if (mesh_axes.axes[i].name == name) parts.push_back(i);
    }
    std::sort(parts.begin(), parts.end(),
              [&](size_t a, size_t b) { return mesh_axes.axes[a].pre_size < mesh_axes.axes[b].pre_size; });
    int64_t done = 1;  // The product of the factors of this axis so far.
    for (const size_t part : parts) {
      const ReplicaGroups::MeshAxes::Axis& axis = mesh_axes.axes[part];
      const int64_t part_size = axis.size == 0 ? size : axis.size;
      if (axis.pre_size < done || axis.pre_size % done != 0) return false;
      factors.push_back(axis.pre_size / done);
      used.push_back(false);
      factor_of[part] = std::ssize(factors);
      factors.push_back(part_size);
      used.push_back(true);
      done = axis.pre_size * part_size;
    }
    if (done <= 0 || size % done != 0) return false;
    factors.push_back(size / done);
    used.push_back(false);
  }
  for (size_t f = 0; f < factors.size(); ++f) {
    if (!used[f]) cut->order.push_back(f);
  }
  for (const int64_t f : factor_of) {
    if (f < 0) return false;
    cut->order.push_back(f);
    cut->group_size *= factors[f];
  }
  return true;
}

Groups ExpandMeshAxes(const ReplicaGroups::MeshAxes& mesh_axes) {
  CutMesh cut;
  if (!Cut(mesh_axes, &cut)) return {};
  Dims ids = TransposedIota(cut.factors, cut.order);
  if (!mesh_axes.device_ids.empty()) {
    if (mesh_axes.device_ids.size() != ids.size()) return {};
    for (int64_t& id : ids) id = mesh_axes.device_ids[id];
  }
  return Split(ids, cut.group_size);
}

}  // namespace

Dims TransposedIota(const Dims& dims, const Dims& transpose) {
  const Dims strides = tensor::Strides(dims);
  Dims sizes, steps, result;
  for (size_t i = 0; i < dims.size(); ++i) {
    const size_t d = transpose.empty() ? i : transpose[i];
    sizes.push_back(dims[d]);
    steps.push_back(strides[d]);
  }
  if (tensor::Product(sizes) == 0) return result;
  result.reserve(tensor::Product(sizes));
  Dims index(sizes.size(), 0);
  do {
    int64_t value = 0;
    for (size_t i = 0; i < index.size(); ++i) value += index[i] * steps[i];
    result.push_back(value);
  } while (tensor::NextIndex(sizes, absl::MakeSpan(index)));
  return result;
}

bool AxesFit(const ReplicaGroups::MeshAxes& mesh_axes) {
  CutMesh cut;
  return Cut(mesh_axes, &cut);
}

Groups ReplicaGroups::Expand(int64_t devices) const {
  if (iota.has_value()) return ExpandIota(*iota);
  if (mesh_axes.has_value()) return ExpandMeshAxes(*mesh_axes);
  if (!groups.empty()) return groups;
  Dims all(std::max<int64_t>(0, devices));
  std::iota(all.begin(), all.end(), 0);
  return {all};
}

bool operator==(const Attributes&, const Attributes&) = default;

ComparisonType DefaultComparisonType(ElementType type) {
  if (tensor::IsFloating(type) || tensor::IsComplex(type)) return ComparisonType::kFloat;
  return tensor::IsSigned(type) ? ComparisonType::kSigned : ComparisonType::kUnsigned;
}

}  // namespace xlad::hlo
