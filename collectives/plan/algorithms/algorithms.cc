// The table of algorithms.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {

absl::Span<const Algorithm> Algorithms() {
  static const Algorithm kTable[] = {
#define XLAD_ALGORITHM(function) function(),
#include "collectives/plan/algorithms/algorithms.def"
#undef XLAD_ALGORITHM
  };
  return kTable;
}

absl::StatusOr<const Algorithm*> FindAlgorithm(absl::string_view name) {
  for (const Algorithm& algorithm : Algorithms()) {
    if (algorithm.name == name) return &algorithm;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "found collective algorithm \"", name, "\", expected one of ", AlgorithmNames(/*on_mapped_memory=*/false),
      "; or, for ranks that map each other's memory, one of ", AlgorithmNames(/*on_mapped_memory=*/true)));
}

std::string AlgorithmNames(bool on_mapped_memory, const CollectiveSpec* spec) {
  std::vector<absl::string_view> names;
  for (const Algorithm& algorithm : Algorithms()) {
    if (algorithm.needs_windows != on_mapped_memory) continue;
    if (spec == nullptr || Applies(algorithm, *spec)) names.push_back(algorithm.name);
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace xlad::collectives
