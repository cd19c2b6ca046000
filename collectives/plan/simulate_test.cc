// Compares simulated times with published figures and bounds.
#include "collectives/plan/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "absl/strings/str_cat.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/check.h"
#include "collectives/plan/grid.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CollectiveSpec Spec(CollectiveKind kind, int ranks, int64_t bytes_of_input) {
  CollectiveSpec spec;
  spec.kind = kind;
  spec.ranks = ranks;
  spec.counts = {bytes_of_input / 4};
  if (Reduces(kind)) spec.reduction = Reduction::kSum;
  return spec;
}

double TimeUs(const char* plan, const CollectiveSpec& spec, const Network& network) {
  const absl::StatusOr<SimulatedRun> run = Simulate(*ParsePlan(plan), spec, network);
  EXPECT_TRUE(run.ok()) << plan << " " << run.status();
  return run.ok() ? run->time_us : 0;
}

TEST(Simulate, OneMessageTakesLatencyAndBytesOverRate) {
  const Network network = Network::Torus({4, 1}, {false, false}, 1, 50);
  CollectiveSpec spec = *ParseSpec("collective_permute f32[250000] over 4 ranks {0->3}");
  const double us = TimeUs("direct", spec, network);
  EXPECT_GT(us, 3 + 20 - 0.01);  // The latency of three hops, and the time of 1 MB at 50 GB/s.
  EXPECT_LT(us, 3 + 20 + 3);     // The copies of zeros on the other ranks may add some time.
}

TEST(Simulate, MessagesOnOneLinkShareIt) {
  const Network network = Network::Torus({4, 1}, {false, false}, 1, 50);
  const CollectiveSpec opposite = *ParseSpec("send_recv f32[250000] over 4 ranks {0->2,3->1}");
  const CollectiveSpec crossing = *ParseSpec("send_recv f32[250000] over 4 ranks {0->2,1->3}");
  EXPECT_NEAR(TimeUs("direct", opposite, network), 22, 0.01);
  EXPECT_GT(TimeUs("direct", crossing, network), 40);
}

// The sum of the rates of all links from the lower half of the first dimension to the upper half, in GB/s.
double BisectionRate(const Network& network) {
  const int half = network.grid()[0] / 2;
  double rate = 0;
  for (const NetworkLink& link : network.links()) {
    const int from = CoordinatesOf(network.grid(), link.from)[0], to = CoordinatesOf(network.grid(), link.to)[0];
    if (from < half && to >= half) rate += link.gigabytes_per_s;
  }
  return rate;
}

// Complete pods reach the published rates: of an AllReduce in TB/s, and of the bisection in GB/s.
TEST(Simulate, PodsReachThePublishedRates) {
  const auto all_reduce = [](const char* topology, const char* plan) {
    const Network network = *Network::Preset(topology);
    const CollectiveSpec spec = Spec(CollectiveKind::kAllReduce, network.ranks(), 1 << 28);
    return 2.0 * (1 << 28) * network.ranks() / TimeUs(plan, spec, network) / 1e6;
  };
  EXPECT_NEAR(all_reduce("v5e-16x16", "ring_2d grid=16x16 channels=4"), 51.2, 5.12);
  EXPECT_NEAR(all_reduce("v6e-16x16", "ring_2d grid=16x16 channels=4"), 102.4, 10.24);
  EXPECT_NEAR(BisectionRate(*Network::Preset("v5e-16x16")), 1600, 160);
  EXPECT_NEAR(BisectionRate(*Network::Preset("v6e-16x16")), 3200, 320);
  EXPECT_NEAR(BisectionRate(*Network::Preset("v4-16x16x16")), 24000, 2400);
}

