#include "collectives/exec/joint_launch.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xlad::collectives {

absl::Status JointLaunch::CheckDistinct(const std::vector<Entry>& entries) {
  std::set<std::pair<const void*, int64_t>> seen;
  for (const Entry& entry : entries) {
    if (seen.emplace(entry.group, entry.number).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("found operation ", entry.number, " of a group twice in a joint launch, expected each operation ",
                     "once; prepare another operation, or run it again in another launch"));
  }
  return absl::OkStatus();
}

absl::Status JointLaunch::Run() {
  const std::vector<Entry> entries = std::exchange(entries_, {});
  XLAD_RETURN_IF_ERROR(CheckDistinct(entries));
  std::map<const void*, std::vector<size_t>> by_group;
  for (size_t i = 0; i < entries.size(); ++i) by_group[entries[i].group].push_back(i);
  std::vector<absl::Status> statuses(entries.size());
  const auto run = [&](std::vector<size_t> indices) {
    std::sort(indices.begin(), indices.end(),
              [&](size_t a, size_t b) { return entries[a].number < entries[b].number; });
    for (const size_t i : indices) statuses[i] = entries[i].run();
  };
  std::vector<std::thread> threads;
  for (auto at = by_group.begin(); at != by_group.end(); ++at) {
    if (at != by_group.begin()) threads.emplace_back(run, at->second);
  }
  if (!by_group.empty()) run(by_group.begin()->second);
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) XLAD_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace xlad::collectives
