// Identifies the build of the running program.
#pragma once

#include <string>

namespace xlad {

// Returns the running program's GNU build id in hexadecimal. If the program has none, returns the size and modification
// time of its file, `program_path`.
std::string BuildId(const std::string& program_path);

}  // namespace xlad
