#include "simulate/pipelining.h"

#include <algorithm>
#include <vector>

namespace xlad::simulate {
namespace {

using hlo::Instruction;
using hlo::Opcode;

constexpr int64_t kMaxCarried = 256;

// The length of the longest path from element `from` of the parameter to each element of the root, in microseconds, or
// -1 if there is no path.
std::vector<double> PathsFrom(int64_t from, const hlo::Computation& body, const InstructionTimes& us) {
  const Instruction* const carried = body.parameters()[0];
  // A path to an instruction that uses the complete tuple begins at the tuple.
  absl::flat_hash_map<const Instruction*, double> paths = {{carried, 0}};
  for (const auto& instruction : body.instructions()) {
    double longest = -1;
    const bool is_element = instruction->opcode() == Opcode::kGetTupleElement;
    if (is_element && instruction->operand(0) == carried) {
      if (instruction->number() == from) paths[instruction.get()] = 0;
      continue;
    }
    for (const Instruction* operand : instruction->operands()) {
      const auto path = paths.find(operand);
      if (path != paths.end()) longest = std::max(longest, path->second);
    }
    if (longest < 0 || instruction.get() == carried) continue;
    const auto time = us.find(instruction.get());
    paths[instruction.get()] = longest + (time == us.end() ? 0 : time->second);
  }
  std::vector<double> to;
  for (const Instruction* result : body.root()->operands()) {
    const auto path = paths.find(result);
    to.push_back(path == paths.end() ? -1 : path->second);
  }
  return to;
}

}  // namespace

bool IsPipelined(const hlo::Computation& body) {
  const Instruction& root = *body.root();
  if (root.opcode() != Opcode::kTuple || root.operand_count() > kMaxCarried || body.parameters().size() != 1) {
    return false;
  }
  return std::none_of(body.instructions().begin(), body.instructions().end(), [](const auto& instruction) {
    return hlo::IsCollective(instruction->opcode()) || instruction->opcode() == Opcode::kWhile ||
           instruction->opcode() == Opcode::kConditional;
  });
}

double RecurrenceUs(const hlo::Computation& body, const InstructionTimes& us) {
  const int64_t count = body.root()->operand_count();
  std::vector<std::vector<double>> paths;
  for (int64_t from = 0; from < count; ++from) paths.push_back(PathsFrom(from, body, us));
  // Whether a carried value affects another one after any number of iterations.
  std::vector<std::vector<bool>> reaches(count, std::vector<bool>(count));
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < count; ++j) reaches[i][j] = paths[i][j] >= 0;
  }
  for (int64_t via = 0; via < count; ++via) {
    for (int64_t i = 0; i < count; ++i) {
      if (!reaches[i][via]) continue;
      for (int64_t j = 0; j < count; ++j) reaches[i][j] = reaches[i][j] || reaches[via][j];
    }
  }
  double longest = 0;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < count; ++j) {
      if (reaches[j][i]) longest = std::max(longest, paths[i][j]);
    }
  }
  return longest;
}

}  // namespace xlad::simulate
