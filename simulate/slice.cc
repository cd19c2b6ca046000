#include "simulate/slice.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace xlad::simulate {

int Slice::chips() const {
  int chips = 1;
  for (const int size : grid) chips *= size;
  return chips;
}

collectives::Network Slice::Network() const {
  std::vector<collectives::TorusDimension> dimensions;
  for (int d = 0; d < std::ssize(grid); ++d) {
    dimensions.push_back({grid[d], Wraps(d), chip.ici_hop_s * 1e6, chip.ici_bytes_per_s / 1e9});
  }
  collectives::Network network = collectives::Network::Torus(dimensions, chip.ici_launch_s * 1e6);
  for (const auto& [a, b] : broken_links) XLAD_CHECK(network.BreakLink(a, b).ok());
  return network;
}

absl::Status BreakLink(absl::string_view link, Slice* slice) {
  const std::vector<absl::string_view> ends = absl::StrSplit(link, '-');
  int a = 0, b = 0;
  if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &a) || !absl::SimpleAtoi(ends[1], &b)) {
    return absl::InvalidArgumentError(absl::StrCat("found broken link \"", link, "\", expected two chips such as 0-1"));
  }
  collectives::Network network = slice->Network();
  XLAD_RETURN_IF_ERROR(network.BreakLink(a, b));
  slice->broken_links.emplace_back(a, b);
  return absl::OkStatus();
}

absl::StatusOr<Slice> SliceOfChips(const machine::Chip& chip, int64_t chips) {
  if (chips < 1 || chips > kMaxChips) {
    return absl::InvalidArgumentError(absl::StrCat("found a slice of ", chips, " chips, expected 1 to ", kMaxChips));
  }
  Slice slice{"", chip, {}};
  int64_t left = chips;
  for (int dimensions = chip.ici_dimensions; dimensions > 0; --dimensions) {
    // The largest divisor that leaves the other dimensions at least as long.
    int64_t size = 1;
    for (int64_t divisor = 1; std::pow(divisor, dimensions) <= static_cast<double>(left); ++divisor) {
      if (left % divisor == 0) size = divisor;
    }
    slice.grid.push_back(static_cast<int>(dimensions == 1 ? left : size));
    left /= slice.grid.back();
  }
  slice.name = absl::StrCat(chip.name, "-", absl::StrJoin(slice.grid, "x"));
  return slice;
}

absl::StatusOr<Slice> ParseSlice(absl::string_view topology, const std::optional<machine::Chip>& chip) {
  Slice slice;
  slice.name = std::string(topology);
  const size_t dash = topology.rfind('-');
  const absl::string_view sizes = dash == absl::string_view::npos ? topology : topology.substr(dash + 1);
  int64_t chips = 1;
  for (const absl::string_view size : absl::StrSplit(sizes, 'x')) {
    const bool is_number = absl::SimpleAtoi(size, &slice.grid.emplace_back()) && slice.grid.back() >= 1;
    chips = is_number ? std::min<int64_t>(chips * slice.grid.back(), int64_t{kMaxChips} + 1) : int64_t{kMaxChips} + 1;
    if (chips > kMaxChips) {
      return absl::InvalidArgumentError(absl::StrCat("found topology \"", topology,
                                                     "\", expected a chip and the sizes of a slice, such as "
                                                     "v5p-16x20x28, of at most ",
                                                     kMaxChips, " chips"));
    }
  }
  if (chip.has_value()) {
    slice.chip = *chip;
  } else {
    const absl::string_view name = dash == absl::string_view::npos ? "" : topology.substr(0, dash);
    XLAD_ASSIGN_OR_RETURN(slice.chip, machine::BuiltInChip(name));
  }
  if (std::ssize(slice.grid) != slice.chip.ici_dimensions) {
    return absl::InvalidArgumentError(absl::StrCat("found topology \"", topology, "\" of ", slice.grid.size(),
                                                   " dimensions, expected the ", slice.chip.ici_dimensions,
                                                   " dimensions of chip ", slice.chip.name));
  }
  return slice;
}

}  // namespace xlad::simulate
