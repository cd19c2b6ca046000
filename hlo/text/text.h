// HLO text in and out.
#pragma once

#include <memory>
#include <string>
#include "absl/strings/string_view.h"

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Reads a module (or a single computation or instruction without header). Errors are InvalidArgument and start with
// "LINE:COLUMN: ", then what was found and what was expected. The result has passed no verifier.
absl::StatusOr<std::unique_ptr<Module>> ParseText(absl::string_view text);

// Stable to the byte: the same module prints the same, and what is printed parses back to an equal module.
std::string PrintText(const Module& module);

}  // namespace xlad::hlo