// A 4 x 4 slice of v5e does not have wrap-around links. The measured times are 680 us for an AllGather of 34 MB and 8
// us for 3 hops.
TEST(Simulate, SlicesOfV5eTakeTheMeasuredTimes) {
  const Network network = *Network::Preset("v5e-4x4");
  const CollectiveSpec spec = Spec(CollectiveKind::kAllGather, 16, 34'000'000 / 16);
  EXPECT_NEAR(TimeUs("ring_2d grid=4x4 channels=2", spec, network), 680, 68);
  const CollectiveSpec permute = *ParseSpec("send_recv f32[1] over 16 ranks {0->3}");
  EXPECT_NEAR(TimeUs("direct", permute, network), 8, 0.8);
}

TEST(Simulate, PipelinedRingsReachTheBoundOfFourLinks) {
  const Network network = *Network::Preset("v5e-16x16");
  const CollectiveSpec spec = Spec(CollectiveKind::kAllReduce, 256, int64_t{16} << 20);
  const double bound = BandwidthBoundUs(spec, network);
  const double simple = bound / TimeUs("ring_2d grid=16x16 channels=4", spec, network);
  const double pipelined = bound / TimeUs("ring_2d grid=16x16 channels=4 chunks=4", spec, network);
  EXPECT_LT(simple, 0.75);
  EXPECT_GE(pipelined, 0.85);
}

