// Reads a program in any format that xlad supports: HLO text, HloModuleProto or HloProto. The content determines the
// format.
#pragma once

#include <memory>
#include "absl/strings/string_view.h"

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Reads and verifies a module. Errors are InvalidArgument: those of the parser and the verifier, or, for StableHLO and
// compressed files, how to obtain HLO instead.
absl::StatusOr<std::unique_ptr<Module>> ReadModule(absl::string_view bytes);

}  // namespace xlad::hlo
