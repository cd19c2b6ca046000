// HLO as a serialised HloModuleProto, wire-compatible with XLA's.
#pragma once

#include <memory>
#include <string>
#include "absl/strings/string_view.h"

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Errors name the computation and instruction. The result has passed no verifier.
absl::StatusOr<std::unique_ptr<Module>> ParseProto(absl::string_view bytes);
absl::StatusOr<std::string> SerializeProto(const Module& module);

}  // namespace xlad::hlo
