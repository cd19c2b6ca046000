// Facts about one instruction that several passes and error messages need.
#pragma once

#include <string>

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// Whether the instruction must run even if its result is unused.
bool HasSideEffect(const Instruction& instruction);

// For error messages: "%name (opcode) from file:line". The source is left out if it is unknown.
std::string Describe(const Instruction& instruction);

}  // namespace xlad::compiler
