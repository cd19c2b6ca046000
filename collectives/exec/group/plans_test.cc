// The sizes at which a process group chooses another plan, and at which results bypass the cache.
#include "collectives/exec/group/plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "collectives/exec/group/core.h"
#include "collectives/plan/mapped.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

// If there are more ranks than cores, small slots of many ranks stay in the cache between the ranks' turns.
TEST(GroupPlans, TheSlotsOfAllRanksTakeUpASixthOfTheCache) {
  const auto chunks = [](CollectiveKind kind, int ranks, int64_t bytes, int64_t cache_bytes, bool exclusive = false) {
    CollectiveSpec spec = MakeSpec(kind, ranks, bytes / (InputHasParts(kind) ? ranks : 1));
    spec.type = tensor::ElementType::kU8;
    return ChooseGroupPlan(spec, /*registered=*/false, {ranks, exclusive, 2 << 20, cache_bytes}).plan.chunks;
  };
  constexpr int64_t kCache = 32 << 20, kBytes = 4 << 20;
  EXPECT_EQ(chunks(CollectiveKind::kAllToAll, 4, kBytes, kCache), 12);
  EXPECT_EQ(chunks(CollectiveKind::kAllToAll, 8, kBytes, kCache), 24);
  EXPECT_EQ(chunks(CollectiveKind::kAllReduce, 8, kBytes, kCache), 24);
  EXPECT_EQ(chunks(CollectiveKind::kAllToAll, 32, kBytes, kCache), 32) << "the smallest slots";
  EXPECT_EQ(chunks(CollectiveKind::kBroadcast, 8, kBytes, kCache), 8) << "only the root has slots";
  EXPECT_EQ(chunks(CollectiveKind::kAllToAll, 8, 1 << 20, kCache), 6);
  EXPECT_EQ(chunks(CollectiveKind::kAllToAll, 8, 512 << 10, kCache), 1) << "the buffers leave room in the cache";
  EXPECT_EQ(chunks(CollectiveKind::kAllToAll, 8, kBytes, /*cache_bytes=*/0), 8) << "the cache is unknown";
  EXPECT_EQ(chunks(CollectiveKind::kAllToAll, 8, kBytes, kCache, /*exclusive=*/true), 32);
}

GroupChoice Choose(CollectiveKind kind, int64_t bytes, bool registered, const GroupMachine& machine) {
  CollectiveSpec spec = MakeSpec(kind, 2, bytes);
  spec.type = tensor::ElementType::kU8;
  return ChooseGroupPlan(spec, registered, machine);
}

int64_t NumberIn(const std::string& text) { return std::stoll(text.substr(text.find_first_of("0123456789"))); }

TEST(GroupPlans, TheReasonNamesTheRuleAndTheSizeAtWhichTheChoiceChanges) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kBroadcast}) {
    for (const bool exclusive : {false, true}) {
      for (const bool registered : {false, true}) {
        const GroupMachine machine{2, exclusive, 256 << 10, 0};
        const auto choose = [&](int64_t bytes) { return Choose(kind, bytes, registered, machine); };
        const GroupChoice least = choose(1);
        EXPECT_THAT(least.why, HasSubstr("by size, not by predicted time: one shot up to "));
        const int64_t limit = NumberIn(least.why);
        EXPECT_EQ(choose(limit).plan.algorithm, kMappedOneShot) << least.why;
        const GroupChoice next = choose(limit + 1);
        const bool is_window = registered && limit + 1 == 16 << 10;
        EXPECT_EQ(next.plan.AlgorithmText(), is_window ? kMappedWindows : kMappedSlots) << next.why;
        EXPECT_THAT(next.why, HasSubstr(is_window ? "windows for registered buffers from " : "slots for more than "));
        EXPECT_EQ(NumberIn(next.why), is_window ? limit + 1 : limit);
        EXPECT_THAT(next.why, Not(HasSubstr("scratch")));
      }
    }
  }
  EXPECT_EQ(ChooseGroupPlan(MakeSpec(CollectiveKind::kAllReduce, 1, 8), false, {}).why,
            "chosen because there is one rank");
}

