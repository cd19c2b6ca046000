// Programs for the tests of text and protos: one instruction of every opcode and every attribute, every form of
// sharding and replica groups, literals of every type.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad::hlo {

// Lone instructions; their operands become parameters.
std::vector<absl::string_view> InstructionSnippets();
// What may stand behind sharding=.
std::vector<absl::string_view> ShardingSnippets();
// What may stand behind replica_groups=, over 8 devices.
std::vector<absl::string_view> ReplicaGroupSnippets();
// "TYPE[...] constant(...)" as the printer writes it.
std::vector<absl::string_view> LiteralSnippets();
// Whole modules: header attributes, tables, several computations.
std::vector<absl::string_view> ModuleSnippets();

}  // namespace xlad::hlo