// On a line, the ranks at the ends have half the links of the others.
TEST(Simulate, NoAlgorithmIsFasterThanTheBound) {
  const std::vector<Network> networks = {Network::Torus({4, 1}, {false, false}, 0, 50),
                                         Network::Torus({3, 2}, {false, false}, 0, 50),
                                         Network::Torus({4, 1}, {true, false}, 0, 50), Network::Switch(6, 0, 50)};
  std::vector<std::string> texts;
  for (const char* kind : {"all_reduce(sum)", "all_gather", "reduce_scatter(sum)", "all_to_all"}) {
    texts.push_back(absl::StrCat(kind, " f32[1200000] over "));
  }
  int compared = 0;
  for (const Network& network : networks) {
    std::vector<CollectiveSpec> specs;
    for (const std::string& text : texts) specs.push_back(*ParseSpec(absl::StrCat(text, network.ranks(), " ranks")));
    for (const CollectiveKind kind :
         {CollectiveKind::kBroadcast, CollectiveKind::kReduce, CollectiveKind::kGather, CollectiveKind::kScatter}) {
      for (int root = 0; root < network.ranks(); ++root) {
        specs.push_back(Spec(kind, network.ranks(), 4'800'000));
        specs.back().root = root;
      }
    }
    for (const CollectiveKind kind : {CollectiveKind::kSendRecv, CollectiveKind::kCollectivePermute}) {
      for (const std::vector<RankPair>& pairs :
           {std::vector<RankPair>(), {{1, 1}}, {{0, 1}}, {{1, 2}}, {{0, 1}, {1, 0}}}) {
        specs.push_back(Spec(kind, network.ranks(), 4'800'000));
        specs.back().pairs = pairs;
      }
    }
    for (const CollectiveSpec& spec : specs) {
      for (const Algorithm& algorithm : Algorithms()) {
        if (algorithm.needs_windows || !Applies(algorithm, spec)) continue;
        const double us = TimeUs(std::string(algorithm.name).c_str(), spec, network);
        EXPECT_GE(us, BandwidthBoundUs(spec, network) * 0.999999) << algorithm.name << " " << spec.ToString();
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 200);
}

TEST(Simulate, TheBoundHasTheBytesThatTheBusiestRankMustSend) {
  const Network line = Network::Torus({4, 1}, {false, false}, 0, 50);  // Rank 0 sends 50 GB/s, rank 1 twice as much.
  const auto bound = [&](const char* text) { return BandwidthBoundUs(*ParseSpec(text), line); };
  EXPECT_DOUBLE_EQ(bound("send_recv f32[250000] over 4 ranks {0->3}"), 20);
  EXPECT_DOUBLE_EQ(bound("send_recv f32[250000] over 4 ranks {1->2}"), 10);
  EXPECT_DOUBLE_EQ(bound("collective_permute f32[250000] over 4 ranks {1->1}"), 0);
  CollectiveSpec gather = Spec(CollectiveKind::kGather, 4, 1'000'000);
  EXPECT_DOUBLE_EQ(BandwidthBoundUs(gather, line), 60);
  gather.root = 1;
  EXPECT_DOUBLE_EQ(BandwidthBoundUs(gather, line), 30);
}

TEST(Simulate, LogarithmicAlgorithmsAreFasterThanRingsAtSmallSizes) {
  for (const int side : {8, 16}) {
    const int n = side * side;
    const Network network = *Network::Preset(absl::StrCat("switch-", n));
    const CollectiveSpec reduce = Spec(CollectiveKind::kAllReduce, n, 8 * n);
    const CollectiveSpec gather = Spec(CollectiveKind::kAllGather, n, 8);
    const double ring = TimeUs("ring", gather, network);
    EXPECT_LT(TimeUs("pat", gather, network), ring / 4) << n;
    EXPECT_LT(TimeUs("swing", reduce, network), ring / 2)
        << n;  // A ring AllReduce takes twice as long as an AllGather.
  }
  const Network torus = *Network::Preset("v5e-16x16");
  EXPECT_LT(TimeUs("swing grid=16x16", Spec(CollectiveKind::kAllReduce, 256, 4096), torus),
            TimeUs("ring_2d grid=16x16 channels=4", Spec(CollectiveKind::kAllReduce, 256, 4096), torus) * 1.2);
}

// On symmetric tori, one rank can represent all: the times and the use of each direction are the same.
TEST(Simulate, RankZeroRepresentsAllRanksOfATorus) {
  const std::vector<std::vector<int>> grids = {{2},    {3},    {16},      {97},      {4, 4},    {16, 16},
                                               {3, 5}, {2, 7}, {4, 4, 4}, {3, 5, 2}, {2, 2, 2}, {4, 8, 8}};
  for (const std::vector<int>& grid : grids) {
    std::vector<TorusDimension> dimensions;
    for (size_t d = 0; d < grid.size(); ++d) {
      dimensions.push_back({grid[d], grid[d] > 2, 1.0 + 0.5 * d, 50.0 / (1 + d)});
    }
    const Network network = Network::Torus(dimensions, 5);
    ASSERT_TRUE(network.IsSymmetric());
    for (const CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
      for (const int64_t bytes : {int64_t{4}, int64_t{1} << 20}) {
        for (const int chunks : {1, 2}) {
          // Skips cases of the largest networks, which take seconds.
          if (network.ranks() == 256 && (chunks == 2 || kind != CollectiveKind::kAllReduce)) continue;
          CollectivePlan plan{.algorithm = "ring", .chunks = chunks, .channels = 2};
          if (grid.size() > 1) {
            plan = {.algorithm = absl::StrCat("ring_", grid.size(), "d"),
                    .chunks = chunks,
                    .channels = 2 * static_cast<int>(grid.size()),
                    .grid = grid};
          }
          // The parts have equal sizes on all ranks and channels.
          const int64_t unit = 4 * 48 * network.ranks();
          const CollectiveSpec spec = Spec(kind, network.ranks(), (bytes + unit - 1) / unit * unit);
          const absl::StatusOr<SimulatedRun> all = Simulate(plan, spec, network);
          const absl::StatusOr<SimulatedRun> one = SimulateRankZero(plan, spec, network);
          ASSERT_TRUE(all.ok()) << all.status();
          ASSERT_TRUE(one.ok()) << one.status();
          const std::string what = absl::StrCat(plan.ToString(), " of ", spec.ToString());
          // In a dimension of two ranks, both directions are one link, which orders simultaneous messages.
          const bool has_pair = std::count(grid.begin(), grid.end(), 2) > 0;
          EXPECT_NEAR(one->time_us / all->time_us, 1, has_pair ? 0.05 : 1e-9) << what;
          EXPECT_EQ(one->messages, all->messages) << what;
          EXPECT_NEAR(one->link_bytes / all->link_bytes, 1, 1e-9) << what;
          for (size_t link = 0; link < network.links().size(); ++link) {
            EXPECT_NEAR(one->busy_us[network.LinkOfRankZero(link)], all->busy_us[link], 1e-6) << what;
          }
        }
      }
    }
  }
}

// With 4 x 5 x 3 ranks, a step of a gather sends up to 15 parts that are apart. As separate messages, each of them
// takes the latency of a hop; as one message, they together do. The bytes on the links are the same.
TEST(Simulate, StridedDataOfAStepIsOneMessage) {
  const Network network = Network::Torus({4, 5, 3}, {true, true, true}, 1, 50);
  const CollectivePlan plan{.algorithm = "ring_3d", .channels = 6, .grid = network.grid()};
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    const CollectiveSpec spec = Spec(kind, 60, int64_t{4} * 6 * (kind == CollectiveKind::kAllGather ? 1 : 60));
    SimulateOptions options;
    const absl::StatusOr<SimulatedRun> apart = Simulate(plan, spec, network, options);
    options.moves_strided_data = true;
    const absl::StatusOr<SimulatedRun> all = Simulate(plan, spec, network, options);
    const absl::StatusOr<SimulatedRun> one = SimulateRankZero(plan, spec, network, options);
    ASSERT_TRUE(apart.ok() && all.ok() && one.ok()) << apart.status() << all.status() << one.status();
    EXPECT_NEAR(all->link_bytes, apart->link_bytes, 1e-6) << ToString(kind);
    EXPECT_NEAR(one->time_us / all->time_us, 1, 1e-9) << ToString(kind);
    EXPECT_EQ(one->messages, all->messages) << ToString(kind);
    // The steps of the dimensions: 3 + 4 + 2, in both halves of an all-reduce.
    const int steps = kind == CollectiveKind::kAllReduce ? 18 : 9;
    EXPECT_EQ(all->messages, 60 * 6 * steps) << ToString(kind);
    EXPECT_NEAR(all->time_us, steps, 0.5) << ToString(kind);
    if (kind == CollectiveKind::kAllReduce) continue;
    EXPECT_GT(apart->time_us, 2 * all->time_us) << ToString(kind);
  }
}

// In a dimension of two ranks, successive steps have the same peer. Each chunk has channels of its own.
TEST(Simulate, EachStepOfAGridOfPairsAndOfChunksIsOneMessage) {
  for (const std::vector<int>& grid : std::vector<std::vector<int>>{{2, 2}, {2, 16}, {4, 2, 3}}) {
    std::vector<TorusDimension> dimensions;
    int steps = 0;
    for (const int size : grid) {
      dimensions.push_back({size, size > 2, 1, 50});
      steps += size - 1;
    }
    const Network network = Network::Torus(dimensions, 0);
    for (const int chunks : {1, 4}) {
      const int channels = 2 * static_cast<int>(grid.size());
      const CollectivePlan plan{
          .algorithm = absl::StrCat("ring_", grid.size(), "d"), .chunks = chunks, .channels = channels, .grid = grid};
      const int orders = channels * std::max(0, chunks - 2);  // Signals that delay all chunks after the first two.
      for (const CollectiveKind kind :
           {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
        const int64_t parts = kind == CollectiveKind::kAllGather ? 1 : network.ranks();
        const CollectiveSpec spec = Spec(kind, network.ranks(), 4 * channels * chunks * parts);
        const absl::StatusOr<SimulatedRun> run = Simulate(plan, spec, network, {.moves_strided_data = true});
        ASSERT_TRUE(run.ok()) << run.status();
        const int passes = kind == CollectiveKind::kAllReduce ? 2 : 1;
        EXPECT_EQ(run->messages, network.ranks() * (channels * chunks * passes * steps + orders))
            << plan.ToString() << " of " << spec.ToString();
      }
    }
  }
}

TEST(Simulate, RankZeroIsRefusedOnAMesh) {
  const CollectiveSpec spec = Spec(CollectiveKind::kAllReduce, 64, 1 << 16);
  const Network mesh = *Network::Preset("v5e-8x8");
  EXPECT_FALSE(mesh.IsSymmetric());
  EXPECT_THAT(std::string(SimulateRankZero(*ParsePlan("ring_2d grid=8x8"), spec, mesh).status().message()),
              HasSubstr("all ranks have the same neighbors and links"));
  Network broken = Network::Torus({8, 8}, {true, true}, 1, 50);
  EXPECT_TRUE(broken.IsSymmetric());
  ASSERT_EQ(broken.BreakLink(0, 1), absl::OkStatus());
  EXPECT_FALSE(broken.IsSymmetric());
}

TEST(Simulate, PlansAroundBrokenLinks) {
  Network network = *Network::Preset("v5e-8x8");
  const CollectiveSpec spec = Spec(CollectiveKind::kAllReduce, 64, 1 << 24);
  const double healthy = TimeUs("ring_2d grid=8x8 channels=4", spec, network);
  ASSERT_EQ(network.BreakLink(0, 1), absl::OkStatus());
  const absl::StatusOr<CollectivePlan> plan = PlanFor(spec, network);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(CheckPlan(*plan, spec), absl::OkStatus());
  EXPECT_LT(TimeUs(plan->ToString().c_str(), spec, network), 3 * healthy);
  EXPECT_THAT(std::string(network.BreakLink(0, 5).message()),
              HasSubstr("expected the numbers of two neighboring chips"));
  ASSERT_EQ(network.BreakLink(0, 8), absl::OkStatus());  // Rank 0 is a corner of the mesh and now has no link.
  EXPECT_EQ(Simulate(*plan, spec, network).status().code(), absl::StatusCode::kUnavailable);
}

// 1021 is a prime number, so a grid of the ranks would be one ring, in which they send two million messages.
TEST(Simulate, ManyRanksAroundBrokenChipsSendFewMessages) {
  Network network = Network::Torus({32, 32}, {true, true}, 1, 50);
  for (const int chip : {5, 100, 1000}) ASSERT_EQ(network.BreakChip(chip), absl::OkStatus());
  ASSERT_EQ(network.ranks(), 1021);
  const absl::StatusOr<CollectivePlan> plan = PlanFor(Spec(CollectiveKind::kAllReduce, 1021, 1021 << 10), network);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->algorithm, "halving_doubling");
}

// For more than 64 ranks, `swing` and `pat` are tried first, which run only three kinds of collectives.
TEST(Simulate, EveryCollectiveHasAPlanForManyRanks) {
  constexpr int kRanks = 65;
  const Network network = Network::Switch(kRanks, 1, 50);
  for (int kind = 1; kind <= kNumCollectiveKinds; ++kind) {
    const CollectiveSpec spec = MakeSpec(static_cast<CollectiveKind>(kind), kRanks, 1);
    const absl::StatusOr<CollectivePlan> plan = PlanFor(spec, network);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(Simulate(*plan, spec, network).ok()) << plan->ToString();
  }
}

// A simulation would fail, because rank 0 has no link.
TEST(Simulate, TheOnlyPlanIsChosenWithoutASimulation) {
  Network network = Network::Torus({10, 7}, {false, false}, 1, 50);
  ASSERT_EQ(network.BreakLink(0, 1), absl::OkStatus());
  ASSERT_EQ(network.BreakLink(0, 10), absl::OkStatus());
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllToAll, 70, 1);
  const absl::StatusOr<CollectivePlan> plan = PlanFor(spec, network);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->algorithm, "direct");
  EXPECT_TRUE(absl::IsUnavailable(Simulate(*plan, spec, network).status()));
}

