// Which opcodes run on a CPU, and why the others do not.
#pragma once

#include "absl/strings/string_view.h"
#include "hlo/opcode.h"

namespace xlad::compiler {

// Whether an opcode runs as a kernel, a library op, a collective or control flow, is removed by a pass, or only names a
// buffer. A single instruction may still be refused because of its types: see CanEmit in
// compiler/kernel/object_emitter.h.
bool HasCpuLowering(hlo::Opcode opcode);

// For an opcode without a lowering, the reason and what the user can do, for an error message. Empty for all other
// opcodes.
absl::string_view WhyNoCpuLowering(hlo::Opcode opcode);

}  // namespace xlad::compiler
