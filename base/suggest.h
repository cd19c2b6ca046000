// "Did you mean ...?": the nearest of some names.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad {

// The candidate with the fewest edits (Levenshtein) from `name`, where they are few enough for a typo; else empty.
std::string NearestName(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace xlad
