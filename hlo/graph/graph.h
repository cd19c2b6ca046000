// A program as a graph for people: Graphviz dot, or an HTML page. Boxes are instructions with opcode, name, shape and
// sharding, coloured by the kind of opcode. Large programs are drawn in part, and the picture says so.
#pragma once

#include <string>

#include "hlo/module.h"

namespace xlad::hlo {

// Each computation as a cluster inside the cluster of its first caller; edges have the shapes that they carry.
std::string PrintDot(const Module& module);

// One self-contained page, well-formed XML: each computation folds, the entry is open, and calls are links.
std::string PrintHtml(const Module& module);

}  // namespace xlad::hlo
