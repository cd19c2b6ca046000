// The parameters of the entry computation that results may overwrite.
#pragma once

#include <vector>

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

struct Donation {
  std::vector<bool> parameter_is_donated;  // For each parameter leaf, whether the caller donates its memory.
  // For each result leaf, the donated parameter leaf whose memory it uses, or -1.
  std::vector<int64_t> result_to_parameter;
};

// Reads the module's input_output_alias and buffer_donor. If the shapes of a may-alias differ, the parameter is
// donated, but the result does not use its memory. InvalidArgument if an entry names an array that does not exist, if
// an array is aliased twice, or if a must-alias pairs different shapes.
absl::StatusOr<Donation> DonationOf(const Module& module);

}  // namespace xlad::compiler
