// A program as a graph for people: Graphviz dot, or an HTML page that lists it.
#pragma once

#include <string>

#include "hlo/module.h"

namespace xlad::hlo {

// The entry computation, one node an instruction with its shape and sharding; called computations folded into a word.
std::string PrintDot(const Module& module);

// One self-contained page: every computation, folded, as a table of instructions with links to their operands.
std::string PrintHtml(const Module& module);

}  // namespace xlad::hlo
