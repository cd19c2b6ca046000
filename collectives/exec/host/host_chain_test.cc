// Reductions among devices of several hosts. The workers replace the coordinator's plan by other schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/random.h"
#include "base/testing/case_count.h"
#include "collectives/exec/host/host_communicator.h"
#include "collectives/exec/testing/everything.h"
#include "collectives/exec/testing/test_world.h"

namespace xlad::collectives {
namespace {

using Bytes = std::vector<std::byte>;

// Random values of different magnitudes, so that sums depend on the order. Integers are random bits.
template <typename T>
Bytes RandomValues(int64_t count, uint64_t seed) {
  constexpr double kScales[] = {1e-4, 1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3, 1e4};
  const std::unique_ptr<Random> random = SeededRandom(seed);
  Bytes bytes(count * sizeof(T));
  for (int64_t i = 0; i < count; ++i) {
    const T value = std::is_integral_v<T> ? static_cast<T>(random->Next())
                                          : static_cast<T>((random->Unit() - 0.5) * kScales[i % 9]);
    std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
  }
  return bytes;
}

struct Result {
  Bytes bytes;                        // The results of the first group, which are equal on all its devices.
  std::set<std::pair<int, int>> met;  // The pairs of devices that exchange messages of the collective.
};

// The rules of some devices. The other devices have the rules of this version.
using RulesOfDevices = std::map<int, PlacementRules>;
// A worker with these rules sends the same texts as a worker of a version without rules.
const PlacementRules kNoRules;

CollectiveSet SetOf(const CollectiveSpec& spec, int devices) {
  CollectiveSet set;
  set.num_devices = devices;
  set.collectives.push_back(MakeCollective(spec, {.algorithm = "direct", .chunks = 2}, devices));
  return set;
}

absl::StatusOr<std::unique_ptr<Communicator>> Form(TestWorld* world, int device, const CollectiveSet& set,
                                                   Recorder* recorder, const RulesOfDevices& rules) {
  TestWorld::Worker& worker = world->worker_of(device);
  const auto other = rules.find(device);
  if (other == rules.end()) return worker.fabric->MakeCommunicator({device, &set, recorder});
  HostCommunicator::Options options;
  options.messages = {device, 0, &set, &world->transport(device), &worker.abort, recorder};
  options.memory = std::shared_ptr<HostMemory>(std::shared_ptr<void>(), &worker.fabric->memory());
  options.recorder = recorder;
  options.rules = other->second;
  return HostCommunicator::Form(options);
}

// Runs an AllReduce over groups of devices of workers that do not share memory, twice in place and once out of place.
template <typename T>
Result RunAllReduce(const DevicesOfWorkers& placement, const CollectiveSpec& spec, const RulesOfDevices& rules = {},
                    bool is_given = false) {
  TestWorld::Options options;
  options.transport.shares_memory = false;
  TestWorld world(placement, options);
  const int n = world.num_devices();
  const int64_t count = spec.input_elements();
  CollectiveSet set = SetOf(spec, n);
  set.collectives[0].is_given = is_given;
  std::vector<Bytes> results(n);
  std::vector<MessageLog> logs(n);
  world.Run([&](int device) {
    Recorder recorder(device, &set, &RealClock());
    auto formed = Form(&world, device, set, &recorder, rules);
    ASSERT_TRUE(formed.ok()) << formed.status();
    recorder.KeepMessages(&logs[device]);
    for (int step = 0; step < 3; ++step) {
      Bytes input = RandomValues<T>(count, 100 * step + device);
      Bytes output = step == 2 ? Bytes(input.size()) : Bytes();
      const std::byte* const in = input.data();
      std::byte* const out = step == 2 ? output.data() : input.data();
      const absl::Status status = (*formed)->Launch({0, {&in, 1}, {&out, 1}, step, 0});
      ASSERT_TRUE(status.ok()) << status;
      results[device].insert(results[device].end(), out, out + input.size());
    }
  });
  for (int device = 0; device < n; ++device) EXPECT_EQ(results[device], results[device / spec.ranks * spec.ranks]);
  Result result{results[0], {}};
  std::map<uint64_t, int> senders;
  for (int device = 0; device < n; ++device) {
    for (const MessageLog::Message& message : logs[device].messages) {
      if (message.sent) senders[message.key] = device;
    }
  }
  for (int device = 0; device < n; ++device) {
    for (const MessageLog::Message& message : logs[device].messages) {
      if (!message.sent) result.met.insert({senders.at(message.key), device});
    }
  }
  return result;
}

CollectiveSpec Over(int ranks, int64_t count, tensor::ElementType type, Reduction reduction) {
  CollectiveSpec spec;
  spec.ranks = ranks;
  spec.counts = {count};
  spec.type = type;
  spec.reduction = reduction;
  return spec;
}

const DevicesOfWorkers kOneWorker = {{0, 1, 2, 3, 4, 5}};
// In all but the last two placements, each worker has the same number of consecutive devices.
const DevicesOfWorkers kPlacements[] = {{{0, 1, 2}, {3, 4, 5}},
                                        {{0, 1}, {2, 3}, {4, 5}},
                                        {{3, 4, 5}, {0, 1, 2}},
                                        {{0, 1}, {2, 3, 4, 5}},
                                        {{0, 2, 4}, {1, 3, 5}}};

template <typename T>
void CompareWithOneHost(const CollectiveSpec& spec) {
  const Bytes of_one_host = RunAllReduce<T>(kOneWorker, spec).bytes;
  for (const DevicesOfWorkers& placement : kPlacements) {
    EXPECT_EQ(RunAllReduce<T>(placement, spec).bytes, of_one_host) << spec.ToString();
  }
}

TEST(HostChain, BitsAreThoseOfOneHost) {
  for (const int64_t count : {20'000, 44'321}) {
    for (const Reduction reduction : {Reduction::kSum, Reduction::kProduct, Reduction::kMax}) {
      CompareWithOneHost<float>(Over(6, count, tensor::ElementType::kF32, reduction));
      // The types differ in the size of an element and in the kernel, but not in the order.
      if (!AllCases() && (count == 20'000 || reduction != Reduction::kSum)) continue;
      CompareWithOneHost<double>(Over(6, count, tensor::ElementType::kF64, reduction));
      CompareWithOneHost<int32_t>(Over(6, count, tensor::ElementType::kS32, reduction));
    }
  }
}

// A device exchanges messages only with the devices of its host and with one device of each neighboring host.
TEST(HostChain, OnlyNeighborsExchangeMessages) {
  const CollectiveSpec large = Over(6, 20'000, tensor::ElementType::kF32, Reduction::kSum);
  std::set<std::pair<int, int>> expected;
  for (int a = 0; a < 6; ++a) {
    for (int b = 0; b < 6; ++b) {
      const bool are_on_one_host = a / 2 == b / 2, are_neighbors = std::abs(a - b) == 2;
      if (a != b && (are_on_one_host || are_neighbors)) expected.insert({a, b});
    }
  }
  EXPECT_EQ(RunAllReduce<float>({{0, 1}, {2, 3}, {4, 5}}, large).met, expected);
  const CollectiveSpec small = Over(6, 100, tensor::ElementType::kF32, Reduction::kSum);
  EXPECT_EQ(RunAllReduce<float>({{0, 1}, {2, 3}, {4, 5}}, small).met.size(), 30U);
}

const DevicesOfWorkers kPairs = {{0, 1}, {2, 3}, {4, 5}};

// A group keeps the plan if the rules of one member have another name or no name, as if no member had rules.
TEST(HostChain, AMemberWithoutTheRulesKeepsThePlanOfItsGroup) {
  const CollectiveSpec spec = Over(6, 20'000, tensor::ElementType::kF32, Reduction::kSum);
  const Bytes expected = RunAllReduce<float>(kOneWorker, spec).bytes;
  PlacementRules renamed = RulesOverHosts();
  renamed.name += "0";
  for (int device = 0; device < 6; ++device) {
    for (const PlacementRules& rules : {kNoRules, renamed}) {
      const Result result = RunAllReduce<float>(kPairs, spec, {{device, rules}});
      EXPECT_EQ(result.met.size(), 30U) << "device " << device << ", rules " << rules.name;
      EXPECT_EQ(result.bytes, expected);
    }
  }
  RulesOfDevices none;
  for (int device = 0; device < 6; ++device) none[device] = kNoRules;
  EXPECT_EQ(RunAllReduce<float>(kPairs, spec, none).met.size(), 30U);
  for (auto& [device, rules] : none) rules = RulesOverHosts();
  EXPECT_EQ(RunAllReduce<float>(kPairs, spec, none).met.size(), 14U);
}

// Each group decides for itself: the group of devices 0 to 3 replaces the plan, and the group of device 7 does not.
TEST(HostChain, OtherGroupsReplaceThePlan) {
  const CollectiveSpec spec = Over(4, 20'000, tensor::ElementType::kF32, Reduction::kSum);
  const auto met = RunAllReduce<float>({{0, 1}, {2, 3}, {4, 5}, {6, 7}}, spec, {{7, kNoRules}}).met;
  std::set<std::pair<int, int>> expected;
  for (int a = 0; a < 8; ++a) {
    for (int b = 0; b < 8; ++b) {
      const bool are_neighbors = a / 2 == b / 2 || std::abs(a - b) == 2;
      if (a != b && a / 4 == b / 4 && (a >= 4 || are_neighbors)) expected.insert({a, b});
    }
  }
  EXPECT_EQ(met, expected);
}

TEST(HostChain, APlanThatTheUserHasGivenRemains) {
  const CollectiveSpec spec = Over(6, 20'000, tensor::ElementType::kF32, Reduction::kSum);
  EXPECT_EQ(RunAllReduce<float>(kPairs, spec, {}, /*is_given=*/true).met.size(), 30U);
}

std::optional<CollectivePlan> ReplaceNothing(const CollectivePlan&, const CollectiveSpec&, const std::vector<int>&) {
  return std::nullopt;
}
std::optional<CollectivePlan> ReplaceWithOneChunk(const CollectivePlan& plan, const CollectiveSpec& spec,
                                                  const std::vector<int>& hosts) {
  std::optional<CollectivePlan> other = PlanOverHosts(plan, spec, hosts);
  if (other.has_value()) other->chunks = 1;
  return other;
}

// If rules of the same name replace plans differently, no device gets a communicator, and the errors have both plans.
TEST(HostChain, DifferentPlansAreAnErrorOnAllDevices) {
  const std::pair<PlacementRules, std::string> cases[] = {
      {{RulesOverHosts().name, ReplaceNothing}, "\"direct chunks=2"},
      {{RulesOverHosts().name, ReplaceWithOneChunk}, "\"host_chain chunks=1 "}};
  const CollectiveSpec spec = Over(6, 100'000, tensor::ElementType::kF32, Reduction::kSum);
  for (const auto& [rules, text] : cases) {
    for (const std::set<int>& others : {std::set<int>{0}, {3}, {5}, {2, 3}, {0, 3, 4}}) {
      RulesOfDevices of_devices;
      for (const int device : others) of_devices[device] = rules;
      TestWorld::Options options;
      options.transport.shares_memory = false;
      TestWorld world(kPairs, options);
      const CollectiveSet set = SetOf(spec, 6);
      std::vector<absl::Status> statuses(6);
      world.Run([&](int device) {
        Recorder recorder(device, &set, &RealClock());
        statuses[device] = Form(&world, device, set, &recorder, of_devices).status();
      });
      for (const absl::Status& status : statuses) {
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
        EXPECT_THAT(std::string(status.message()),
                    ::testing::AllOf(::testing::HasSubstr("all_reduce"), ::testing::HasSubstr(text),
                                     ::testing::HasSubstr("\"host_chain chunks=6 "), ::testing::HasSubstr("expected"),
                                     ::testing::HasSubstr("device ")));
      }
    }
  }
}

}  // namespace
}  // namespace xlad::collectives
