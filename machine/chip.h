// Chips: the rates and sizes of an accelerator, as stated in its chip file.
//
// A chip file is TOML; quantities are strings with a number and a unit ("819 GB/s"), so that every unit is explicit.
// deploy/chips has the files of the public TPU generations with their sources; docs/reference/simulate.md lists the
// keys. All functions are pure and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad::machine {

struct Chip {
  std::string name;

  // Computation. All cores of a chip work on one program as one device.
  int cores = 1;
  int mxus_per_core = 1;  // Systolic arrays.
  int mxu_size = 128;     // A systolic array has mxu_size x mxu_size multipliers.
  double clock_hz = 0;    // The clock of the vector unit.
  // The peak rates of the whole chip in operations per second. A multiply-add counts as two operations. A rate of 0 for
  // int8 or fp8 means that the type runs at the rate of bf16.
  double bf16_flops = 0;
  double int8_flops = 0;
  double fp8_flops = 0;
  int vector_alus = 1;  // Operations that each of the 8 x 128 lanes of a core executes per cycle.

  // Memory.
  double hbm_bytes = 0;  // The memory of the whole chip.
  double hbm_bytes_per_s = 0;
  double vmem_bytes = 0;  // The on-chip memory of one core.

  // Links to other chips of the slice, which is a torus or a mesh.
  int ici_dimensions = 2;
  int ici_max_chips = 0;       // The number of chips of the largest slice that is built, or 0 without a figure.
  double ici_bytes_per_s = 0;  // The rate of one link in one direction.
  double ici_hop_s = 0;        // The time for the first byte from a chip to its neighbor.
  double ici_launch_s = 0;     // The time to start a collective.
  // A dimension is a ring if its size is ici_wraps_at, or, if ici_wraps_at_multiples is true, a multiple of it.
  int ici_wraps_at = 1;
  bool ici_wraps_at_multiples = false;

  // The network between slices (DCN). The rate is that of one chip while all chips of its host send, or 0 if the file
  // has no figure.
  double dcn_bytes_per_s = 0;
  double dcn_latency_s = 0;  // The time for the first byte from a chip to a chip of another slice; 0 without a figure.

  int64_t mxus() const { return int64_t{cores} * mxus_per_core; }
  double vmem() const { return vmem_bytes * cores; }
  // The peak rate of the vector units of all cores, in operations per second.
  double vector_ops() const { return 8.0 * 128 * vector_alus * cores * clock_hz; }
  bool Wraps(int size) const { return ici_wraps_at_multiples ? size % ici_wraps_at == 0 : size == ici_wraps_at; }
};

// Parses the text of a chip file. `path` names the file in errors. InvalidArgument if the text is not TOML, if a key is
// unknown, missing or given twice, or if a value has the wrong unit or is out of range. The error says what was found
// and what was expected, with the line. The line of a missing key is that of its table.
absl::StatusOr<Chip> ParseChip(absl::string_view text, absl::string_view path);

// Returns the chip with this name in deploy/chips. NotFound, with a list of all names, if the name is unknown.
absl::StatusOr<Chip> BuiltInChip(absl::string_view name);
std::vector<std::string> BuiltInChipNames();

}  // namespace xlad::machine
