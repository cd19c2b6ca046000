// Enumerates placements axis by axis, innermost first. For each axis it tries all ways to write the axis size as a
// product of factors of the remaining sizes of the dimensions.
#include "simulate/placement.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/counted.h"

namespace xlad::simulate {
namespace {

using sharding::Mesh;

// An axis in --assign: its dimensions, each with a size, or 0 for any size.
struct Request {
  int axis = 0;
  std::vector<Segment> dimensions;
};

// The dimension with this letter, or the number of dimensions if there is none.
int DimensionOf(char letter, const Slice& slice) {
  int dimension = 0;
  while (dimension < std::ssize(slice.grid) && slice.LetterOf(dimension) != letter) ++dimension;
  return dimension;
}

absl::Status Malformed(absl::string_view assign, const Mesh& mesh, const Slice& slice) {
  std::vector<std::string> letters;
  for (int d = 0; d < std::ssize(slice.grid); ++d) letters.push_back(std::string(1, slice.LetterOf(d)));
  return absl::InvalidArgumentError(absl::StrCat(
      "found assignment \"", assign, "\", expected axes of the mesh ", mesh.ToString(), ", each once with dimensions ",
      absl::StrJoin(letters, ", "), " of ", slice.name, ", each once in an axis, such as tp=x,dp=yz or tp=x4,dp=x4yz"));
}

absl::StatusOr<std::vector<Request>> ParseRequests(absl::string_view assign, const Mesh& mesh, const Slice& slice) {
  std::vector<Request> requests;
  if (assign.empty()) return requests;
  for (const absl::string_view part : absl::StrSplit(assign, ',')) {
    const std::vector<absl::string_view> sides = absl::StrSplit(part, '=');
    const std::optional<int> axis = sides.size() == 2 ? mesh.Find(sides[0]) : std::nullopt;
    if (!axis.has_value() || sides[1].empty()) return Malformed(assign, mesh, slice);
    for (const Request& other : requests) {
      if (other.axis == *axis) return Malformed(assign, mesh, slice);
    }
    Request& request = requests.emplace_back();
    request.axis = *axis;
    for (size_t i = 0; i < sides[1].size();) {
      Segment segment{DimensionOf(sides[1][i++], slice), 0, 1};
      const size_t begin = i;
      while (i < sides[1].size() && absl::ascii_isdigit(sides[1][i])) ++i;
      const bool has_size = i > begin;
      const bool is_repeated = std::any_of(request.dimensions.begin(), request.dimensions.end(),
                                           [&](const Segment& s) { return s.dimension == segment.dimension; });
      if (segment.dimension == std::ssize(slice.grid) || is_repeated ||
          (has_size && (!absl::SimpleAtoi(sides[1].substr(begin, i - begin), &segment.size) || segment.size < 1))) {
        return Malformed(assign, mesh, slice);
      }
      request.dimensions.push_back(segment);
    }
  }
  return requests;
}

class Enumerator {
 public:
  Enumerator(const Mesh& mesh, const Slice& slice, const std::vector<Request>& requests)
      : mesh_(mesh), slice_(slice), requests_(requests) {}

  std::vector<Placement> Run() {
    std::vector<int> order;
    for (const Request& request : requests_) {
      if (mesh_.axes()[request.axis].size > 1) order.push_back(request.axis);
    }
    const size_t fixed = order.size();
    for (int axis = std::ssize(mesh_.axes()) - 1; axis >= 0; --axis) {
      const bool is_named = std::any_of(requests_.begin(), requests_.end(), [&](auto& r) { return r.axis == axis; });
      if (!is_named && mesh_.axes()[axis].size > 1) order.push_back(axis);
    }
    do {
      used_.assign(slice_.grid.size(), 1);
      current_ = Placement();
      Place(order, 0);
    } while (found_.size() < kMaxPlacements && std::prev_permutation(order.begin() + fixed, order.end()));
    return std::move(found_);
  }

 private:
  // The requested size on a dimension: 0 for any size, 1 if the axis must not use it.
  int Asked(int axis, int dimension) const {
    for (const Request& request : requests_) {
      if (request.axis != axis) continue;
      for (const Segment& segment : request.dimensions) {
        if (segment.dimension == dimension) return segment.size;
      }
      return 1;
    }
    return 0;
  }

