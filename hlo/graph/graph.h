// Draws a program as a graph, as Graphviz dot or as an HTML page. A box is an instruction with its opcode, name, shape
// and sharding; its color shows the kind of the opcode. A large program is drawn only in part, and the picture says so.
#pragma once

#include <string>

#include "hlo/module.h"

namespace xlad::hlo {

// Graphviz dot. Each computation is a cluster inside the cluster of its first caller. The label of an edge is
// the operand's shape.
std::string PrintDot(const Module& module);

// One self-contained HTML page, which is also well-formed XML. Each computation can be folded; at first only the entry
// is open. Calls are links.
std::string PrintHtml(const Module& module);

}  // namespace xlad::hlo