// Any chip may be broken. The others run a correct plan, and no link of the broken chip is used.
TEST(Simulate, PlansAroundBrokenChips) {
  for (const auto& [preset, collective] :
       {std::pair("v5e-4x4", CollectiveKind::kAllReduce), std::pair("v5e-4x4", CollectiveKind::kAllGather),
        std::pair("v4-2x2x4", CollectiveKind::kReduceScatter)}) {
    for (int chip = 0; chip < 16; ++chip) {
      SCOPED_TRACE(absl::StrCat(preset, ", chip ", chip));
      Network network = *Network::Preset(preset);
      ASSERT_EQ(network.BreakChip(chip), absl::OkStatus());
      ASSERT_EQ(network.ranks(), 15);
      const CollectiveSpec spec = Spec(collective, 15, 15 << 16);
      const absl::StatusOr<CollectivePlan> plan = PlanFor(spec, network);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(CheckPlan(*plan, spec), absl::OkStatus());
      const absl::StatusOr<SimulatedRun> run = Simulate(*plan, spec, network);
      ASSERT_TRUE(run.ok()) << run.status();
      EXPECT_GE(run->time_us, BandwidthBoundUs(spec, network));
      for (size_t i = 0; i < network.links().size(); ++i) {
        const NetworkLink& link = network.links()[i];
        EXPECT_EQ(link.broken, link.from == chip || link.to == chip);
        EXPECT_TRUE(!link.broken || run->busy_us[i] == 0);
      }
    }
  }
}