  void Place(const std::vector<int>& order, size_t at) {
    if (at == order.size()) {
      // Axes that share no dimension have the same placement in every order.
      std::vector<AxisPlacement> sorted = current_.axes;
      std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.axis < b.axis; });
      std::vector<int> key;
      for (const AxisPlacement& placed : sorted) {
        key.push_back(-1);
        for (const Segment& s : placed.segments) key.insert(key.end(), {s.dimension, s.size, s.stride});
      }
      if (keys_.insert(std::move(key)).second) found_.push_back(current_);
      return;
    }
    current_.axes.push_back({order[at], {}});
    Factor(order, at, 0, mesh_.axes()[order[at]].size);
    current_.axes.pop_back();
  }

  // Chooses the factors of the axis on `dimension` and on the later dimensions, largest first. Their product must be
  // `left`.
  void Factor(const std::vector<int>& order, size_t at, int dimension, int64_t left) {
    if (found_.size() >= kMaxPlacements) return;
    if (dimension == std::ssize(slice_.grid)) {
      if (left == 1) Place(order, at + 1);
      return;
    }
    const int free = slice_.grid[dimension] / used_[dimension];
    const int asked = Asked(order[at], dimension);
    for (int size = std::gcd<int64_t, int64_t>(free, left); size >= 1; --size) {
      if (free % size != 0 || left % size != 0 || (asked != 0 && size != asked)) continue;
      auto& segments = current_.axes[at].segments;
      if (size > 1) segments.push_back({dimension, size, used_[dimension]});
      used_[dimension] *= size;
      Factor(order, at, dimension + 1, left / size);
      used_[dimension] /= size;
      if (size > 1) current_.axes[at].segments.pop_back();
    }
  }

  const Mesh& mesh_;
  const Slice& slice_;
  const std::vector<Request>& requests_;
  std::vector<int> used_;  // By dimension: the product of the sizes of the segments on it.
  Placement current_;
  std::vector<Placement> found_;
  std::set<std::vector<int>> keys_;  // The keys of the placements in found_.
};

}  // namespace

std::vector<int> Placement::ChipOf(int64_t device, const Mesh& mesh, const Slice& slice) const {
  std::vector<int> chip(slice.grid.size(), 0);
  for (const AxisPlacement& placed : axes) {
    int64_t position = device / mesh.Stride(mesh.Whole(placed.axis)) % mesh.axes()[placed.axis].size;
    for (const Segment& segment : placed.segments) {
      chip[segment.dimension] += position % segment.size * segment.stride;
      position /= segment.size;
    }
  }
  return chip;
}

std::string Placement::ToString(const Mesh& mesh, const Slice& slice) const {
  std::vector<std::string> parts;
  for (const AxisPlacement& placed : axes) {
    std::string dimensions;
    for (const Segment& segment : placed.segments) {
      absl::StrAppend(&dimensions, std::string(1, slice.LetterOf(segment.dimension)));
      if (segment.size < slice.grid[segment.dimension]) absl::StrAppend(&dimensions, segment.size);
    }
    parts.push_back(absl::StrCat(mesh.axes()[placed.axis].name, "=", dimensions));
  }
  return absl::StrJoin(parts, ",");
}

absl::StatusOr<std::vector<Placement>> ParsePlacements(absl::string_view assign, const Mesh& mesh, const Slice& slice) {
  if (mesh.devices() != slice.chips()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found mesh ", mesh.ToString(), " of ", Counted(mesh.devices(), "device"), ", expected as many as ", slice.name,
        " has chips: ", slice.chips(), "; choose a mesh (--mesh) and a slice (--topology) of one size"));
  }
  XLAD_ASSIGN_OR_RETURN(const std::vector<Request> requests, ParseRequests(assign, mesh, slice));
  std::vector<Placement> placements = Enumerator(mesh, slice, requests).Run();
  if (!placements.empty()) return placements;
  std::vector<std::string> sizes;
  for (int d = 0; d < std::ssize(slice.grid); ++d) {
    sizes.push_back(absl::StrCat(std::string(1, slice.LetterOf(d)), " has size ", slice.grid[d]));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "found no placement of mesh ", mesh.ToString(), " on ", slice.name, assign.empty() ? "" : " with assignment ",
      assign, ", expected axes whose sizes are products of factors of ", assign.empty() ? "the" : "their",
      " dimensions (", absl::StrJoin(sizes, ", "), ")"));
}

}  // namespace xlad::simulate
