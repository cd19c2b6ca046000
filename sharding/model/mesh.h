// The mesh: named axes with sizes over an ordered list of devices. Logical; the physical side is a topology.
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

struct Axis {
  std::string name;
  int64_t size = 1;
  friend bool operator==(const Axis&, const Axis&) = default;
};

// An axis of a mesh or a part of one (Shardy's sub-axis "x":(pre)size). Axes are named by position in the mesh.
// The axis of size n splits as pre * size * post, major to minor.
struct AxisRef {
  int axis = 0;
  int64_t pre = 1;
  int64_t size = 0;  // Of this part; always set.
  friend auto operator<=>(const AxisRef&, const AxisRef&) = default;
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
  AxisRef Whole(int axis) const { return {axis, 1, axes_[axis].size}; }

  // The position of `device` along `axes` taken together, major to minor: 0 .. ShardCount(axes) - 1.
  int64_t Position(int64_t device, const AxisList& axes) const;
  // Devices that differ from each other only along `axes`, ordered by Position; every device is in one group.
  std::vector<std::vector<int64_t>> Groups(const AxisList& axes) const;

  std::string ToString() const;  // "dp=4,tp=2"; "single" without axes.
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::string name_ = "mesh";
  std::vector<Axis> axes_;
};

int64_t ShardCount(const AxisList& axes);  // Product of sizes.
// "dp", "dp:(1)2", joined by commas.
std::string ToString(const Mesh& mesh, const AxisList& axes);

// "dp=4,tp=2" read (the --mesh flag).
absl::StatusOr<Mesh> ParseMesh(absl::string_view text);

}  // namespace xlad::sharding
