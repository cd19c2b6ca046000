// Reads and prints HLO text.
#pragma once

#include <memory>
#include <string>
#include "absl/strings/string_view.h"

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Parses a module, or a single computation or instruction without a header:
//   ParseText("f32[2] add(f32[2] x, f32[2] y)")
// returns a module whose entry has two parameters and an add. Errors are InvalidArgument "LINE:COLUMN: found ...,
// expected ...". The result is not verified yet (hlo/verify/verifier.h).
absl::StatusOr<std::unique_ptr<Module>> ParseText(absl::string_view text);

// Equal modules print the same bytes, and the text parses to an equal module.
std::string PrintText(const Module& module);

}  // namespace xlad::hlo
