// The targets of `xlad compile --target`.
#pragma once

#include <string>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::cli {

// The names, separated by commas, for help and messages.
std::string CompileTargetNames();

// What the compiler needs to know of a target. InvalidArgument, with the names, for another one.
absl::StatusOr<Target> FindCompileTarget(const std::string& name);

}  // namespace xlad::cli
