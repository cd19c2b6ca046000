#include "hlo/attribute_keys.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace xlad::hlo {
namespace {

std::string TextOf(const Instruction& instruction, const char* key) {
  const std::string* text = FindAttribute(instruction, key);
  return text == nullptr ? "" : *text;
}

}  // namespace

const std::string* FindAttribute(const StringMap& attributes, const char* key) {
  const auto found = attributes.find(key);
  return found == attributes.end() ? nullptr : &found->second;
}

const std::string* FindAttribute(const Instruction& instruction, const char* key) {
  return FindAttribute(instruction.frontend_attributes(), key);
}

bool IsCustomCall(const Instruction& instruction, absl::string_view target) {
  return instruction.opcode() == Opcode::kCustomCall && instruction.attributes().custom_call_target == target;
}

bool IsManualBorder(const Instruction& instruction) {
  return IsCustomCall(instruction, kEnterManualCall) || IsCustomCall(instruction, kLeaveManualCall);
}

void EraseShardingAttributes(Instruction* instruction) {
  instruction->mutable_frontend_attributes().erase(kShardingKey);
  instruction->mutable_frontend_attributes().erase(kManualAxesKey);
}

void WriteOrigin(const CollectiveOrigin& origin, Instruction* collective) {
  StringMap& attributes = collective->mutable_frontend_attributes();
  if (!origin.axes.empty()) attributes[kAxesKey] = origin.axes;
  if (!origin.ops.empty()) attributes[kOpKey] = absl::StrJoin(origin.ops, ",");
  if (!origin.because.empty()) attributes[kBecauseKey] = absl::StrJoin(origin.because, "\n");
}

CollectiveOrigin ReadOrigin(const Instruction& collective) {
  return {TextOf(collective, kAxesKey), absl::StrSplit(TextOf(collective, kOpKey), ',', absl::SkipEmpty()),
          absl::StrSplit(TextOf(collective, kBecauseKey), '\n', absl::SkipEmpty())};
}

void NoteTripCount(Instruction* loop, std::optional<int64_t> count) {
  StringMap& attributes = loop->mutable_frontend_attributes();
  attributes.erase(kTripCountKey);
  if (count) attributes[kTripCountKey] = absl::StrCat(*count);
}

std::optional<int64_t> NotedTripCount(const Instruction& loop) {
  int64_t count = 0;
  return absl::SimpleAtoi(TextOf(loop, kTripCountKey), &count) ? std::optional(count) : std::nullopt;
}

void NoteUnreadInits(Instruction* loop, const std::vector<int64_t>& elements) {
  StringMap& attributes = loop->mutable_frontend_attributes();
  attributes.erase(kUnreadInitsKey);
  if (!elements.empty()) attributes[kUnreadInitsKey] = absl::StrJoin(elements, ",");
}

std::vector<int64_t> NotedUnreadInits(const Instruction& loop) {
  std::vector<int64_t> elements;
  for (const absl::string_view text : absl::StrSplit(TextOf(loop, kUnreadInitsKey), ',', absl::SkipEmpty())) {
    int64_t element = 0;
    if (absl::SimpleAtoi(text, &element)) elements.push_back(element);
  }
  return elements;
}

}  // namespace xlad::hlo
