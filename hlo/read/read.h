// Reads a program in any format that xlad supports: HLO text, HloModuleProto or HloProto. The content determines the
// format.
#pragma once

#include <memory>
#include "absl/strings/string_view.h"

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Reads and verifies a module. InvalidArgument if the parser or the verifier finds an error. Also InvalidArgument for
// StableHLO and compressed files, with a message that says how to obtain HLO.
absl::StatusOr<std::unique_ptr<Module>> ReadModule(absl::string_view bytes);

}  // namespace xlad::hlo
