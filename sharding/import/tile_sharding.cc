#include "sharding/import/tile_sharding.h"

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "sharding/model/axes.h"

namespace xlad::sharding {
namespace {

using TileKind = hlo::OpSharding::Kind;

// A digit of the device number: the value v of the digit, 0 <= v < size, contributes v * stride to the number.
struct Digit {
  int64_t size = 1, stride = 1;
};

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tile sharding: ", what));
}

absl::Status Unsupported(absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat("tile sharding: ", what));
}

absl::Status NotAPermutation() {
  return Unsupported("found a device list that is not evenly spaced, expected a permutation of mesh axes");
}

absl::Status UnsupportedKind(absl::string_view found) {
  return Unsupported(
      absl::StrCat("found ", found, ", expected manual computations as Shardy writes them (xla.sdy.*)"));
}

// The digits, major to minor, of a list of devices that consists of evenly spaced runs at every level.
absl::StatusOr<std::vector<Digit>> DigitsOfList(Dims devices) {
  std::vector<Digit> digits;  // Minor to major.
  if (!devices.empty() && devices[0] != 0) {
    return Unsupported(absl::StrCat("found a list of devices that begins with device ", devices[0],
                                    ", expected one that begins with device 0; renumber the devices"));
  }
  while (devices.size() > 1) {
    const int64_t stride = devices[1] - devices[0];
    int64_t run = 2;
    while (run < std::ssize(devices) && devices[run] - devices[run - 1] == stride) ++run;
    while (std::ssize(devices) % run != 0) --run;
    if (run < 2) return NotAPermutation();
    Dims heads;
    for (int64_t i = 0; i < std::ssize(devices); ++i) {
      if (i % run == 0) heads.push_back(devices[i]);
      if (stride <= 0 || devices[i] != heads.back() + i % run * stride) {
        return NotAPermutation();
      }
    }
    digits.push_back({run, stride});
    devices = std::move(heads);
  }
  std::reverse(digits.begin(), digits.end());
  return digits;
}

absl::StatusOr<std::vector<Digit>> DigitsOf(const hlo::OpSharding& sharding) {
  if (!sharding.devices.empty()) return DigitsOfList(sharding.devices);
  const Dims& sizes = sharding.iota_reshape_dims;
  std::vector<Digit> in_order(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] < 1 || sizes[i] > kMaxDevices / stride) {
      return Malformed("found a dimension below 1 or more than 2^24 devices, expected 1 to 2^24 devices");
    }
    in_order[i] = {sizes[i], stride};
    stride *= sizes[i];
  }
  if (sharding.iota_transpose.empty()) return in_order;
  std::vector<Digit> digits;
  std::set<int64_t> seen;
  for (const int64_t from : sharding.iota_transpose) {
    if (from < 0 || from >= std::ssize(sizes) || !seen.insert(from).second) {
      return Malformed("found a transpose with a repeated or missing dimension, expected a permutation");
    }
    digits.push_back(in_order[from]);
  }
  if (digits.size() != sizes.size()) {
    return Malformed(
        absl::StrCat("found a transpose of ", Counted(digits.size(), "dimension"), ", expected ", sizes.size()));
  }
  return digits;
}

int64_t DeviceCount(const std::vector<Digit>& digits) {
  int64_t count = 1;
  for (const Digit& digit : digits) count *= digit.size;
  return count;
}

// The digits of each tile dimension. A digit is cut if a tile dimension ends inside it.
absl::StatusOr<std::vector<std::vector<Digit>>> TileDigits(const hlo::OpSharding& sharding) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<Digit> digits, DigitsOf(sharding));
  std::vector<std::vector<Digit>> tiles;
  size_t next = 0;
  Digit rest = digits.empty() ? Digit{} : digits[0];
  for (const int64_t tile : sharding.tile_dims) {
    std::vector<Digit>& own = tiles.emplace_back();
    int64_t left = tile;
    while (left > 1) {
      if (rest.size == 1) {
        if (++next >= digits.size()) return Malformed("found more tiles than devices, expected equal numbers");
        rest = digits[next];
        continue;
      }
      const int64_t size = std::min(left, rest.size);
      if (left % size != 0 || rest.size % size != 0) {
        return Unsupported("found tiles that end inside a digit of the device number, expected sizes that divide it");
      }
      // Takes the major part of the remaining digit.
      own.push_back({size, rest.stride * (rest.size / size)});
      rest.size /= size;
      left /= size;
    }
  }
  return tiles;
}

bool IsTiled(const hlo::OpSharding& sharding) { return sharding.kind == TileKind::kTiled; }

void ForEachTiled(const hlo::OpSharding& sharding, const std::function<void(const hlo::OpSharding&)>& visit) {
  if (IsTiled(sharding)) visit(sharding);
  for (const hlo::OpSharding& element : sharding.tuple) ForEachTiled(element, visit);
}

