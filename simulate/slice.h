// Slices: a slice is a number of chips of one kind, connected as a torus or mesh. Several equal slices can be connected
// by a data center network (DCN).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "collectives/plan/network.h"
#include "machine/chip.h"

namespace xlad::simulate {

inline constexpr int kMaxChips = 1 << 16;

struct Slice {
  std::string name;  // "v5p-16x20x28", "2xv5e-16x16"
  machine::Chip chip;
  // The sizes of the dimensions x, y, z. If there are several slices of these sizes, their number is the last element.
  std::vector<int> grid;
  // Broken links, as pairs of neighboring chips. Chip c has the coordinates c % X, c / X % Y, ... If there are several
  // slices, the links are those of the first slice, because a collective takes as long as its slowest group.
  std::vector<std::pair<int, int>> broken_links;
  // By dimension, without that of the slices: whether it has lost chips (broken_chips.h), and is therefore no ring.
  // Empty if none has.
  std::vector<bool> cut;

  int chips() const;   // The number of chips in all slices.
  int slices() const;  // The number of slices, at least 1.
  bool IsDcn(int dimension) const { return dimension == chip.ici_dimensions; }
  bool Wraps(int dimension) const {
    return !IsDcn(dimension) && chip.Wraps(grid[dimension]) && (cut.empty() || !cut[dimension]);
  }
  // The letter of a dimension: x, y, z, or s for the slices.
  char LetterOf(int dimension) const { return IsDcn(dimension) ? 's' : 'x' + dimension; }
  // The rate at which a chip sends along a dimension in one direction, in bytes per second.
  double RateOf(int dimension) const { return IsDcn(dimension) ? chip.dcn_bytes_per_s : chip.ici_bytes_per_s; }
  // The links between the chips of one slice, of which those in broken_links are broken.
  collectives::Network Network() const;
};

// The least number of slices that are built and that together have `chips` chips. 1 if the chip file does not say how
// large a slice can be.
int64_t SlicesFor(const machine::Chip& chip, int64_t chips);

// "v5p-16x20x28" is a slice of a chip in deploy/chips, and "2xv5e-16x16" names two slices. If `chip` is set, it
// replaces that chip, and the text may be the sizes alone: "16x16". InvalidArgument if the text has another form or
// names no chip, if the number of dimensions is not the chip's, if there are several slices and the chip file has no
// table [dcn], or if there are more than kMaxChips chips. NotFound for an unknown chip.
absl::StatusOr<Slice> ParseSlice(absl::string_view topology, const std::optional<machine::Chip>& chip);

// A slice of `chips` chips whose dimensions are about equal, the longest one last: 8 chips of v5e are v5e-2x4.
// InvalidArgument if `chips` is not between 1 and kMaxChips.
absl::StatusOr<Slice> SliceOfChips(const machine::Chip& chip, int64_t chips);

// Adds the link "A-B" between the chips A and B to the broken ones. A link of a later slice stands for the same link of
// the first slice. InvalidArgument if the text has another form, or if the chips are not neighbors.
absl::Status BreakLink(absl::string_view link, Slice* slice);

}  // namespace xlad::simulate
