// Suggests names for misspelled ones, for messages such as 'unknown command "partiton", did you mean "partition"?'
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad {

// Returns the candidate with the smallest Levenshtein distance from `name`, or "" if there is no plausible one. A
// candidate is plausible if its distance is at most 2 or at most a third of the length of `name`, and less than the
// length of the longer of the two names. There is no suggestion for a name of more than 200 bytes.
std::string NearestName(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace xlad
