// The sizes at which a process group chooses another plan, and at which results bypass the cache.
#include "collectives/exec/group/plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/exec/group/core.h"
#include "collectives/plan/mapped.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

TEST(GroupPlans, TheRootOfABroadcastFillsOneSlotWhileTheOthersReadAnother) {
  const auto plan = [](int64_t bytes, bool exclusive, int ranks = 2) {
    const CollectiveSpec spec = MakeSpec(CollectiveKind::kBroadcast, ranks, bytes / 4);
    return ChooseGroupPlan(spec, /*registered=*/false, {ranks, exclusive, 256 << 10, 32 << 20}).plan;
  };
  EXPECT_EQ(plan(4 << 10, /*exclusive=*/true).algorithm, kMappedOneShot);
  EXPECT_EQ(plan(16 << 10, /*exclusive=*/true).AlgorithmText(), kMappedSlots);
  EXPECT_EQ(plan(16 << 10, /*exclusive=*/true).chunks, 4);
  EXPECT_EQ(plan(16 << 10, /*exclusive=*/false).algorithm, kMappedOneShot);
  // More ranks were not measured.
  EXPECT_EQ(plan(16 << 10, /*exclusive=*/true, 3).algorithm, kMappedOneShot);
  EXPECT_EQ(plan(17 << 10, /*exclusive=*/true, 3).AlgorithmText(), kMappedSlots);
  EXPECT_EQ(plan(17 << 10, /*exclusive=*/true, 3).chunks, 1);
}

int64_t NumberIn(const std::string& text) { return std::stoll(text.substr(text.find_first_of("0123456789"))); }

TEST(GroupPlans, TheReasonNamesTheRuleAndTheSizeAtWhichTheChoiceChanges) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kBroadcast}) {
    for (const bool exclusive : {false, true}) {
      for (const bool registered : {false, true}) {
        const auto choose = [&](int64_t bytes) {
          CollectiveSpec spec = MakeSpec(kind, 2, bytes);
          spec.type = tensor::ElementType::kU8;
          return ChooseGroupPlan(spec, registered, {2, exclusive, 256 << 10, 32 << 20});
        };
        const GroupChoice least = choose(1);
        EXPECT_THAT(least.why, HasSubstr("by size, not by predicted time: one shot up to "));
        const int64_t limit = NumberIn(least.why);
        EXPECT_EQ(choose(limit).plan.algorithm, kMappedOneShot) << least.why;
        const GroupChoice next = choose(limit + 1);
        const bool is_window = registered && limit + 1 == 16 << 10;
        EXPECT_EQ(next.plan.AlgorithmText(), is_window ? kMappedWindows : kMappedSlots) << next.why;
        EXPECT_THAT(next.why, HasSubstr(is_window ? "windows for registered buffers from " : "slots for more than "));
        EXPECT_EQ(NumberIn(next.why), is_window ? limit + 1 : limit);
      }
    }
  }
  EXPECT_EQ(ChooseGroupPlan(MakeSpec(CollectiveKind::kAllReduce, 1, 8), false, {}).why,
            "chosen because there is one rank");
}

TEST(GroupPlans, ResultsBypassTheCacheIfTheBuffersOfAllRanksDoNotFit) {
  constexpr int64_t kMiB = 1 << 20;
  GroupCommand command;
  command.max_cached_bytes = MaxCachedBytes({2, /*exclusive=*/true, 256 << 10, 32 << 20});
  EXPECT_EQ(command.max_cached_bytes, 12 * kMiB);
  static std::byte memory[1];  // Only the addresses of the buffers matter.
  // The sizes of the input and output of each operand, and the distance between the two.
  struct Operand {
    int64_t in, out, distance;
  };
  const auto streams = [&](const std::vector<Operand>& operands) {
    command.input_bytes.clear();
    command.output_bytes.clear();
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    const auto address = [](int64_t offset) {
      return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(memory) + offset);
    };
    int64_t at = 0;
    for (const Operand& operand : operands) {
      command.input_bytes.push_back(operand.in);
      command.output_bytes.push_back(operand.out);
      outputs.push_back(address(at));
      inputs.push_back(address(at + operand.distance));
      at += 100 * kMiB;
    }
    return StreamsResults({&command, 0, {}, inputs, outputs});
  };
  const auto mib = [&](int64_t in, int64_t out, int64_t distance) {
    return Operand{in * kMiB, out * kMiB, distance * kMiB};
  };
  EXPECT_FALSE(streams({mib(6, 6, 6)})) << "separate buffers";
  EXPECT_TRUE(streams({mib(7, 7, 7)}));
  EXPECT_FALSE(streams({mib(12, 12, 0)})) << "the same buffer";
  EXPECT_TRUE(streams({mib(13, 13, 0)}));
  EXPECT_FALSE(streams({mib(6, 12, 6)})) << "the input of a gather inside its output";
  EXPECT_TRUE(streams({mib(6, 12, 12)}));
  EXPECT_FALSE(streams({mib(4, 4, 0), mib(4, 4, 4)})) << "one of two operands in place";
  EXPECT_TRUE(streams({mib(4, 4, 0), mib(5, 5, 5)}));
  EXPECT_TRUE(streams({mib(13, 0, 0)})) << "no output";
}

}  // namespace
}  // namespace xlad::collectives
