#include "collectives/exec/joint_launch.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

namespace xlad::collectives {

absl::Status JointLaunch::Run() {
  const std::vector<Entry> entries = std::exchange(entries_, {});
  std::map<const void*, std::vector<size_t>> by_group;
  for (size_t i = 0; i < entries.size(); ++i) by_group[entries[i].group].push_back(i);
  std::vector<absl::Status> statuses(entries.size());
  const auto run = [&](std::vector<size_t> indices) {
    std::stable_sort(indices.begin(), indices.end(),
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