// Rank r is chip r before the broken chip, and chip r + 1 after it.
TEST(Network, RanksAreTheChipsThatAreNotBroken) {
  Network network = Network::Torus({4, 3}, {false, false}, 1, 50);
  EXPECT_TRUE(network.HasAllChips());
  EXPECT_THAT(network.SnakeOrder(), ElementsAre(0, 1, 2, 3, 7, 6, 5, 4, 8, 9, 10, 11));
  EXPECT_THAT(Network::Torus({2, 2, 2}, {false, false, false}, 1, 50).SnakeOrder(),
              ElementsAre(0, 1, 3, 2, 6, 7, 5, 4));
  ASSERT_EQ(network.BreakChip(5), absl::OkStatus());
  EXPECT_FALSE(network.HasAllChips());
  EXPECT_FALSE(network.IsSymmetric());
  EXPECT_THAT(network.SnakeOrder(), ElementsAre(0, 1, 2, 3, 6, 5, 4, 7, 8, 9, 10));
  std::vector<int> chips;
  const absl::StatusOr<std::vector<int>> around = network.Route(4, 5);  // From chip 4 to chip 6.
  ASSERT_TRUE(around.ok()) << around.status();
  for (const int link : *around) chips.push_back(network.links()[link].to);
  EXPECT_THAT(chips, AnyOf(ElementsAre(0, 1, 2, 6), ElementsAre(8, 9, 10, 6)));
  EXPECT_EQ(network.InjectionRate(1), 100);  // Chip 1 has lost one of its three links.
  EXPECT_THAT(std::string(network.BreakChip(5).message()), HasSubstr("each at most once"));
  EXPECT_FALSE(network.BreakChip(12).ok() || network.BreakChip(-1).ok());
  Network pair = Network::Switch(2, 2, 25);
  ASSERT_EQ(pair.BreakChip(0), absl::OkStatus());
  EXPECT_THAT(std::string(pair.BreakChip(1).message()), HasSubstr("one chip that is not broken"));
}

