// Which parameters of the entry computation may be overwritten by results.
#pragma once

#include <vector>

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

struct Donation {
  std::vector<bool> parameter_is_donated;    // For each parameter leaf: the caller gives up its memory.
  std::vector<int64_t> result_to_parameter;  // For each result leaf: the donated parameter leaf whose memory it takes,
                                             // or -1.
};

// Reads the module's input_output_alias and buffer_donor. A may-alias of different shapes is a donation only.
// InvalidArgument if an entry names an array that does not exist, if an array is aliased twice, or if a must-alias
// pairs different shapes.
absl::StatusOr<Donation> DonationOf(const Module& module);

}  // namespace xlad::compiler