TEST(GroupPlans, TheReasonNamesTheSizeOfASmallScratchAndTheSizeOfWindows) {
  const auto why = [](int64_t bytes, bool registered, int64_t scratch_bytes) {
    return Choose(CollectiveKind::kAllGather, bytes, registered, {2, /*exclusive=*/true, scratch_bytes, 0}).why;
  };
  const std::string start = "chosen by size, not by predicted time: ";
  const std::string by_scratch = "1024 bytes of input (the size of the scratch)";
  const std::string windows = "; windows for registered buffers from 16384 bytes of input";
  EXPECT_EQ(why(2049, true, 256 << 10), start + "slots for more than 2048 bytes of input" + windows);
  EXPECT_EQ(why(1024, false, 1024), start + "one shot up to " + by_scratch);
  EXPECT_EQ(why(1025, false, 1024), start + "slots for more than " + by_scratch);
  EXPECT_EQ(why(1025, true, 1024), start + "slots for more than " + by_scratch + windows);
}

TEST(GroupPlans, TheBuffersOfAllRanksMustFitIntoThreeQuartersOfTheCache) {
  struct Case {
    CollectiveKind kind;
    int64_t most, most_in_place;  // The largest numbers of bytes that fit into 24 bytes.
  };
  for (const Case& c : {Case{CollectiveKind::kAllReduce, 3, 6}, Case{CollectiveKind::kAllGather, 1, 1},
                        Case{CollectiveKind::kGather, 3, 3}, Case{CollectiveKind::kReduce, 4, 6}}) {
    const auto fits = [&](int64_t bytes, bool in_place) {
      CollectiveSpec spec = MakeSpec(c.kind, 4, bytes);
      spec.type = tensor::ElementType::kU8;
      return FitsIntoCache(spec, in_place, /*cache_bytes=*/32);
    };
    SCOPED_TRACE(ToString(c.kind));
    EXPECT_TRUE(fits(c.most, /*in_place=*/false));
    EXPECT_FALSE(fits(c.most + 1, /*in_place=*/false));
    EXPECT_TRUE(fits(c.most_in_place, /*in_place=*/true));
    EXPECT_FALSE(fits(c.most_in_place + 1, /*in_place=*/true));
  }
}

TEST(GroupPlans, IfRanksShareCoresBuffersAndSlotsMustFitIntoHalfOfTheCache) {
  constexpr int64_t kBuffers = 4 * 2 * 256, kSlots = 4 * 4 * 256, kSlotsOfRoot = kSlots / 4;
  const auto fits = [](CollectiveKind kind, int64_t cache_bytes, bool exclusive) {
    CollectiveSpec spec = MakeSpec(kind, 4, 256 / (InputHasParts(kind) ? 4 : 1));
    spec.type = tensor::ElementType::kU8;
    return FitsIntoCacheWithSlots(spec, /*chunks=*/1, {4, exclusive, /*scratch_bytes=*/0, cache_bytes});
  };
  for (const auto& [kind, all] : {std::pair{CollectiveKind::kAllToAll, kBuffers + kSlots},
                                  std::pair{CollectiveKind::kBroadcast, kBuffers + kSlotsOfRoot}}) {
    SCOPED_TRACE(ToString(kind));
    EXPECT_TRUE(fits(kind, 2 * all, /*exclusive=*/false));
    EXPECT_FALSE(fits(kind, 2 * all - 2, /*exclusive=*/false));
    EXPECT_TRUE(fits(kind, kBuffers / 3 * 4 + 4, /*exclusive=*/true)) << "slots are not counted";
    EXPECT_FALSE(fits(kind, kBuffers / 3 * 4 - 4, /*exclusive=*/true));
  }
}

TEST(GroupPlans, BuffersThatShareMemoryAreInPlace) {
  GroupCommand command;
  command.input_bytes = {6};
  command.output_bytes = {12};
  std::byte memory[18];
  // `distance` is that of the input from the start of the output.
  const auto streams = [&](int64_t distance) {
    const void* const input = memory + distance;
    void* const output = memory;
    return StreamsResults({&command, 0, {}, {&input, 1}, {&output, 1}});
  };
  EXPECT_FALSE(streams(12));
  command.streams = true;
  EXPECT_TRUE(streams(12));
  EXPECT_FALSE(streams(0));
  EXPECT_FALSE(streams(6)) << "the input of a gather inside its output";
  // One of several operands has separate buffers.
  command.input_bytes = command.output_bytes = {6, 6};
  const std::vector<const void*> inputs = {memory, memory + 6};
  const std::vector<void*> in_place = {memory, memory + 6}, separate = {memory, memory + 12};
  EXPECT_FALSE(StreamsResults({&command, 0, {}, inputs, in_place}));
  EXPECT_TRUE(StreamsResults({&command, 0, {}, inputs, separate}));
  command.streams_in_place = true;
  EXPECT_TRUE(streams(0));
  EXPECT_FALSE(StreamsResults({&command, 0, {}, inputs, separate, /*are_outputs_copied=*/true}));
}

}  // namespace
}  // namespace xlad::collectives
