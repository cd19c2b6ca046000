// The descriptions of an instruction in messages and reports.
#pragma once

#include <string>

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// Returns "%name (opcode) from file:line". The source line is omitted if it is unknown.
std::string Describe(const Instruction& instruction);

// The source line of an instruction (Module::SourceOf). For a fusion without a source line, the line of its last
// instruction that has one: passes make instructions without source lines, and the root of a fusion may be one of
// these.
std::string NearestSource(const Instruction& instruction);

}  // namespace xlad::compiler
