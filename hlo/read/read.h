// A program in any form that xlad reads, told apart by content: HLO text, HloModuleProto, HloProto.
#pragma once

#include <memory>
#include "absl/strings/string_view.h"

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Reads and verifies. A StableHLO artifact is recognised and refused with a clear word.
absl::StatusOr<std::unique_ptr<Module>> ReadModule(absl::string_view bytes);

}  // namespace xlad::hlo
