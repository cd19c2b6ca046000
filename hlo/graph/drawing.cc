#include "hlo/graph/drawing.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "hlo/attribute_keys.h"
#include "hlo/text/print.h"

namespace xlad::hlo {
namespace {

enum Class { kSource, kPointwise, kProduct, kReduction, kControl, kDevices, kOther };
constexpr OpcodeClass kClasses[] = {
    {"parameter or constant", "#e8e8e8"}, {"elementwise", "#fff3bf"}, {"product", "#ffc9c9"},
    {"reduction", "#e5dbff"},             {"control", "#d0ebff"},     {"collective", "#b2f2bb"},
    {"data movement or other", "#ffffff"},
};

struct ClassRow {
  Opcode opcode;
  Class of;
};
// The classes of all other opcodes follow from their flags.
constexpr ClassRow kClassRows[] = {
    {Opcode::kParameter, kSource},       {Opcode::kConstant, kSource},         {Opcode::kIota, kSource},
    {Opcode::kDot, kProduct},            {Opcode::kConvolution, kProduct},     {Opcode::kRaggedDot, kProduct},
    {Opcode::kScaledDot, kProduct},      {Opcode::kFft, kProduct},             {Opcode::kCholesky, kProduct},
    {Opcode::kTriangularSolve, kProduct}, {Opcode::kReduce, kReduction},       {Opcode::kReduceWindow, kReduction},
    {Opcode::kScatter, kReduction},      {Opcode::kSelectAndScatter, kReduction}, {Opcode::kSort, kReduction},
    {Opcode::kScan, kReduction},         {Opcode::kTopk, kReduction},          {Opcode::kWhile, kControl},
    {Opcode::kConditional, kControl},    {Opcode::kCall, kControl},            {Opcode::kFusion, kControl},
    {Opcode::kMap, kControl},            {Opcode::kCustomCall, kControl},
};

}  // namespace

std::string EscapeXml(absl::string_view text) {
  std::string plain(text);
  for (char& c : plain) {
    if (!absl::ascii_isprint(c)) c = '?';
  }
  return absl::StrReplaceAll(plain, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Shortened(absl::string_view text, size_t limit) {
  return text.size() <= limit ? std::string(text) : absl::StrCat(text.substr(0, limit - 3), "...");
}

std::string ShardingText(const Instruction& instruction) {
  if (const std::string* text = FindAttribute(instruction, kShardingKey)) return *text;
  std::string text;
  if (instruction.sharding() != nullptr) AppendSharding(*instruction.sharding(), &text);
  return text;
}

const OpcodeClass& ClassOf(const Instruction& instruction) {
  const Opcode opcode = instruction.opcode();
  const auto* const row =
      std::find_if(std::begin(kClassRows), std::end(kClassRows), [&](const ClassRow& r) { return r.opcode == opcode; });
  if (row != std::end(kClassRows)) return kClasses[row->of];
  if (IsCollective(opcode)) return kClasses[kDevices];
  return kClasses[IsElementwise(opcode) ? kPointwise : kOther];
}

absl::Span<const OpcodeClass> OpcodeClasses() { return kClasses; }

std::vector<const Instruction*> InstructionsToDraw(const Computation& computation, size_t limit) {
  const auto& instructions = computation.instructions();
  std::vector<const Instruction*> drawn;
  if (instructions.size() <= limit) {
    for (const auto& instruction : instructions) drawn.push_back(instruction.get());
    return drawn;
  }
  // Walks breadth-first from the root to operands.
  absl::flat_hash_set<const Instruction*> near;
  std::vector<const Instruction*> queue = {computation.root()};
  for (size_t i = 0; i < queue.size() && near.size() < limit; ++i) {
    if (!near.insert(queue[i]).second) continue;
    queue.insert(queue.end(), queue[i]->operands().begin(), queue[i]->operands().end());
  }
  for (const auto& instruction : instructions) {
    if (near.contains(instruction.get())) drawn.push_back(instruction.get());
  }
  return drawn;
}

}  // namespace xlad::hlo
