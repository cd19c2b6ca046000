// The mesh: named axes with sizes over the devices 0 .. n - 1. A mesh is logical; a topology describes the machines.
//
// Devices are numbered row by row: the last axis changes fastest. On the mesh "dp=2,tp=4" device 6 has the coordinates
// dp = 1, tp = 2. A mesh stores nothing per device, so a mesh of 65,536 devices is as small as one of 8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "tensor/box.h"

namespace xlad::sharding {

using tensor::Dims;

// The largest number of devices of a mesh, which is that of a program (hlo/verify). Device numbers fit in 32 bits, and
// products of axis sizes cannot overflow.
inline constexpr int64_t kMaxDevices = int64_t{1} << 24;

struct Axis {
  std::string name;
  int64_t size = 1;
  friend bool operator==(const Axis&, const Axis&) = default;
};

// An axis of a mesh, or a part of one: Shardy's sub-axis "x":(pre)size. An axis of n devices with a sub-axis is a grid
// of pre * size * post devices, major to minor. On an axis "x" of 8, "x":(1)2 has the two halves of the axis as its
// positions, and "x":(2)4 has the four devices of each half.
struct AxisRef {
  int axis = 0;      // The position of the axis in the mesh.
  int64_t pre = 1;
  int64_t size = 0;  // The size of the part, or of the axis if the part is all of it. At least 1 in a valid AxisRef.
  friend auto operator<=>(const AxisRef&, const AxisRef&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const AxisRef& ref) {
    return H::combine(std::move(h), ref.axis, ref.pre, ref.size);
  }
};
using AxisList = std::vector<AxisRef>;  // Major to minor.

class Mesh {
 public:
  Mesh() = default;
  Mesh(std::string name, std::vector<Axis> axes) : name_(std::move(name)), axes_(std::move(axes)) {}

  const std::string& name() const { return name_; }
  const std::vector<Axis>& axes() const { return axes_; }
  int64_t devices() const;
  std::optional<int> Find(absl::string_view axis) const;
  // The full axis as an AxisRef.
  AxisRef Whole(int axis) const { return {axis, 1, axes_[axis].size}; }

  // The difference between the numbers of two devices that are neighbors along `ref`.
  int64_t Stride(const AxisRef& ref) const;
  // The position of `device` along `axes` taken together, major to minor: 0 .. ShardCount(axes) - 1.
  int64_t Position(int64_t device, const AxisList& axes) const;
  // Groups of devices that differ from each other only along `axes`. A group is ordered by Position; the groups are
  // ordered by their first device. Every device is in one group. The groups together have as many
  // elements as the mesh has devices; ReplicaGroupsOver (axes.h) describes them in a short form, for programs.
  std::vector<std::vector<int64_t>> Groups(const AxisList& axes) const;

  std::string ToString() const;  // "dp=4,tp=2", or "single" if there are no axes.
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::string name_ = "mesh";
  std::vector<Axis> axes_;
};

// The product of the axes' sizes, which is the number of shards of a dimension that they split.
int64_t ShardCount(const AxisList& axes);

// The axes by name, joined by commas: "dp,tp:(1)2".
std::string ToString(const Mesh& mesh, const AxisList& axes);

// The mesh of the job whose axes are the messages `axes` (proto MeshAxis), which have the fields name and size. It is a
// template, because sharding/ does not depend on proto/. Nothing is checked.
template <typename AxisMessages>
Mesh MeshFromWire(const AxisMessages& axes) {
  std::vector<Axis> list;
  for (const auto& axis : axes) list.push_back({axis.name(), axis.size()});
  return Mesh("mesh", std::move(list));
}

// Parses the value of the --mesh flag, for example "dp=4,tp=2". "" and "single" mean a mesh without axes.
// InvalidArgument if a part is not AXIS=SIZE, if a size is below 1, if a name occurs twice, or if there are more than
// kMaxDevices devices.
absl::StatusOr<Mesh> ParseMesh(absl::string_view text);

}  // namespace xlad::sharding
