// How the ranks of a group agree on smaller groups. ProcessGroup::Split and MessageGroup::Split use this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status.h"
#include "collectives/exec/bootstrap/launcher.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {

// Which part of a split group a rank joins.
struct PartOfSplit {
  int color = 0;  // The ranks of one color form a group. A rank with a negative color takes no part.
  int key = 0;    // The order of the ranks in their group. Ranks with equal keys keep their order.
};

// Exchanges the colors and keys of all ranks of `group`. Returns the launch of this rank's part, or nullopt if it takes
// no part. `launch` is that of `group`, and `number` the number of its earlier splits, which is equal on all ranks.
template <typename Group>
absl::StatusOr<std::optional<Launch>> LaunchOfPart(Group* group, const Launch& launch, int64_t number,
                                                   const PartOfSplit& part) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllGather;
  spec.type = tensor::ElementType::kS64;
  spec.counts = {2};
  spec.ranks = group->ranks();
  const int64_t own[] = {part.color, part.key};
  std::vector<int64_t> all(2 * group->ranks());
  XLAD_ASSIGN_OR_RETURN(const auto operation, group->Prepare(spec));
  XLAD_RETURN_IF_ERROR(group->Run(*operation, own, all.data()));
  if (part.color < 0) return std::nullopt;
  std::vector<std::pair<int64_t, int>> members;  // The key and the rank of each.
  for (int rank = 0; rank < group->ranks(); ++rank) {
    if (all[2 * rank] == part.color) members.emplace_back(all[2 * rank + 1], rank);
  }
  std::sort(members.begin(), members.end());
  const auto self = std::find(members.begin(), members.end(), std::pair<int64_t, int>(part.key, group->rank()));
  Launch result;
  result.rank = static_cast<int>(self - members.begin());
  result.ranks = static_cast<int>(members.size());
  result.launcher = launch.launcher;
  result.key = absl::StrCat(launch.key, "-", absl::Hex(Hash64(absl::StrCat("split ", number, " ", part.color))));
  return result;
}

}  // namespace xlad::collectives
