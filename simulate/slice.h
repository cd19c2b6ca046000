// Slices: a number of chips of one kind, connected as a torus or mesh.
#pragma once

#include <optional>
#include <string>
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

  int chips() const;
  bool Wraps(int dimension) const { return chip.Wraps(grid[dimension]); }
  // All links between the chips.
  collectives::Network Network() const;
};

// "v5p-16x20x28" is a slice of a chip of deploy/chips. If `chip` is set, it replaces that chip, and the text may be the
// sizes alone: "16x16". InvalidArgument if the text has another form, or if the number of dimensions is not the chip's;
// NotFound for an unknown chip.
absl::StatusOr<Slice> ParseSlice(absl::string_view topology, const std::optional<machine::Chip>& chip);

// The letter of a dimension: x, y or z.
inline char LetterOf(int dimension) { return static_cast<char>('x' + dimension); }

}  // namespace xlad::simulate
