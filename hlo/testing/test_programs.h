// Programs for the tests of text and protos: instructions with every opcode and every attribute, every form of sharding
// and replica groups, literals of every type.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad::hlo {

// Single instructions, whose operands become parameters.
std::vector<absl::string_view> InstructionSnippets();
// Values of sharding=.
std::vector<absl::string_view> ShardingSnippets();
// Values of replica_groups= for at most 8 devices.
std::vector<absl::string_view> ReplicaGroupSnippets();
// "TYPE[...] constant(...)", as the printer writes it.
std::vector<absl::string_view> LiteralSnippets();
// Complete modules: header attributes, tables, several computations.
std::vector<absl::string_view> ModuleSnippets();

}  // namespace xlad::hlo
