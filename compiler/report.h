// Text reports about a compilation, which `xlad compile --emit ...` prints.
#pragma once

#include <string>

#include "compiler/compile.h"

namespace xlad::compiler {

// One step per line. The steps of loops and branches are indented.
std::string StepsText(const Executable& executable);
// The allocations, the buffers of the entry's parameters and results, and sums of bytes.
std::string BuffersText(const Executable& executable);
// What the memory limit has changed: the bytes with and without it, and the number and cost of repeated steps. Empty if
// the program is the same as without a limit.
std::string RematerializationText(const Executable& executable);

}  // namespace xlad::compiler
