// Which build of the program runs.
#pragma once

#include <string>

namespace xlad {

// The build id of the running program, or the size and time of its file if it has no build id.
std::string BuildId(const std::string& program_path);

}  // namespace xlad
