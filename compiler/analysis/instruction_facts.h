// The description of an instruction in error messages.
#pragma once

#include <string>

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// Returns "%name (opcode) from file:line". The source line is omitted if it is unknown.
std::string Describe(const Instruction& instruction);

}  // namespace xlad::compiler
