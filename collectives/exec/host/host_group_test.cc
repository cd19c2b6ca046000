// Groups on mapped memory whose ranks are threads of this process.
#include "collectives/exec/host/host_group.h"

#include <gtest/gtest.h>

#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

// The arrays are too large for a board.
constexpr int kMembers = 2, kElements = 10000;

// The ranks run one collective. If `as_processes` is true, each rank has a memory of its own, like ranks that are
// processes; buffers outside this memory are then copied.
class Ranks {
 public:
  Ranks(CollectiveKind kind, bool as_processes, int64_t cache_bytes = 32 << 20) {
    set_.num_devices = kMembers;
    Collective& collective = set_.collectives.emplace_back();
    collective.spec = MakeSpec(kind, kMembers, kElements);
    collective.groups = {{0, 1}};
    std::vector<std::shared_ptr<HostMemory>> memories(kMembers, HostMemory::Make(/*with_arena=*/as_processes));
    if (as_processes) memories[1] = HostMemory::Make(/*with_arena=*/true);
    const std::string area = (*memories[0]->CreateArea(HostGroup::AreaBytes(kMembers)))->name();
    for (int rank = 0; rank < kMembers; ++rank) {
      recorders_.push_back(std::make_unique<Recorder>(rank, &set_, &RealClock()));
      HostGroup::Options options;
      for (int member = 0; member < kMembers; ++member) {
        options.members.push_back({member, absl::StrCat("device ", member), memories[member]->address()});
      }
      options.rank = rank;
      options.memory = memories[rank];
      options.abort = &abort_;
      options.recorder = recorders_.back().get();
      options.cache_bytes = cache_bytes;
      groups_.push_back(*HostGroup::Make(options, *memories[rank]->OpenArea(area), /*create=*/rank == 0));
      operations_.push_back(*groups_.back()->Prepare(collective));
    }
    for (const auto& group : groups_) group->Start();
  }

  AbortSignal& abort() { return abort_; }
  const GroupCommand& command() const { return operations_[0]->command; }

  // Runs the collective on one rank.
  absl::Status Run(int rank, const std::vector<float>& values, std::vector<float>* results) {
    const auto* const input = reinterpret_cast<const std::byte*>(values.data());
    auto* const output = reinterpret_cast<std::byte*>(results->data());
    return groups_[rank]->Run(operations_[rank].get(), {0, {&input, 1}, {&output, 1}});
  }

 private:
  CollectiveSet set_;
  AbortSignal abort_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<std::unique_ptr<HostOperation>> operations_;
  std::vector<std::unique_ptr<HostGroup>> groups_;
};

// The group has run all operations of a schedule. An error that precedes the next run does not name one of them.
TEST(HostGroup, AnErrorBeforeARunNamesNoOperationOfTheRunBefore) {
  Ranks ranks(CollectiveKind::kAllReduce, /*as_processes=*/false);
  const std::vector<float> values(kElements, 1.0F);
  std::vector<float> sum(kElements), peers_sum(kElements);
  std::thread peer([&] { EXPECT_TRUE(ranks.Run(1, values, &peers_sum).ok()); });
  EXPECT_TRUE(ranks.Run(0, values, &sum).ok());
  peer.join();
  EXPECT_EQ(sum, std::vector<float>(kElements, kMembers));
  const absl::Status reason = absl::UnavailableError("device 1 is lost");
  ranks.abort().Raise({reason, ""});
  EXPECT_EQ(ranks.Run(0, values, &sum), reason);
}

// The buffers of both ranks have 160,000 bytes, or 80,000 bytes if inputs and outputs share memory.
TEST(HostGroup, ResultsBypassACacheThatIsTooSmall) {
  const std::vector<float> values(kElements, 1.0F);
  for (const auto& [cache_bytes, streams, streams_in_place] :
       {std::tuple(300'000, false, false), std::tuple(150'000, true, false), std::tuple(100'000, true, true)}) {
    Ranks ranks(CollectiveKind::kAllReduce, /*as_processes=*/false, cache_bytes);
    EXPECT_EQ(ranks.command().streams, streams) << cache_bytes;
    EXPECT_EQ(ranks.command().streams_in_place, streams_in_place) << cache_bytes;
    std::vector<float> sum(kElements), peers_sum(kElements);
    std::thread peer([&] { EXPECT_TRUE(ranks.Run(1, values, &peers_sum).ok()); });
    EXPECT_TRUE(ranks.Run(0, values, &sum).ok());
    peer.join();
    EXPECT_EQ(sum, std::vector<float>(kElements, kMembers));
    EXPECT_EQ(peers_sum, sum);
  }
}

// Rank 0 receives nothing. During the run, memory with undefined contents takes the place of its output.
TEST(HostGroup, ARankThatReceivesNothingKeepsItsOutput) {
  Ranks ranks(CollectiveKind::kSendRecv, /*as_processes=*/true);
  const std::vector<float> values(kElements, 1.0F), unchanged(kElements, 7.0F);
  std::vector<float> kept = unchanged, received = unchanged;
  std::thread peer([&] { EXPECT_TRUE(ranks.Run(1, unchanged, &received).ok()); });
  EXPECT_TRUE(ranks.Run(0, values, &kept).ok());
  peer.join();
  EXPECT_EQ(kept, unchanged);
  EXPECT_EQ(received, values);
}

}  // namespace
}  // namespace xlad::collectives
