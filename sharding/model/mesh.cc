#include "sharding/model/mesh.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace xlad::sharding {
namespace {

int64_t Coordinate(const Mesh& mesh, const AxisRef& ref, int64_t device) {
  return device / mesh.Stride(ref) % ref.size;
}

}  // namespace

int64_t Mesh::devices() const {
  int64_t count = 1;
  for (const Axis& axis : axes_) count *= axis.size;
  return count;
}

std::optional<int> Mesh::Find(absl::string_view axis) const {
  for (int a = 0; a < std::ssize(axes_); ++a) {
    if (axes_[a].name == axis) return a;
  }
  return std::nullopt;
}

int64_t Mesh::Stride(const AxisRef& ref) const {
  int64_t stride = axes_[ref.axis].size / (ref.pre * ref.size);
  for (size_t a = ref.axis + 1; a < axes_.size(); ++a) stride *= axes_[a].size;
  return stride;
}

int64_t Mesh::Position(int64_t device, const AxisList& axes) const {
  int64_t position = 0;
  for (const AxisRef& ref : axes) position = position * ref.size + Coordinate(*this, ref, device);
  return position;
}

std::vector<std::vector<int64_t>> Mesh::Groups(const AxisList& axes) const {
  // The key of a group is its first device: the one at position 0 of every axis in `axes`.
  std::map<int64_t, std::vector<int64_t>> groups;
  for (int64_t device = 0; device < devices(); ++device) {
    int64_t first = device;
    for (const AxisRef& ref : axes) first -= Coordinate(*this, ref, device) * Stride(ref);
    groups[first].push_back(device);
  }
  std::vector<std::vector<int64_t>> result;
  for (auto& [first, group] : groups) {
    std::sort(group.begin(), group.end(), [&](int64_t a, int64_t b) { return Position(a, axes) < Position(b, axes); });
    result.push_back(std::move(group));
  }
  return result;
}

std::string Mesh::ToString() const {
  if (axes_.empty()) return "single";
  return absl::StrJoin(axes_, ",",
                       [](std::string* out, const Axis& axis) { absl::StrAppend(out, axis.name, "=", axis.size); });
}

int64_t ShardCount(const AxisList& axes) {
  int64_t count = 1;
  for (const AxisRef& ref : axes) count *= ref.size;
  return count;
}

std::string ToString(const Mesh& mesh, const AxisList& axes) {
  return absl::StrJoin(axes, ",", [&](std::string* out, const AxisRef& ref) {
    const Axis& axis = mesh.axes()[ref.axis];
    absl::StrAppend(out, axis.name);
    if (ref.size != axis.size) absl::StrAppend(out, ":(", ref.pre, ")", ref.size);
  });
}

absl::StatusOr<Mesh> ParseMesh(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.empty() || text == "single") return Mesh();
  std::vector<Axis> axes;
  int64_t devices = 1;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> sides = absl::StrSplit(part, '=');
    Axis axis;
    if (sides.size() == 2) axis.name = std::string(absl::StripAsciiWhitespace(sides[0]));
    if (axis.name.empty() || !absl::SimpleAtoi(sides[1], &axis.size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh \"", text, "\": found \"", part, "\", expected AXIS=SIZE, for example dp=4,tp=2"));
    }
    if (axis.size < 1 || axis.size > kMaxDevices / devices) {
      return absl::InvalidArgumentError(absl::StrCat("mesh \"", text, "\": axis ", axis.name, " has size ", axis.size,
                                                     ", expected at least 1 and at most 2^24 devices in all"));
    }
    devices *= axis.size;
    for (const Axis& other : axes) {
      if (other.name == axis.name) {
        return absl::InvalidArgumentError(absl::StrCat("mesh \"", text, "\": axis ", axis.name, " is named twice"));
      }
    }
    axes.push_back(std::move(axis));
  }
  return Mesh("mesh", std::move(axes));
}

}  // namespace xlad::sharding
