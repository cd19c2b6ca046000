// What error messages say about an instruction.
#pragma once

#include <string>

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// For error messages: "%name (opcode) from file:line". The source is left out if it is unknown.
std::string Describe(const Instruction& instruction);

}  // namespace xlad::compiler
