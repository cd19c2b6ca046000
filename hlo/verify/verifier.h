// The verifier: structural rules, and shape rules of every opcode. Each rule has a label, for example
// "dot-contracting-sizes". Its messages end with the label in brackets; `docs/reference/hlo-rules.md` lists all labels.
#pragma once

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Returns OK, or InvalidArgument for the first violation: "12:3: %add.4: found ..., expected ... [label]". The line and
// column are missing if the module was read from a proto or made in code. The module must not change during the call.
absl::Status Verify(const Module& module);

// Puts the place of an instruction, "12:3: %add.4: ", in front of the message of an error. The line and column are
// missing under the same conditions. Returns an OK status unchanged.
absl::Status AtInstruction(const absl::Status& status, const Instruction& instruction);

}  // namespace xlad::hlo
