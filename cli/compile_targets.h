// The targets of `xlad compile --target`.
#pragma once

#include <string>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::cli {

// The names of all targets, separated by commas, for help and messages.
std::string CompileTargetNames();

// Returns the description of a target for the compiler. Errors: InvalidArgument, with all names, for an unknown name,
// and those of reading a chip file.
absl::StatusOr<Target> FindCompileTarget(const std::string& name);

}  // namespace xlad::cli
