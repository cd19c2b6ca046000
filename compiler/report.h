// What the compiler produced, as text: `xlad compile --emit ...` prints it.
#pragma once

#include <string>

#include "compiler/compile.h"

namespace xlad::compiler {

// One step per line; the steps of loops and branches are indented.
std::string StepsText(const Executable& executable);
// The allocations, the buffers of the entry's parameters and results, and sums of bytes.
std::string BuffersText(const Executable& executable);
// One pass per line, then the sum.
std::string TimesText(const std::vector<PassTime>& times);

}  // namespace xlad::compiler
