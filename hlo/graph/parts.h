// What the graphs for people share: what an instruction says in its box, and its colour.
#pragma once

#include <string>
#include <vector>

#include "hlo/module.h"

namespace xlad::hlo {

// The letters that XML, HTML and Graphviz's labels read otherwise.
std::string EscapeXml(absl::string_view text);

// Beyond so many letters, the rest as "...".
std::string Shortened(absl::string_view text, size_t most);

// What annotates the instruction's sharding, empty where nothing does.
std::string ShardingText(const Instruction& instruction);

struct OpcodeClass {
  absl::string_view name, colour;  // "#rrggbb", light enough for black letters.
};
const OpcodeClass& ClassOf(const Instruction& instruction);
absl::Span<const OpcodeClass> OpcodeClasses();

// How many instructions a picture shows: of one computation, and of the whole module.
inline constexpr size_t kMostDrawnOfOne = 400;
inline constexpr size_t kMostDrawn = 4000;
inline constexpr size_t kMostShapeLetters = 60, kMostShardingLetters = 80;

// Which instructions of a computation are drawn: all where there are no more than `most`, else those nearest before
// the root, in their order.
std::vector<const Instruction*> Drawn(const Computation& computation, size_t most);

}  // namespace xlad::hlo
