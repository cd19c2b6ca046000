// Which opcodes run on a CPU, and why the others do not.
#pragma once

#include "absl/strings/string_view.h"
#include "hlo/opcode.h"

namespace xlad::compiler {

// As a kernel, a library op, a collective or control flow, or because a pass makes something else of it. Single
// instructions may still be refused for their types: CanEmit of compiler/kernel/emit.h says so.
bool HasCpuLowering(hlo::Opcode opcode);

// For opcodes without one: the reason and what to do, for an error; else empty.
absl::string_view WhyNoCpuLowering(hlo::Opcode opcode);

}  // namespace xlad::compiler
