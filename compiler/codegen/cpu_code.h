// EmitCode for CPUs.
#pragma once

#include "compiler/codegen/emit_code.h"

namespace xlad::compiler {

absl::StatusOr<EmittedCode> EmitCpuCode(const Target& target, const StepProgram& program, const EmitOptions& options);

}  // namespace xlad::compiler
