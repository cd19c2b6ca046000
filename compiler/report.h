// What the compiler did, for people: `xlad compile --emit ...` prints these.
#pragma once

#include <string>

#include "compiler/compile.h"

namespace xlad::compiler {

std::string StepsText(const Executable& executable);
// Allocations, the entry's buffers, and how far the arena is from the most that is live at once.
std::string BuffersText(const Executable& executable);
// A pass a line, and the sum.
std::string TimesText(const std::vector<PassTime>& times);

}  // namespace xlad::compiler
