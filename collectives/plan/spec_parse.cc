// Parses the text of specs.
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {
namespace {

absl::Status Malformed(absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("spec of a collective: found \"", found, "\", expected ", expected));
}

absl::Status ParseNumbers(absl::string_view text, std::vector<int64_t>* out) {
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtoi(word, &out->emplace_back())) return Malformed(text, "numbers such as \"3,4\"");
  }
  return absl::OkStatus();
}

// Parses "all_reduce(sum)", for example.
absl::Status ParseKind(absl::string_view word, CollectiveSpec* spec) {
  const std::vector<absl::string_view> parts = absl::StrSplit(word, absl::MaxSplits('(', 1));
  XLAD_ASSIGN_OR_RETURN(spec->kind, ParseCollectiveKind(parts[0]));
  if (parts.size() == 1) return absl::OkStatus();
  absl::string_view name = parts[1];
  if (!absl::ConsumeSuffix(&name, ")")) return Malformed(word, "\"KIND(REDUCTION)\"");
  XLAD_ASSIGN_OR_RETURN(spec->reduction, ParseReduction(name));
  return absl::OkStatus();
}

// Parses "f32[10,20]", for example.
absl::Status ParseOperands(absl::string_view word, CollectiveSpec* spec) {
  absl::string_view text = word;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('[', 1));
  absl::string_view counts = parts.size() == 2 ? parts[1] : "";
  const std::optional<tensor::ElementType> type = tensor::ParseElementType(parts[0]);
  if (!type.has_value() || !absl::ConsumeSuffix(&counts, "]")) return Malformed(word, "operands such as \"f32[10]\"");
  spec->type = *type;
  return ParseNumbers(counts, &spec->counts);
}

// Parses "{0->1,1->2}", for example.
absl::Status ParsePairs(absl::string_view word, CollectiveSpec* spec) {
  absl::string_view text = word;
  if (!absl::ConsumePrefix(&text, "{") || !absl::ConsumeSuffix(&text, "}")) return Malformed(word, "\"{0->1}\"");
  for (const absl::string_view pair : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(pair, "->");
    RankPair& out = spec->pairs.emplace_back();
    if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &out.source) || !absl::SimpleAtoi(ends[1], &out.target)) {
      return Malformed(pair, "a pair such as \"0->1\"");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CollectiveSpec> ParseSpec(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  CollectiveSpec spec;
  if (words.size() < 5 || words[2] != "over" || words[4] != "ranks" || !absl::SimpleAtoi(words[3], &spec.ranks)) {
    return Malformed(text, "text such as \"all_reduce(sum) f32[10] over 4 ranks\"");
  }
  XLAD_RETURN_IF_ERROR(ParseKind(words[0], &spec));
  XLAD_RETURN_IF_ERROR(ParseOperands(words[1], &spec));
  for (size_t i = 5; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "canonical") {
      spec.mode = ReductionMode::kCanonical;
    } else if (words[i] == "root" && has_value) {
      if (!absl::SimpleAtoi(words[++i], &spec.root)) return Malformed(words[i], "the rank of the root");
    } else if (words[i] == "sizes" && has_value) {
      XLAD_RETURN_IF_ERROR(ParseNumbers(words[++i], &spec.sizes));
    } else {
      XLAD_RETURN_IF_ERROR(ParsePairs(words[i], &spec));
    }
  }
  XLAD_RETURN_IF_ERROR(ValidateSpec(spec));
  return spec;
}

}  // namespace xlad::collectives
