// Reads and writes modules as serialized HloModuleProto, wire-compatible with XLA.
#pragma once

#include <memory>
#include <string>
#include "absl/strings/string_view.h"

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Reads an HloModuleProto, or the module inside an HloProto. Errors are InvalidArgument. They name the computation
// and the instruction if the error is in one. The result is not verified yet (hlo/verify/verifier.h).
absl::StatusOr<std::unique_ptr<Module>> ParseProto(absl::string_view bytes);

// Returns the module as a serialized HloModuleProto. The module must have an entry computation. Equal modules have
// equal bytes. Returns InvalidArgument if the proto would be larger than 2 GiB.
absl::StatusOr<std::string> SerializeProto(const Module& module);

}  // namespace xlad::hlo
