// Text reports about a compilation, which `xlad compile --emit ...` prints.
#pragma once

#include <string>

#include "compiler/compile.h"

namespace xlad::compiler {

// One step per line. The steps of loops and branches are indented.
std::string StepsText(const Executable& executable);
// The allocations, the buffers of the entry's parameters and results, and sums of bytes.
std::string BuffersText(const Executable& executable);
// The times of the passes, one pass per line, and their sum.
std::string TimesText(const std::vector<PassTime>& times);

}  // namespace xlad::compiler