// All messages of a ring can be sent at the same time.
TEST(Network, RingsAroundABrokenChipUseEachLinkOnce) {
  for (const auto& grid : std::vector<std::vector<int>>{{3, 3}, {4, 3}, {3, 4}, {5, 6}, {16, 16}}) {
    const int chips = grid[0] * grid[1];
    for (int chip = 0; chip < chips; ++chip) {
      SCOPED_TRACE(absl::StrCat(grid[0], "x", grid[1], ", chip ", chip));
      Network network = Network::Torus(grid, {true, true}, 1, 50);
      ASSERT_EQ(network.BreakChip(chip), absl::OkStatus());
      const std::vector<int> order = network.RingOrder();
      ASSERT_EQ(order.size(), chips - 1);
      EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), order.size());
      std::vector<int> uses(network.links().size());
      size_t links = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        const int a = order[i], b = order[(i + 1) % order.size()];
        for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
          const absl::StatusOr<std::vector<int>> route = network.Route(from, to);
          ASSERT_TRUE(route.ok()) << route.status();
          for (const int link : *route) EXPECT_EQ(++uses[link], 1);
          links += route->size();
        }
      }
      EXPECT_EQ(links, 2 * (order.size() + (grid[1] % 2 == 0 ? 1 : 0)));
    }
  }
}

