// Parses the text of plans.
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {
namespace {

absl::Status ParseList(absl::string_view text, char separator, std::vector<int>* out) {
  out->clear();
  for (const absl::string_view word : absl::StrSplit(text, separator)) {
    if (!absl::SimpleAtoi(word, &out->emplace_back()) || out->back() < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found \"", text, "\", expected numbers of 0 or more separated by \"", std::string(1, separator), "\""));
    }
  }
  return absl::OkStatus();
}

absl::Status ParseNumber(absl::string_view text, int* out) {
  if (absl::SimpleAtoi(text, out)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("found \"", text, "\", expected a number"));
}

absl::Status ParseParameter(absl::string_view name, absl::string_view value, CollectivePlan* plan) {
  if (name == "chunks") return ParseNumber(value, &plan->chunks);
  if (name == "channels") return ParseNumber(value, &plan->channels);
  if (name == "grid") return ParseList(value, 'x', &plan->grid);
  if (name == "radix") return ParseNumber(value, &plan->radix);
  if (name == "order") return ParseList(value, ',', &plan->order);
  if (name == "protocol") {
    if (value != "slots" && value != "windows" && value != "board") {
      return absl::InvalidArgumentError(
          absl::StrCat("found protocol \"", value, "\", expected slots, windows or board"));
    }
    plan->protocol = std::string(value);
    return absl::OkStatus();
  }
  if (name == "engine") {
    if (value != "nccl") return absl::InvalidArgumentError(absl::StrCat("found engine \"", value, "\", expected nccl"));
    plan->engine = std::string(value);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "found parameter \"", name, "\", expected chunks, channels, grid, radix, order, protocol or engine"));
}

}  // namespace

std::string CollectivePlan::AlgorithmText() const {
  const CollectivePlan defaults;
  std::string out = algorithm;
  if (!grid.empty()) absl::StrAppend(&out, " grid=", absl::StrJoin(grid, "x"));
  if (radix != defaults.radix) absl::StrAppend(&out, " radix=", radix);
  if (!order.empty()) absl::StrAppend(&out, " order=", absl::StrJoin(order, ","));
  if (!protocol.empty()) absl::StrAppend(&out, " protocol=", protocol);
  if (!engine.empty()) absl::StrAppend(&out, " engine=", engine);
  return out;
}

std::string CollectivePlan::ToString() const {
  const std::string text = AlgorithmText();
  return absl::StrCat(algorithm, " chunks=", chunks, " channels=", channels, text.substr(algorithm.size()));
}

absl::StatusOr<CollectivePlan> ParsePlan(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  if (words.empty()) {
    return absl::InvalidArgumentError("plan: found no text, expected text such as \"ring chunks=1 channels=1\"");
  }
  CollectivePlan plan;
  plan.algorithm = std::string(words[0]);
  for (size_t i = 1; i < words.size(); ++i) {
    const std::vector<absl::string_view> sides = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    const absl::Status status = sides.size() == 2
                                    ? ParseParameter(sides[0], sides[1], &plan)
                                    : absl::InvalidArgumentError("found a word without \"=\", expected \"NAME=VALUE\"");
    if (!status.ok()) return Annotate(status, absl::StrCat("plan \"", text, "\", parameter \"", words[i], "\""));
  }
  return plan;
}

}  // namespace xlad::collectives
