// Suggests names for misspelled ones, for messages such as 'unknown command "partiton", did you mean "partition"?'
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad {

// Returns the candidate with the smallest Levenshtein distance from `name`, or "" if there is no plausible one. A
// distance is implausible if it is more than 2 and more than a third of the length of `name`, or as large as if all
// characters were different. Names of more than 200 bytes have no suggestion.
std::string NearestName(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace xlad
