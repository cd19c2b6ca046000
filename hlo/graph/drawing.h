// The common parts of both drawings (graph.h): the text and the color of an instruction's box, and the limits on the
// number of boxes.
#pragma once

#include <string>
#include <vector>

#include "hlo/module.h"

namespace xlad::hlo {

// Escapes the characters that have a meaning in XML, HTML or quoted labels of Graphviz, and replaces all characters
// that are not printable ASCII by '?'.
std::string EscapeXml(absl::string_view text);

// Returns at most `limit` characters of `text`, ending in "..." if it is longer.
std::string Shortened(absl::string_view text, size_t limit);

// The sharding annotation of an instruction, or "" if it has none.
std::string ShardingText(const Instruction& instruction);

struct OpcodeClass {
  absl::string_view name, color;  // The color of the box, "#rrggbb", which is light enough for black text.
};
const OpcodeClass& ClassOf(const Instruction& instruction);
absl::Span<const OpcodeClass> OpcodeClasses();

// The maximum numbers of instructions that are drawn, of one computation and of the whole module.
inline constexpr size_t kMaxDrawnPerComputation = 400;
inline constexpr size_t kMaxDrawn = 4000;
inline constexpr size_t kMaxShapeLength = 60, kMaxShardingLength = 80;  // In characters.

// The instructions of a computation to draw, in program order: all if there are at most `limit`, otherwise those
// nearest to the root.
std::vector<const Instruction*> InstructionsToDraw(const Computation& computation, size_t limit);

}  // namespace xlad::hlo
