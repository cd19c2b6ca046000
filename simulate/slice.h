// Slices: a number of chips of one kind, connected as a torus or mesh.
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
  std::string name;  // "v5p-16x20x28"
  machine::Chip chip;
  std::vector<int> grid;  // The sizes of the dimensions x, y, z.
  // Links that carry nothing, as pairs of neighboring chips. Chip c has the coordinates c % X, c / X % Y, ...
  std::vector<std::pair<int, int>> broken_links;

  int chips() const;
  bool Wraps(int dimension) const { return chip.Wraps(grid[dimension]); }
  // All links between the chips.
  collectives::Network Network() const;
};

// "v5p-16x20x28" is a slice of a chip of deploy/chips. If `chip` is set, it replaces that chip, and the text may be the
// sizes alone: "16x16". InvalidArgument if the text has another form, or if the number of dimensions is not the chip's;
// NotFound for an unknown chip.
absl::StatusOr<Slice> ParseSlice(absl::string_view topology, const std::optional<machine::Chip>& chip);

// A slice of `chips` chips whose dimensions are as equal as they can be, the longest last: 8 chips of v5e are v5e-2x4.
// InvalidArgument if `chips` is not between 1 and kMaxChips.
absl::StatusOr<Slice> SliceOfChips(const machine::Chip& chip, int64_t chips);

// Adds the link "A-B" between two chips to the broken ones. InvalidArgument if the chips are not neighbors.
absl::Status BreakLink(absl::string_view link, Slice* slice);

// The letter of a dimension: x, y or z.
inline char LetterOf(int dimension) { return static_cast<char>('x' + dimension); }

}  // namespace xlad::simulate
