// Which parameters of the entry computation may be overwritten by results.
#pragma once

#include <vector>

#include "compiler/analysis/hlo_util.h"

namespace xlad::compiler {

struct Donation {
  std::vector<bool> parameter_is_donated;    // By parameter leaf.
  std::vector<int64_t> result_to_parameter;  // By result leaf: the donated parameter leaf whose buffer it takes; -1.
};

// From the module's input_output_alias and buffer_donor. InvalidArgument where an alias names what is not there or
// pairs different sizes.
absl::StatusOr<Donation> DonationOf(const Module& module);

}  // namespace xlad::compiler
