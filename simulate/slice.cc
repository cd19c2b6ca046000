#include "simulate/slice.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/counted.h"
#include "base/rounding.h"

namespace xlad::simulate {
namespace {

// Takes "2x" from the front of "2xv5e" and returns 2, or 1 if there is no number. The name of a built-in chip, such as
// "7x", is not split.
int TakeSlices(absl::string_view* name) {
  const size_t x = name->find('x');
  int slices = 1;
  if (x == absl::string_view::npos || machine::BuiltInChip(*name).ok() ||
      !absl::SimpleAtoi(name->substr(0, x), &slices)) {
    return 1;
  }
  name->remove_prefix(x + 1);
  return slices;
}

// The sizes of `dimensions` dimensions of at least `least` chips each, in ascending order. Their product is `chips`.
// The longest one is as short as possible; if several lists remain, the shortest one is as long as possible. Empty if
// there are none.
std::vector<int> MostEvenSizes(int chips, int dimensions, int least) {
  if (dimensions == 1) return {chips};
  std::vector<int> best;
  for (int size = least; std::pow(size, dimensions) <= chips; ++size) {
    if (chips % size != 0) continue;
    std::vector<int> sizes = MostEvenSizes(chips / size, dimensions - 1, size);
    if (sizes.empty() || (!best.empty() && sizes.back() > best.back())) continue;
    sizes.insert(sizes.begin(), size);
    best = std::move(sizes);
  }
  return best;
}

// The name of a topology that exists, with about `chips` chips in at least `slices` slices.
absl::StatusOr<std::string> BuiltTopology(const machine::Chip& chip, int64_t chips, int64_t slices) {
  if (chip.dcn_bytes_per_s == 0) {
    if (chip.ici_max_chips > 0) chips = std::min<int64_t>(chips, chip.ici_max_chips);
    slices = 1;
  } else {
    slices = std::max(slices, SlicesFor(chip, chips));
  }
  XLAD_ASSIGN_OR_RETURN(const Slice slice, SliceOfChips(chip, chips / slices));
  return slices == 1 ? slice.name : absl::StrCat(slices, "x", slice.name);
}

}  // namespace

int Slice::chips() const {
  int chips = 1;
  for (const int size : grid) chips *= size;
  return chips;
}

int Slice::slices() const { return std::ssize(grid) > chip.ici_dimensions ? grid.back() : 1; }

collectives::Network Slice::Network() const {
  std::vector<collectives::TorusDimension> dimensions;
  for (int d = 0; d < std::ssize(grid) && !IsDcn(d); ++d) {
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
  const int chips = network.ranks();
  if (std::min(a, b) >= 0 && a / chips == b / chips && a < slice->chips()) {
    a %= chips;
    b %= chips;
  }
  XLAD_RETURN_IF_ERROR(network.BreakLink(a, b));
  slice->broken_links.emplace_back(a, b);
  return absl::OkStatus();
}

absl::StatusOr<Slice> SliceOfChips(const machine::Chip& chip, int64_t chips) {
  if (chips < 1 || chips > kMaxChips) {
    return absl::InvalidArgumentError(absl::StrCat("found a slice of ", chips, " chips, expected 1 to ", kMaxChips));
  }
  Slice slice{"", chip, MostEvenSizes(chips, chip.ici_dimensions, 1)};
  slice.name = absl::StrCat(chip.name, "-", absl::StrJoin(slice.grid, "x"));
  return slice;
}

int64_t SlicesFor(const machine::Chip& chip, int64_t chips) {
  const int64_t most = chip.ici_max_chips;
  return most == 0 ? 1 : CeilDiv(chips, most);
}

absl::StatusOr<Slice> ParseSlice(absl::string_view topology, const std::optional<machine::Chip>& chip) {
  Slice slice;
  slice.name = std::string(topology);
  const size_t dash = topology.rfind('-');
  const absl::string_view sizes = dash == absl::string_view::npos ? topology : topology.substr(dash + 1);
  absl::string_view name = dash == absl::string_view::npos ? "" : topology.substr(0, dash);
  const int slices = TakeSlices(&name);
  int64_t chips = std::clamp<int64_t>(slices, 0, kMaxChips);
  for (const absl::string_view size : absl::StrSplit(sizes, 'x')) {
    const bool is_number = std::all_of(size.begin(), size.end(), absl::ascii_isdigit) &&
                           absl::SimpleAtoi(size, &slice.grid.emplace_back()) && slice.grid.back() >= 1;
    chips = is_number ? std::min<int64_t>(chips * slice.grid.back(), kMaxChips + 1) : kMaxChips + 1;
    if (slices < 1 || chips > kMaxChips) {
      return absl::InvalidArgumentError(
          absl::StrCat("found topology \"", topology,
                       "\", expected a chip and the sizes of a slice, such as "
                       "v5p-16x20x28, or several slices, such as 2xv5e-16x16, of at most ",
                       kMaxChips, " chips"));
    }
  }
  if (chip.has_value()) {
    slice.chip = *chip;
  } else if (name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("found topology \"", topology,
                                                   "\" without a chip, expected one before the sizes, as in ",
                                                   "v5e-16x16, or a chip file of your own as --chip"));
  } else {
    XLAD_ASSIGN_OR_RETURN(slice.chip, machine::BuiltInChip(name));
  }
  if (std::ssize(slice.grid) != slice.chip.ici_dimensions) {
    XLAD_ASSIGN_OR_RETURN(const std::string alike, BuiltTopology(slice.chip, chips, slices));
    return absl::InvalidArgumentError(absl::StrCat(
        "found topology \"", topology, "\" of ", Counted(slice.grid.size(), "dimension"), ", expected the ",
        Counted(slice.chip.ici_dimensions, "dimension"), " of chip ", slice.chip.name, ", such as ", alike));
  }
  if (slices == 1) return slice;
  if (slice.chip.dcn_bytes_per_s == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found topology \"", topology, "\" of ", slices, " slices, expected one slice, because the file of chip ",
        slice.chip.name, " has no table [dcn]; pass a chip file with this table as --chip"));
  }
  slice.grid.push_back(slices);
  return slice;
}

}  // namespace xlad::simulate
