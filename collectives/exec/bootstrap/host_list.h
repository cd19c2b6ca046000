// Lists of hosts and of counts in Slurm's notation: "n[1-4,07],login" and "4(x2),3".
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad::collectives {

// Returns the hosts of a list, in order: "n[1-2,07]-ib,x" is n1-ib, n2-ib, n07-ib, x. Numbers have at least as many
// digits as the start of their range. InvalidArgument for malformed lists and for lists of more than 1,000,000 hosts.
absl::StatusOr<std::vector<std::string>> ExpandHostList(absl::string_view list);

// Returns the numbers of a list with repetitions: "4(x2),3" is 4, 4, 3. InvalidArgument for malformed lists and for
// lists of more than 1,000,000 numbers.
absl::StatusOr<std::vector<int>> ExpandCounts(absl::string_view list);

}  // namespace xlad::collectives