// A ring uses two of the four links of each chip all the time.
TEST(Simulate, LargeDataAroundABrokenChipReachesHalfOfTheBound) {
  Network network = Network::Torus({8, 8}, {true, true}, 1, 50);
  ASSERT_EQ(network.BreakChip(27), absl::OkStatus());
  const CollectiveSpec spec = Spec(CollectiveKind::kAllReduce, 63, 63 << 20);
  const absl::StatusOr<CollectivePlan> plan = PlanFor(spec, network);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(CheckPlan(*plan, spec), absl::OkStatus());
  const double us = TimeUs(plan->ToString().c_str(), spec, network);
  EXPECT_GT(BandwidthBoundUs(spec, network) / us, 0.49);
}

// If a further link is broken, the ring around the chip or the ring in the snake order may be the faster one.
TEST(Simulate, AroundABrokenChipAndABrokenLinkBothRingsAreTried) {
  const CollectiveSpec spec = Spec(CollectiveKind::kAllReduce, 15, 15 << 20);
  int faster_snakes = 0;
  for (const int chip : {0, 5, 15}) {
    const Network whole = Network::Torus({4, 4}, {true, true}, 1, 50);
    for (const NetworkLink& link : whole.links()) {
      if (link.from > link.to || link.from == chip || link.to == chip) continue;
      SCOPED_TRACE(absl::StrCat("chip ", chip, ", link ", link.from, "-", link.to));
      Network network = whole;
      ASSERT_EQ(network.BreakChip(chip), absl::OkStatus());
      EXPECT_TRUE(network.OnlyChipsAreBroken());
      ASSERT_EQ(network.BreakLink(link.from, link.to), absl::OkStatus());
      EXPECT_FALSE(network.OnlyChipsAreBroken());
      const absl::StatusOr<CollectivePlan> plan = PlanFor(spec, network);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const absl::StatusOr<SimulatedRun> best = Simulate(*plan, spec, network);
      ASSERT_TRUE(best.ok()) << best.status();
      double us[2];
      for (const bool is_snake : {false, true}) {
        CollectivePlan ring{.algorithm = "ring", .channels = 4};
        ring.order = is_snake ? network.SnakeOrder() : network.RingOrder();
        const absl::StatusOr<SimulatedRun> run = Simulate(ring, spec, network);
        ASSERT_TRUE(run.ok()) << run.status();
        us[is_snake] = run->time_us;
        EXPECT_LE(best->time_us, run->time_us) << ring.ToString();
      }
      faster_snakes += us[1] < us[0];
    }
  }
  EXPECT_GT(faster_snakes, 0);
}

TEST(Network, PresetsAndErrors) {
  EXPECT_EQ(Network::Preset("v5p-16x20x28")->ranks(), 8960);
  EXPECT_EQ(Network::Preset("v5e-16x16")->links().size(), 256 * 4);
  EXPECT_EQ(Network::Preset("v5e-4x4")->links().size(), 2 * 24);
  for (const char* const name : {"v5e-4x4x4", "v9-4x4", "v5e", "switch-0", "v5e-4y4", "v5e-99999x99999"}) {
    EXPECT_THAT(std::string(Network::Preset(name).status().message()), HasSubstr("expected a TPU slice")) << name;
  }
}

}  // namespace
}  // namespace xlad::collectives
