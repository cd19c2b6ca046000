// Which opcodes run on a CPU, and why the others do not.
#pragma once

#include "absl/strings/string_view.h"
#include "hlo/opcode.h"

namespace xlad::compiler {

// Whether an opcode runs as a kernel, a library op, a collective or control flow, or is removed by a pass. A single
// instruction may still be refused because of its types: see CanEmit in compiler/kernel/object_emitter.h.
bool HasCpuLowering(hlo::Opcode opcode);

// For an opcode without a lowering: the reason and what to do instead, for an error message. Empty for all others.
absl::string_view WhyNoCpuLowering(hlo::Opcode opcode);

}  // namespace xlad::compiler
