// Over in-process links, shared memory and mapped memory, collectives compute the results of their definition, with
// equal bits on all devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <future>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "base/random.h"
#include "collectives/exec/testing/everything.h"
#include "collectives/exec/testing/test_world.h"
#include "collectives/exec/watchdog.h"
#include "collectives/plan/algorithm.h"
#include "tensor/small_float.h"

namespace xlad::collectives {
namespace {

using tensor::ElementType;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status LaunchOn(Communicator& communicator, int spec, const Buffers& inputs, Buffers* outputs) {
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
  for (const auto& buffer : inputs) in.push_back(buffer.data());
  for (auto& buffer : *outputs) out.push_back(buffer.data());
  return communicator.Launch({spec, in, out, /*step=*/3, /*iteration=*/9});
}

absl::Status RunEverything(const CollectiveSet& set, int device, Communicator& communicator) {
  for (int index = 0; index < std::ssize(set.collectives); ++index) {
    const Collective& collective = set.collectives[index];
    Buffers inputs = MakeInputs(collective.spec, index, device);
    Buffers outputs;
    for (int64_t count : collective.spec.output_counts()) {
      outputs.emplace_back(count * tensor::ByteWidth(collective.spec.type), std::byte{0xff});
    }
    XLAD_RETURN_IF_ERROR(LaunchOn(communicator, index, inputs, &outputs));
    CheckOne(collective, index, device, outputs);
    if (collective.spec.input_elements() != collective.spec.output_elements()) continue;
    XLAD_RETURN_IF_ERROR(LaunchOn(communicator, index, inputs, &inputs));
    CheckOne(collective, index, device, inputs);
  }
  return absl::OkStatus();
}

TEST(EverythingOver, EachAlgorithmHasEachTypeWithData) {
  for (const int n : {2, 3, 8}) {
    std::map<std::string, std::set<ElementType>> types;  // By the name of the collective: its kind and its algorithm.
    for (const Collective& collective : EverythingOver(n).collectives) {
      std::set<ElementType>& seen = types[collective.name];
      if (collective.spec.input_elements() > 0) seen.insert(collective.spec.type);
    }
    EXPECT_FALSE(types.empty());
    for (const auto& [name, seen] : types) EXPECT_EQ(seen.size(), 3) << name << " over " << n << " ranks";
  }
}

// The placement of the devices, and whether devices of one machine use mapped memory.
using Placement = std::tuple<DevicesOfWorkers, bool>;

class CommunicatorTest : public ::testing::TestWithParam<Placement> {};

TEST_P(CommunicatorTest, EveryKindSizeTypeAndAlgorithm) {
  for (int slots : {1, 4}) {
    const auto& [placement, mapped] = GetParam();
    if (mapped && slots == 1) continue;
    TestWorld world(placement, slots);
    if (mapped) world.UseMappedMemory();
    const CollectiveSet set = EverythingOver(world.num_devices());
    const std::vector<absl::Status> statuses = world.RunCommunicators(
        {&set}, [&](int device, Communicator& communicator) { return RunEverything(set, device, communicator); });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, CommunicatorTest,
                         ::testing::Combine(::testing::Values(DevicesOfWorkers{{0}}, DevicesOfWorkers{{0, 1}},
                                                              DevicesOfWorkers{{0, 1, 2}}, DevicesOfWorkers{{0}, {1}},
                                                              DevicesOfWorkers{{0, 1, 2, 3, 4, 5, 6, 7}},
                                                              DevicesOfWorkers{{0, 1, 2}, {3, 4, 5}, {6, 7}},
                                                              DevicesOfWorkers{{0, 3}, {1}, {2, 4}}),
                                            ::testing::Bool()));

CollectiveSet OneAllReduce(int n, int64_t count, const std::string& plan, ElementType type = ElementType::kF32,
                           ReductionMode mode = ReductionMode::kRunToRun) {
  CollectiveSet set;
  set.num_devices = n;
  CollectiveSpec spec;
  spec.reduction = Reduction::kSum;
  spec.ranks = n;
  spec.type = type;
  spec.counts = {count};
  spec.mode = mode;
  set.collectives.push_back(MakeCollective(spec, *ParsePlan(plan), n));
  return set;
}

// Returns the bytes of device 0 after an AllReduce of random floats. All devices must have the same bytes.
std::vector<std::byte> Bits(const DevicesOfWorkers& placement, const std::string& plan, ElementType type,
                            bool mapped = false, ReductionMode mode = ReductionMode::kRunToRun) {
  TestWorld world(placement);
  if (mapped) world.UseMappedMemory();
  const int n = world.num_devices();
  const CollectiveSet set = OneAllReduce(n, 5003, plan, type, mode);
  std::vector<Buffers> results(n);
  const std::vector<absl::Status> statuses = world.RunCommunicators({&set}, [&](int device, Communicator& c) {
    const std::unique_ptr<Random> random = SeededRandom(1000 + device);
    Buffers inputs(1, std::vector<std::byte>(5003 * tensor::ByteWidth(type)));
    for (int i = 0; i < 5003; ++i) {
      const float value = static_cast<float>(random->Unit() - 0.5) * std::pow(10.0f, static_cast<float>(i % 9) - 4);
      const uint16_t narrow = tensor::EncodeBf16(value);
      if (type == ElementType::kF32) std::memcpy(&inputs[0][i * 4], &value, 4);
      if (type == ElementType::kBF16) std::memcpy(&inputs[0][i * 2], &narrow, 2);
    }
    results[device] = inputs;
    return LaunchOn(c, 0, inputs, &results[device]);
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  for (const Buffers& result : results) EXPECT_EQ(result, results[0]);
  return results[0][0];
}

TEST(Communicator, BitsDoNotDependOnThePlacement) {
  for (const char* algorithm : {"ring", "direct", "direct_one_shot", "ring_2d", "double_binary_tree"}) {
    for (ElementType type : {ElementType::kF32, ElementType::kBF16}) {
      const std::vector<std::byte> bits = Bits({{0, 1, 2, 3, 4, 5}}, algorithm, type);
      EXPECT_EQ(Bits({{0, 1, 2, 3, 4, 5}}, algorithm, type), bits) << algorithm;
      EXPECT_EQ(Bits({{0, 1}, {2, 3, 4}, {5}}, algorithm, type), bits) << algorithm;
      EXPECT_EQ(Bits({{0, 1}, {2, 3, 4}, {5}}, algorithm, type, /*mapped=*/true), bits) << algorithm;
    }
  }
}

// The bits of a canonical reduction do not depend on the algorithm, its chunks and channels, the placement of the
// devices, or whether memory is mapped.
TEST(Communicator, CanonicalBitsDependOnTheRanksAlone) {
  constexpr ReductionMode kMode = ReductionMode::kCanonical;
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    const DevicesOfWorkers one = {{0, 1, 2, 3, 4, 5, 6, 7}};
    const std::vector<std::byte> bits = Bits(one, "direct", type, false, kMode);
    // Sums in f32 that are rounded to bf16 seldom depend on the order, so only f32 is compared.
    if (type == ElementType::kF32) EXPECT_NE(bits, Bits(one, "direct", type)) << "the order has no influence";
    for (const char* const plan :
         {"direct_one_shot", "direct chunks=3 channels=2", "recursive_doubling", "halving_doubling chunks=5",
          "hierarchical grid=4x2", "hierarchical grid=2x4 chunks=2"}) {
      EXPECT_EQ(Bits(one, plan, type, false, kMode), bits) << plan;
    }
    const DevicesOfWorkers several = {{0, 1, 2}, {3, 4, 5}, {6, 7}};
    EXPECT_EQ(Bits(several, "direct", type, false, kMode), bits);
    EXPECT_EQ(Bits(several, "direct chunks=2", type, true, kMode), bits) << "mapped";
    EXPECT_EQ(Bits(one, "direct", type, true, kMode), bits) << "mapped, in one process";
  }
}

// A canonical plan that sends partial results sends those of any small float in f32, but these two types cannot be
// reduced.
TEST(Communicator, TypesWithoutAKernelAreRefused) {
  for (const ElementType type : {ElementType::kF8E8M0FNU, ElementType::kF4E2M1FN}) {
    for (const char* const plan : {"direct", "recursive_doubling", "halving_doubling"}) {
      TestWorld world(DevicesOfWorkers{{0, 1}, {2, 3}});
      const CollectiveSet set = OneAllReduce(4, 100, plan, type, ReductionMode::kCanonical);
      const std::vector<absl::Status> statuses = world.RunCommunicators({&set}, [](int device, Communicator& c) {
        Buffers buffers(1, std::vector<std::byte>(100));
        return LaunchOn(c, 0, buffers, &buffers);
      });
      for (const absl::Status& status : statuses) EXPECT_TRUE(absl::IsUnimplemented(status)) << plan << ": " << status;
    }
  }
}

// Programs that run in turn over one fabric do not receive each other's messages.
TEST(Communicator, ProgramsOfAFabricShareItsConnections) {
  constexpr int kPrograms = 20;
  TestWorld world(DevicesOfWorkers{{0, 1}, {2}});
  const CollectiveSet mapped = OneAllReduce(3, 5000, "direct"), by_messages = OneAllReduce(3, 100, "ring");
  std::vector<std::vector<int>> firsts(2);
  for (int w = 0; w < 2; ++w) {
    for (int p = 0; p < kPrograms; ++p) {
      firsts[w].push_back(*world.worker(w).fabric->ReserveChannels(p % 2 == 0 ? mapped : by_messages));
    }
  }
  EXPECT_EQ(firsts[0], firsts[1]);
  world.Run([&](int device) {
    Fabric& fabric = *world.worker_of(device).fabric;
    std::vector<std::unique_ptr<Recorder>> recorders;
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (int p = 0; p < kPrograms; ++p) {
      const CollectiveSet& set = p % 2 == 0 ? mapped : by_messages;
      recorders.push_back(std::make_unique<Recorder>(device, &set, &RealClock()));
      auto formed = fabric.MakeCommunicator({device, &set, recorders.back().get(), firsts[0][p]});
      ASSERT_TRUE(formed.ok()) << formed.status();
      communicators.push_back(*std::move(formed));
    }
    for (int run = 0; run < 3 * kPrograms; ++run) {
      std::vector<float> values(run % 2 == 0 ? 5000 : 100, static_cast<float>(device + run));
      std::byte* buffer = reinterpret_cast<std::byte*>(values.data());
      const std::byte* input = buffer;
      const absl::Status status = communicators[run % kPrograms]->Launch({0, {&input, 1}, {&buffer, 1}, run, 0});
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(values, std::vector<float>(values.size(), static_cast<float>(3 + 3 * run)));
    }
  });
  // There is one connection for each pair of devices in different processes.
  EXPECT_EQ(world.worker(0).fabric->connections(), 2);
  EXPECT_EQ(world.worker(1).fabric->connections(), 2);
}

// The sum of 128 and seven times 0.25 in bf16. If each addition were rounded, the sum would stay 128.
TEST(Communicator, DirectRoundsLowPrecisionOnce) {
  for (const char* algorithm : {"direct", "direct_one_shot"}) {
    TestWorld world(DevicesOfWorkers{{0, 1, 2, 3, 4, 5, 6, 7}});
    const CollectiveSet set = OneAllReduce(8, 9, algorithm, ElementType::kBF16);
    world.RunCommunicators({&set}, [&](int device, Communicator& c) {
      const uint16_t value = tensor::EncodeBf16(device == 0 ? 128.0f : 0.25f);
      Buffers buffers(1, std::vector<std::byte>(18));
      for (int i = 0; i < 9; ++i) std::memcpy(&buffers[0][i * 2], &value, 2);
      const absl::Status status = LaunchOn(c, 0, buffers, &buffers);
      uint16_t result = 0;
      std::memcpy(&result, &buffers[0][16], 2);
      EXPECT_EQ(tensor::DecodeBf16(result), 130.0f) << algorithm;
      return status;
    });
  }
}

TEST_P(CommunicatorTest, PartlyOverlappingBuffersAreCopied) {
  const auto& [placement, mapped] = GetParam();
  for (const int64_t count : {10, 10000}) {
    TestWorld world(placement);
    if (mapped) world.UseMappedMemory();
    const int n = world.num_devices();
    const CollectiveSet set = OneAllReduce(n, count, n > 2 && !mapped ? "ring" : "direct");
    const std::vector<absl::Status> statuses = world.RunCommunicators({&set}, [&](int device, Communicator& c) {
      std::vector<float> memory(count + 4);
      for (int64_t i = 0; i < count; ++i) memory[i] = static_cast<float>(device + i);
      const std::byte* in = reinterpret_cast<const std::byte*>(&memory[0]);
      std::byte* out = reinterpret_cast<std::byte*>(&memory[4]);
      const absl::Status status = c.Launch({0, {&in, 1}, {&out, 1}, 0, 0});
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(memory[4 + i], static_cast<float>(n * (n - 1) / 2 + n * i)) << i;
      }
      return status;
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }
}

class Disagreement : public ::testing::TestWithParam<Placement> {
 protected:
  std::unique_ptr<TestWorld> World() const {
    auto world = std::make_unique<TestWorld>(std::get<0>(GetParam()));
    if (std::get<1>(GetParam())) world->UseMappedMemory();
    return world;
  }
};

TEST_P(Disagreement, OfSchedulesIsReportedWhenForming) {
  const std::unique_ptr<TestWorld> owned = World();
  TestWorld& world = *owned;
  const int n = world.num_devices();
  const CollectiveSet ours = OneAllReduce(n, 100, "ring"), theirs = OneAllReduce(n, 100, "direct");
  std::vector<const CollectiveSet*> sets(n, &ours);
  sets[n - 1] = &theirs;
  bool named = false;
  const std::vector<absl::Status> statuses =
      world.RunCommunicators(sets, [](int, Communicator&) { return absl::OkStatus(); });
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    named = named || status.message().find("have hash") != absl::string_view::npos;
  }
  EXPECT_TRUE(named);
}

TEST_P(Disagreement, OfTheNumberOfCollectivesIsReported) {
  const std::unique_ptr<TestWorld> owned = World();
  TestWorld& world = *owned;
  const int n = world.num_devices();
  CollectiveSet ours = OneAllReduce(n, 100, "ring"), theirs = ours;
  theirs.collectives.push_back(theirs.collectives[0]);
  std::vector<const CollectiveSet*> sets(n, &ours);
  sets[0] = &theirs;
  for (const absl::Status& status : world.RunCommunicators(sets, [](int, Communicator&) { return absl::OkStatus(); })) {
    EXPECT_FALSE(status.ok());
  }
}

TEST_P(Disagreement, OfStepIterationOrCollectiveNamesBothSides) {
  for (const char* what : {"step", "iteration", "collective"}) {
    const std::unique_ptr<TestWorld> owned = World();
    TestWorld& world = *owned;
    const int n = world.num_devices();
    CollectiveSet set = OneAllReduce(n, 100, "direct");
    set.collectives.push_back(set.collectives[0]);
    const std::vector<absl::Status> statuses = world.RunCommunicators({&set}, [&](int device, Communicator& c) {
      std::vector<float> values(100, 1.0f);
      std::byte* buffer = reinterpret_cast<std::byte*>(values.data());
      const std::byte* input = buffer;
      CollectiveLaunch launch{0, {&input, 1}, {&buffer, 1}, 12, 0};
      if (device == 1) {
        if (what == std::string("step")) launch.step = 13;
        if (what == std::string("iteration")) launch.iteration = 0xabc;
        if (what == std::string("collective")) launch.spec = 1;
      }
      return c.Launch(launch);
    });
    int named = 0;
    for (const absl::Status& status : statuses) {
      EXPECT_FALSE(status.ok());
      const std::string text(status.message());
      named += text.find("ranks disagree: here collective") != std::string::npos &&
               text.find("sent collective") != std::string::npos;
    }
    EXPECT_EQ(named, n) << what << "\n" << absl::StrJoin(statuses, "\n", absl::StreamFormatter());
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, Disagreement,
                         ::testing::Combine(::testing::Values(DevicesOfWorkers{{0, 1, 2}}, DevicesOfWorkers{{0}, {1}},
                                                              DevicesOfWorkers{{0, 2}, {1, 3}}),
                                            ::testing::Bool()));

// The other devices may still be forming their communicators, or may be one step behind or ahead.
TEST(Communicator, LostWorkerIsReportedByAllOthers) {
  for (const char* algorithm : {"ring", "direct", "mapped"}) {
    for (int last = 0; last < 3; ++last) {
      TestWorld world(DevicesOfWorkers{{0, 1}, {2}, {3}});
      const bool mapped = algorithm == std::string("mapped");
      if (mapped) world.UseMappedMemory();
      const CollectiveSet set = OneAllReduce(4, 50000, mapped ? "direct" : algorithm);
      const std::vector<absl::Status> statuses = world.RunCommunicators({&set}, [&](int device, Communicator& c) {
        std::vector<float> values(50000, 1.0f);
        std::byte* buffer = reinterpret_cast<std::byte*>(values.data());
        const std::byte* input = buffer;
        for (int step = 0; step < 1000; ++step) {
          if (device == 3 && step == last) {
            world.worker(2).fabric.reset();
            return absl::OkStatus();
          }
          XLAD_RETURN_IF_ERROR(c.Launch({0, {&input, 1}, {&buffer, 1}, step, 0}));
        }
        return absl::InternalError("no error was reported");
      });
      for (int device = 0; device < 3; ++device) {
        EXPECT_THAT(std::string(statuses[device].message()),
                    AllOf(HasSubstr("lost device 3 (worker w2, host host2, pid 102)"),
                          HasSubstr(absl::StrCat("device ", device))));
        EXPECT_EQ(world.worker_of(device).abort.failure().suspect_worker, "w2");
      }
    }
  }
}

TEST(Communicator, WatchdogNamesWaitingDevicesAndOperations) {
  TestWorld world({{0, 1}});
  const CollectiveSet set = OneAllReduce(2, 10, "direct");
  ManualClock clock;
  Recorder recorder0(0, &set, &clock), recorder1(1, &set, &clock);
  AbortSignal& abort = world.worker(0).abort;
  std::promise<void> device1_has_formed;  // Otherwise the abort ends the forming of device 1.
  std::thread watch([&] {
    ProgressWatchdog watchdog(&clock, 1000, {&recorder0, &recorder1}, &abort);
    while (!recorder0.Now().running || recorder0.Now().text.find("reduce_many") == std::string::npos) {
      std::this_thread::yield();
    }
    device1_has_formed.get_future().wait();
    EXPECT_FALSE(watchdog.Poll());
    clock.Advance(1001 * kNsPerMs);
    EXPECT_TRUE(watchdog.Poll());
    EXPECT_FALSE(watchdog.Poll());
  });
  world.Run([&](int device) {
    Recorder* recorder = device == 0 ? &recorder0 : &recorder1;
    const auto communicator = *world.Form(device, &set, recorder);
    if (device == 1) {  // Device 1 never launches.
      device1_has_formed.set_value();
      return;
    }
    std::vector<float> values(10);
    std::byte* buffer = reinterpret_cast<std::byte*>(values.data());
    const std::byte* input = buffer;
    const absl::Status status = communicator->Launch({0, {&input, 1}, {&buffer, 1}, 4, 0});
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("device 0: all_reduce.direct, step 4, rank 0 of 2, at \"reduce_many ch0 output[0:5] ="));
  });
  watch.join();
  EXPECT_THAT(recorder0.ToString(), HasSubstr("step 4"));
}

TEST(CollectiveSet, RefusesAHashOfAnotherVersion) {
  xlad::Executable executable;
  xlad::CollectiveSpec* spec = executable.add_collectives();
  spec->set_op("all-reduce.7");
  spec->set_kind(xlad::CollectiveSpec::ALL_REDUCE);
  spec->set_reduction(xlad::CollectiveSpec::SUM);
  spec->set_element_type(11);
  spec->add_counts(10);
  auto* group = spec->add_groups();
  group->add_devices(0);
  group->add_devices(1);
  xlad::LaunchTask launch;
  EXPECT_THAT(std::string(MakeCollectiveSet(executable.collectives(), launch.plans(), 2).status().message()),
              HasSubstr("found 0 collective plans, expected 1"));
  CollectivePlanProto* plan = launch.add_plans();
  plan->set_algorithm("direct");
  plan->set_chunks(1);
  plan->set_channels(1);
  EXPECT_TRUE(MakeCollectiveSet(executable.collectives(), launch.plans(), 2).ok());
  plan->set_schedule_hash(5);
  EXPECT_THAT(std::string(MakeCollectiveSet(executable.collectives(), launch.plans(), 2).status().message()),
              AllOf(HasSubstr("all-reduce.7"), HasSubstr("different versions")));
  EXPECT_THAT(std::string(MakeCollectiveSet(executable.collectives(), launch.plans(), 1).status().message()),
              HasSubstr("found device 1 in a group"));
}

}  // namespace
}  // namespace xlad::collectives
