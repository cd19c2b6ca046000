// Identifies the build of the running program.
#pragma once

#include <string>

namespace xlad {

// Returns the build id of the running program. If it has none, returns the size and modification time of its file,
// `program_path`.
std::string BuildId(const std::string& program_path);

}  // namespace xlad
