#include "sharding/proof/small_mesh.h"

#include <algorithm>

namespace xlad::sharding {
namespace {

constexpr int64_t kMaxInstanceDevices = 64;

template <typename F>
void ForEachAxis(const ValueSharding& value, const F& visit) {
  for (const TensorSharding& sharding : value) {
    for (const DimensionSharding& dim : sharding.dims) {
      for (const AxisRef& axis : dim.axes) visit(axis);
    }
    for (const AxisRef& axis : sharding.unreduced) visit(axis);
  }
}

int64_t ShortSize(int64_t size) { return size % 2 == 0 ? std::min<int64_t>(size, 4) : std::min<int64_t>(size, 3); }

}  // namespace

SmallMesh::SmallMesh(const ShardedModule& program, const hlo::Instruction& instruction)
    : mesh_(program.mesh), shortened_(program.mesh.axes().size(), false) {
  if (program.mesh.devices() <= kMaxInstanceDevices) return;
  std::vector<Axis> axes = program.mesh.axes();
  std::vector<bool> used(axes.size(), false), cut(axes.size(), false);
  const auto visit = [&](const AxisRef& axis) {
    used[axis.axis] = true;
    cut[axis.axis] = cut[axis.axis] || axis.size != axes[axis.axis].size;
  };
  ForEachAxis(program.shardings.at(&instruction), visit);
  for (const hlo::Instruction* operand : instruction.operands()) ForEachAxis(program.shardings.at(operand), visit);
  for (size_t a = 0; a < axes.size(); ++a) {
    if (cut[a]) continue;
    const int64_t size = used[a] ? ShortSize(axes[a].size) : 1;
    shortened_[a] = size != axes[a].size;
    axes[a].size = size;
  }
  mesh_ = Mesh(program.mesh.name(), std::move(axes));
}

ValueSharding SmallMesh::Shortened(ValueSharding value) const {
  for (TensorSharding& sharding : value) {
    for (DimensionSharding& dim : sharding.dims) {
      for (AxisRef& axis : dim.axes) axis = Shortened(axis);
    }
    for (AxisRef& axis : sharding.unreduced) axis = Shortened(axis);
  }
  return value;
}

}  // namespace xlad::sharding