absl::Status CollectCuts(const hlo::OpSharding& sharding, int64_t* devices, std::set<int64_t>* cuts) {
  XLAD_ASSIGN_OR_RETURN(const auto digits, DigitsOf(sharding));
  XLAD_ASSIGN_OR_RETURN(const auto tiles, TileDigits(sharding));
  const int64_t count = DeviceCount(digits);
  if (*devices != 0 && *devices != count) {
    return Malformed(
        absl::StrCat("found shardings over ", count, " and over ", *devices, " devices, expected equal numbers"));
  }
  *devices = count;
  const auto cut = [&](const Digit& digit) {
    cuts->insert(digit.stride);
    cuts->insert(digit.stride * digit.size);
  };
  std::for_each(digits.begin(), digits.end(), cut);
  for (const auto& tile : tiles) std::for_each(tile.begin(), tile.end(), cut);
  return absl::OkStatus();
}

// The axes of a mesh, or parts of them, that make up the digit, major to minor.
absl::StatusOr<AxisList> AxesOf(const Mesh& mesh, const Digit& digit) {
  std::optional<AxisList> axes = AxesOfStride(mesh, digit.stride, digit.size);
  if (axes.has_value()) return *std::move(axes);
  return Malformed(absl::StrCat("found tiles over devices 0, ", digit.stride, ", ... of ", digit.stride * digit.size,
                                ", expected axes of the mesh ", mesh.ToString()));
}

absl::Status ResolveTiled(const Mesh& mesh, const hlo::OpSharding& sharding, TensorSharding* result) {
  XLAD_ASSIGN_OR_RETURN(const auto digits, DigitsOf(sharding));
  if (DeviceCount(digits) != mesh.devices()) {
    return Malformed(absl::StrCat("found ", DeviceCount(digits), " devices, expected the mesh's ", mesh.devices()));
  }
  XLAD_ASSIGN_OR_RETURN(const auto tiles, TileDigits(sharding));
  const size_t extra = sharding.replicate_on_last_tile_dim ? 1 : sharding.last_tile_dims.size();
  if (tiles.size() != result->dims.size() + extra) {
    return Malformed(absl::StrCat("found ", tiles.size(), " tile dimensions, expected ", result->dims.size() + extra));
  }
  for (size_t d = 0; d < tiles.size(); ++d) {
    const bool of_tensor = d < result->dims.size();
    const TileKind kind = of_tensor                             ? TileKind::kTiled
                          : sharding.replicate_on_last_tile_dim ? TileKind::kReplicated
                                                                : sharding.last_tile_dims[d - result->dims.size()];
    if (kind == TileKind::kReplicated) continue;
    if (kind == TileKind::kManual) return UnsupportedKind("a manual subgroup");
    for (const Digit& digit : tiles[d]) {
      XLAD_ASSIGN_OR_RETURN(const AxisList axes, AxesOf(mesh, digit));
      AxisList& into = of_tensor ? result->dims[d].axes : result->unreduced;
      for (const AxisRef& axis : axes) AppendAxis(axis, &into);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Mesh> MeshOfTiles(const std::vector<const hlo::OpSharding*>& shardings) {
  int64_t devices = 0;
  std::set<int64_t> cuts;
  absl::Status status;
  for (const hlo::OpSharding* sharding : shardings) {
    ForEachTiled(*sharding, [&](const hlo::OpSharding& tiled) {
      if (status.ok()) status = CollectCuts(tiled, &devices, &cuts);
    });
    XLAD_RETURN_IF_ERROR(status);
  }
  std::vector<Axis> axes;
  int64_t low = 1;
  for (const int64_t cut : cuts) {
    if (cut == low) continue;
    if (cut % low != 0) {
      return Malformed(absl::StrCat("found shardings that divide the devices into runs of ", low, " and of ", cut,
                                    ", expected one of these lengths to divide the other"));
    }
    axes.push_back({"", cut / low});
    low = cut;
  }
  std::reverse(axes.begin(), axes.end());
  for (size_t a = 0; a < axes.size(); ++a) axes[a].name = absl::StrCat("axis_", a);
  return Mesh("mesh", std::move(axes));
}

absl::StatusOr<TensorSharding> ResolveTiles(const Mesh& mesh, const hlo::OpSharding& sharding, int64_t ndim) {
  TensorSharding result = TensorSharding::Replicated(ndim);
  switch (sharding.kind) {
    case TileKind::kReplicated:
    case TileKind::kMaximal:
      return result;  // kMaximal places the array on one device; every device computes it instead.
    case TileKind::kUnknown:
      return TensorSharding::Open(ndim);
    case TileKind::kTiled:
      break;
    case TileKind::kTuple:
      return Malformed("found a tuple of shardings for an array, expected one sharding");
    default:
      return UnsupportedKind("a manual or unreduced sharding");
  }
  XLAD_RETURN_IF_ERROR(ResolveTiled(mesh, sharding, &result));
  return result;
}

}  // namespace xlad::sharding
