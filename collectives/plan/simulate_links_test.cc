// The simulator's links carry exactly the bytes of the schedules: on every kind of network, healthy or broken.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/simulate.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

struct NetworkCase {
  std::string name;
  Network network;
  std::vector<int> chips;  // The chip of each rank.
};

// Adds the healthy network, the network with one broken link and the network with one broken chip.
void AddCases(const std::string& name, const Network& healthy, std::pair<int, int> link, int chip,
              std::vector<NetworkCase>* cases) {
  std::vector<int> chips;
  for (int rank = 0; rank < healthy.ranks(); ++rank) chips.push_back(rank);
  cases->push_back({name, healthy, chips});
  NetworkCase without_link{absl::StrCat(name, " without the link ", link.first, "-", link.second), healthy, chips};
  ASSERT_EQ(without_link.network.BreakLink(link.first, link.second), absl::OkStatus());
  cases->push_back(without_link);
  NetworkCase without_chip{absl::StrCat(name, " without chip ", chip), healthy, chips};
  ASSERT_EQ(without_chip.network.BreakChip(chip), absl::OkStatus());
  std::erase(without_chip.chips, chip);
  cases->push_back(without_chip);
}

std::vector<NetworkCase> NetworkCases() {
  std::vector<NetworkCase> cases;
  AddCases("v5e-2x4", *Network::Preset("v5e-2x4"), {0, 1}, 5, &cases);
  AddCases("v4-2x2x4", *Network::Preset("v4-2x2x4"), {0, 4}, 6, &cases);
  AddCases("torus 5x3", Network::Torus({5, 3}, {true, true}, 1, 50), {4, 0}, 7, &cases);
  AddCases("torus 7", Network::Torus({7}, {true}, 1, 50), {0, 6}, 3, &cases);
  AddCases("mesh 3x3, one dimension wraps", Network::Torus({3, 3}, {false, true}, 1, 50), {3, 4}, 4, &cases);
  AddCases("torus 3x1x3", Network::Torus({3, 1, 3}, {true, true, true}, 1, 50), {0, 6}, 0, &cases);
  // The dimensions have different rates.
  AddCases("torus 4x2",
           Network::Torus({{.size = 4, .wraps = true, .gigabytes_per_s = 20}, {.size = 2, .gigabytes_per_s = 90}}),
           {1, 5}, 2, &cases);
  // A broken link would separate the chips of these networks.
  cases.push_back({"mesh 1x5", Network::Torus({1, 5}, {false, false}, 1, 50), {0, 1, 2, 3, 4}});
  cases.push_back({"switch-6", *Network::Preset("switch-6"), {0, 1, 2, 3, 4, 5}});
  return cases;
}

// The bytes of all messages that a chip sends, minus those that it receives, by node of the network's graph.
std::vector<double> BytesFromNodes(const CollectivePlan& plan, const CollectiveSpec& spec, const NetworkCase& where) {
  int nodes = 0;
  for (const NetworkLink& link : where.network.links()) nodes = std::max({nodes, link.from + 1, link.to + 1});
  std::vector<double> bytes(nodes);
  const std::vector<Schedule> schedules = *BuildSchedules(plan, spec);
  for (const Schedule& schedule : schedules) {
    for (const ScheduleOp& op : schedule.ops) {
      if (op.kind != OpKind::kSend || op.peer == schedule.rank) continue;
      const auto sent = static_cast<double>(op.src.count * tensor::ByteWidth(spec.type));
      bytes[where.chips[schedule.rank]] += sent;
      bytes[where.chips[op.peer]] -= sent;
    }
  }
  return bytes;
}

// All that leaves a node on its links, minus all that arrives there, is what its own messages carry. A chip or switch
// that only forwards a message sends as many bytes as it receives.
void ExpectConservation(const CollectivePlan& plan, const CollectiveSpec& spec, const NetworkCase& where) {
  SCOPED_TRACE(absl::StrCat(where.name, ", ", plan.ToString(), ", ", spec.ToString()));
  const absl::StatusOr<SimulatedRun> run = Simulate(plan, spec, where.network);
  ASSERT_TRUE(run.ok()) << run.status();
  std::vector<double> from_nodes = BytesFromNodes(plan, spec, where);
  double all = 0;
  for (size_t i = 0; i < where.network.links().size(); ++i) {
    const NetworkLink& link = where.network.links()[i];
    const double bytes = run->busy_us[i] * link.gigabytes_per_s * 1e3;
    EXPECT_TRUE(!link.broken || bytes == 0) << "broken link " << link.from << "-" << link.to;
    EXPECT_LE(run->busy_us[i], run->time_us * 1.000001) << "link " << link.from << "-" << link.to;
    from_nodes[link.from] -= bytes;
    from_nodes[link.to] += bytes;
    all += bytes;
  }
  EXPECT_NEAR(all, run->link_bytes, 1e-6 * all);
  for (size_t node = 0; node < from_nodes.size(); ++node) EXPECT_NEAR(from_nodes[node], 0, 1e-3) << "node " << node;
}

TEST(SimulateLinks, BytesAreConservedAtEveryNode) {
  int compared = 0;
  for (const NetworkCase& where : NetworkCases()) {
    for (int kind = 1; kind <= kNumCollectiveKinds; ++kind) {
      const CollectiveSpec spec = MakeSpec(static_cast<CollectiveKind>(kind), where.network.ranks(), 37);
      for (const Algorithm& algorithm : Algorithms()) {
        if (algorithm.needs_windows || !Applies(algorithm, spec)) continue;
        ExpectConservation({.algorithm = std::string(algorithm.name)}, spec, where);
        ++compared;
      }
      // The plan that is chosen for this network, with its broken links and chips.
      const absl::StatusOr<CollectivePlan> chosen = PlanFor(spec, where.network);
      ASSERT_TRUE(chosen.ok()) << where.name << ", " << spec.ToString() << ": " << chosen.status();
      ExpectConservation(*chosen, spec, where);
    }
  }
  EXPECT_GT(compared, 800);
}

}  // namespace
}  // namespace xlad::collectives
