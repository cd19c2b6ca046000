// Structural and shape rules of every opcode. Each rule has a label (for example "dot-contracting-sizes") that its
// message ends with, in brackets; tests and docs use the same label.
#pragma once

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// OK, or the first violation: "12:3: %add.4: found ..., expected ... [label]". Protos have no line:column.
absl::Status Verify(const Module& module);

}  // namespace xlad::hlo
