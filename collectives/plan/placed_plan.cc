#include "collectives/plan/placed_plan.h"

#include <algorithm>

namespace xlad::collectives {
namespace {

// Below this size, the additional rounds take longer than sending fewer bytes saves.
constexpr int64_t kLeastBytes = 64 << 10;
// The size of a message between hosts, unless there would be more than kMaxHostChunks chunks. While one chunk is sent
// to the next host, the results of earlier chunks are sent back.
constexpr int64_t kMessageBytes = 32 << 10;
constexpr int kMaxHostChunks = 8;
// Each host adds two rounds.
constexpr int kMaxHosts = 16;

// Returns the number of ranks of each host, or 0 if hosts have different numbers of ranks or ranks that are not
// consecutive.
int RanksOfEach(const std::vector<int>& hosts) {
  const int local =
      std::find_if(hosts.begin(), hosts.end(), [&](int host) { return host != hosts[0]; }) - hosts.begin();
  if (std::ssize(hosts) % local != 0) return 0;
  std::vector<int> firsts;
  for (int rank = 0; rank < std::ssize(hosts); ++rank) {
    if (hosts[rank] != hosts[rank / local * local]) return 0;
    if (rank % local == 0) firsts.push_back(hosts[rank]);
  }
  std::sort(firsts.begin(), firsts.end());
  return std::adjacent_find(firsts.begin(), firsts.end()) == firsts.end() ? local : 0;
}

bool IsAccumulatedInItself(const CollectiveSpec& spec) {
  return spec.reduction != Reduction::kAverage &&
         (!tensor::IsFloating(spec.type) ||
          tensor::ByteWidth(spec.type) >= tensor::ByteWidth(tensor::ElementType::kF32));
}

}  // namespace

std::optional<CollectivePlan> PlanOverHosts(const CollectivePlan& plan, const CollectiveSpec& spec,
                                            const std::vector<int>& hosts) {
  const int64_t bytes = spec.input_elements() * tensor::ByteWidth(spec.type);
  if (spec.kind != CollectiveKind::kAllReduce || spec.mode != ReductionMode::kRunToRun || bytes < kLeastBytes ||
      !plan.engine.empty() || !plan.order.empty() || !IsAccumulatedInItself(spec) ||
      ReductionOrder(plan) != ReductionOrder({.algorithm = "direct"})) {
    return std::nullopt;
  }
  const int local = RanksOfEach(hosts);
  if (local < 2) return std::nullopt;
  const int num_hosts = spec.ranks / local;
  if (num_hosts < 2 || num_hosts > kMaxHosts) return std::nullopt;
  const int chunks = std::clamp<int64_t>(bytes / local / kMessageBytes, 1, kMaxHostChunks);
  return CollectivePlan{.algorithm = "host_chain", .chunks = chunks, .grid = {local, num_hosts}};
}

PlacementRules RulesOverHosts() { return {"host_chain 1", PlanOverHosts}; }

}  // namespace xlad::collectives
