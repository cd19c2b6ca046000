// Groups on mapped memory whose ranks are threads of this process.
#include "collectives/exec/host/host_group.h"

#include <gtest/gtest.h>

#include <random>
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
  Ranks(CollectiveKind kind, bool as_processes, int64_t cache_bytes = 32 << 20, int operands = 1) {
    set_.num_devices = kMembers;
    Collective& collective = set_.collectives.emplace_back();
    collective.spec = MakeSpec(kind, kMembers, kElements);
    collective.spec.counts.resize(operands, collective.spec.counts[0]);
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
    return Run(rank, {values.data()}, {results->data()});
  }
  // `from` and `to` have one array per operand.
  absl::Status Run(int rank, const std::vector<const float*>& from, const std::vector<float*>& to) {
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (const float* const values : from) inputs.push_back(reinterpret_cast<const std::byte*>(values));
    for (float* const values : to) outputs.push_back(reinterpret_cast<std::byte*>(values));
    return groups_[rank]->Run(operations_[rank].get(), {0, inputs, outputs});
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

// Both ranks sum two arrays of random values. The outputs of the first `in_place` arrays are the inputs.
void SumAndCompare(Ranks* ranks, int in_place, std::mt19937* random) {
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<float> in[kMembers][2], out[kMembers][2], sums[2];
  for (int i = 0; i < 2; ++i) {
    sums[i].resize(kElements);
    for (int rank = 0; rank < kMembers; ++rank) {
      out[rank][i].resize(kElements);
      for (float& sum : sums[i]) sum += in[rank][i].emplace_back(distribution(*random));
    }
  }
  const auto result = [&](int rank, int i) { return i < in_place ? &in[rank][i] : &out[rank][i]; };
  const auto run = [&](int rank) {
    return ranks->Run(rank, {in[rank][0].data(), in[rank][1].data()},
                      {result(rank, 0)->data(), result(rank, 1)->data()});
  };
  std::thread peer([&] { EXPECT_TRUE(run(1).ok()); });
  EXPECT_TRUE(run(0).ok());
  peer.join();
  for (int rank = 0; rank < kMembers; ++rank) {
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(*result(rank, i) == sums[i]) << "rank " << rank << ", operand " << i;
  }
}

// The buffers of both ranks have 320,000 bytes, or 160,000 bytes if inputs and outputs share memory. The buffers of
// processes are copied.
TEST(HostGroup, ResultsBypassACacheThatIsTooSmall) {
  std::mt19937 random(1);
  for (const auto& [cache_bytes, streams, streams_in_place] :
       {std::tuple(600'000, false, false), std::tuple(300'000, true, false), std::tuple(200'000, true, true)}) {
    for (const bool as_processes : {false, true}) {
      for (const int in_place : {0, 1, 2}) {
        SCOPED_TRACE(absl::StrCat("cache ", cache_bytes, ", processes ", as_processes, ", in place ", in_place));
        Ranks ranks(CollectiveKind::kAllReduce, as_processes, cache_bytes, /*operands=*/2);
        EXPECT_EQ(ranks.command().streams, streams);
        EXPECT_EQ(ranks.command().streams_in_place, streams_in_place);
        SumAndCompare(&ranks, in_place, &random);
      }
    }
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
