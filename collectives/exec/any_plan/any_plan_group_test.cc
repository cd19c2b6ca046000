// Groups that run plans on mapped memory and plans that send messages. The ranks are threads.
#include "collectives/exec/any_plan/any_plan_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <latch>

#include "absl/strings/match.h"
#include "base/file_system.h"
#include "collectives/exec/testing/group_fixture.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanksOfHost = 3;
const PrepareOptions kRingPlan{false, "ring"};

// Calls `body` on a thread for each rank of a new group. Returns the number of its control files that remain.
int FilesAfterRanksOfHost(const std::function<void(AnyPlanGroup*)>& body,
                          const std::string& listen_host_of_rank_1 = "127.0.0.1") {
  const std::string key = absl::StrCat("any-plan-test-", getpid(), "-", SystemRandom()->Hex(4));
  const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap({});
  const absl::StatusOr<TransportChoice> transport = ChooseTransport("shm");
  OnThreads(kRanksOfHost, [&](int rank) {
    ASSERT_TRUE(transport.ok()) << transport.status();
    const Launch launch{.rank = rank, .ranks = kRanksOfHost, .launcher = "test", .key = key};
    ProcessGroup::Options memory;
    memory.launch = launch;
    auto mapped = ProcessGroup::Form(memory, bootstrap.get());
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    MessageGroup::Options messages;
    messages.launch = launch;
    messages.transport = *transport;
    if (rank == 1) messages.listen_host = listen_host_of_rank_1;
    AnyPlanGroup group(*std::move(mapped), messages);
    body(&group);
  });
  int files = 0;
  const std::string folder = *ControlFolder();
  const std::vector<std::string> names = *RealFileSystem().List(folder);
  for (const std::string& name : names) files += absl::StartsWith(name, key) ? 1 : 0;
  return files;
}

absl::Status RunSumOfRanks(AnyPlanGroup* group, AnyPlanGroup::Operation& operation, size_t elements) {
  const std::vector<float> in(elements, static_cast<float>(group->rank() + 1));
  std::vector<float> out(elements);
  XLAD_RETURN_IF_ERROR(group->Run(operation, in.data(), out.data()));
  EXPECT_EQ(out, std::vector<float>(elements, 6));
  return absl::OkStatus();
}

TEST(AnyPlanGroup, PlansOfBothKindsRunInTurn) {
  const CollectiveSpec small = MakeSpec(CollectiveKind::kAllReduce, kRanksOfHost, 5);
  const CollectiveSpec large = MakeSpec(CollectiveKind::kAllReduce, kRanksOfHost, 5000);
  const int files = FilesAfterRanksOfHost([&](AnyPlanGroup* group) {
    const auto mapped = group->Prepare(small), messages = group->Prepare(large, kRingPlan);
    ASSERT_TRUE(mapped.ok() && messages.ok()) << mapped.status() << messages.status();
    EXPECT_EQ((*messages)->plan().algorithm, "ring");
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(RunSumOfRanks(group, **mapped, 5), absl::OkStatus());
      ASSERT_EQ(RunSumOfRanks(group, **messages, 5000), absl::OkStatus());
      ASSERT_EQ(group->Barrier(), absl::OkStatus());
    }
    const RankBlock& self = group->mapped().control()->rank(group->rank());
    const auto is_used = [](const OperationRecord& record) { return record.operation.load() != 0; };
    EXPECT_EQ(std::count_if(std::begin(self.records), std::end(self.records), is_used), 1 + 20 * 3)
        << "the preparation and 20 times three operations have records of their own";
  });
  EXPECT_EQ(files, 0);
}

TEST(AnyPlanGroup, MoreOperationsThanTheControlFileHasTextsCanBePrepared) {
  const CollectiveSpec sum = MakeSpec(CollectiveKind::kAllReduce, kRanksOfHost, 5);
  FilesAfterRanksOfHost([&](AnyPlanGroup* group) {
    std::vector<std::unique_ptr<AnyPlanGroup::Operation>> operations;
    while (operations.size() < RankBlock::kTexts + 2) {
      auto operation = group->Prepare(sum);
      ASSERT_TRUE(operation.ok()) << operation.status();
      operations.push_back(*std::move(operation));
    }
    ASSERT_EQ(RunSumOfRanks(group, *operations.front(), 5), absl::OkStatus());
    ASSERT_EQ(RunSumOfRanks(group, *operations.back(), 5), absl::OkStatus());
  });
}

// Some ranks wait in mapped memory for the others, which wait for messages: while they prepare their operation if it is
// the first one with messages, otherwise while they run it.
TEST(AnyPlanGroup, RanksThatWaitInMemoryAndForMessagesAreNamedOnEveryRank) {
  const CollectiveSpec ours = MakeSpec(CollectiveKind::kAllReduce, kRanksOfHost, 6);
  const CollectiveSpec theirs = MakeSpec(CollectiveKind::kAllReduce, kRanksOfHost, 7);
  for (const bool is_first : {true, false}) {
    for (const bool one_sends : {true, false}) {
      SCOPED_TRACE(absl::StrCat("first: ", is_first, ", one rank sends: ", one_sends));
      const int files = FilesAfterRanksOfHost([&](AnyPlanGroup* group) {
        const int rank = group->rank();
        const bool sends = (rank == 1) == one_sends;
        std::unique_ptr<AnyPlanGroup::Operation> messages;
        if (!is_first) {
          messages = *group->Prepare(ours, kRingPlan);
          ASSERT_EQ(RunSumOfRanks(group, *messages, 6), absl::OkStatus());
        }
        absl::Status status;
        if (!sends) {
          const auto mapped = group->Prepare(theirs);
          ASSERT_TRUE(mapped.ok()) << mapped.status();
          status = RunSumOfRanks(group, **mapped, 7);
        } else {
          status = is_first ? group->Prepare(ours, kRingPlan).status() : RunSumOfRanks(group, *messages, 6);
        }
        EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
        EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("the ranks disagree"), HasSubstr(ours.ToString()),
                                                         HasSubstr(theirs.ToString()), HasSubstr("rank 1")));
      });
      EXPECT_EQ(files, 1) << "the file of a group with an error is kept";
    }
  }
}

TEST(AnyPlanGroup, ARankThatLeavesOutAnOperationWithMessagesIsNamed) {
  const CollectiveSpec sum = MakeSpec(CollectiveKind::kAllReduce, kRanksOfHost, 6);
  FilesAfterRanksOfHost([&](AnyPlanGroup* group) {
    const auto messages = group->Prepare(sum, kRingPlan);
    ASSERT_TRUE(messages.ok()) << messages.status();
    const bool leaves_out = group->rank() == 1;
    const absl::Status status = leaves_out ? group->Barrier() : RunSumOfRanks(group, **messages, 6);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("the ranks disagree"), HasSubstr("barrier"),
                                                     HasSubstr(sum.ToString()), HasSubstr("rank 1")));
  });
}

// The others have finished a broadcast when rank 1 runs a different one. They do not notice the error, and are
// in a barrier when rank 1 calls Shrink.
TEST(AnyPlanGroup, RanksThatHaveNotNoticedAnErrorOfMessagesShrinkWithTheOthers) {
  std::latch others_have_finished(kRanksOfHost - 1);
  CollectiveSpec spec = MakeSpec(CollectiveKind::kBroadcast, kRanksOfHost, 6), other_spec = spec;
  spec.root = other_spec.root = 0;
  other_spec.counts = {7};
  FilesAfterRanksOfHost([&](AnyPlanGroup* group) {
    const auto ours = group->Prepare(spec, {false, "binomial"});
    const auto other = group->Prepare(other_spec, {false, "binomial"});
    ASSERT_TRUE(ours.ok() && other.ok()) << ours.status() << other.status();
    const std::vector<float> in(7);
    std::vector<float> out(7);
    absl::Status error;
    if (group->rank() == 1) {
      others_have_finished.wait();
      error = group->Run(**other, in.data(), out.data());
      EXPECT_THAT(std::string(error.message()), HasSubstr("f32[6]"));
    } else {
      EXPECT_EQ(group->Run(**ours, in.data(), out.data()), absl::OkStatus());
      others_have_finished.count_down();
      error = group->Barrier();
      EXPECT_THAT(std::string(error.message()), HasSubstr("has stopped after an error"));
    }
    const auto again = group->Shrink();
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ((*again)->ranks(), kRanksOfHost) << "no rank has died";
    EXPECT_EQ((*again)->Barrier(), absl::OkStatus());
  });
}

TEST(AnyPlanGroup, ShrinkAfterARefusedPlanFindsNoError) {
  FilesAfterRanksOfHost([&](AnyPlanGroup* group) {
    const absl::Status refused =
        group->Prepare(MakeSpec(CollectiveKind::kAllReduce, kRanksOfHost + 1, 6), kRingPlan).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(group->Shrink().status().message()), HasSubstr("found a group without an error"));
  });
}

// Rank 1 cannot listen on an address that is not on loopback, because there is no folder in which the ranks meet. If
// another rank gives up early, the third one may wait for it instead of rank 1.
TEST(AnyPlanGroup, ARankThatCannotJoinTheOthersHasStoppedAfterAnError) {
  const CollectiveSpec sum = MakeSpec(CollectiveKind::kAllReduce, kRanksOfHost, 6);
  const auto body = [&](AnyPlanGroup* group) {
    const absl::Status status = group->Prepare(sum, kRingPlan).status();
    if (group->rank() == 1) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      return;
    }
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("has stopped after an error in operation 1"));
  };
  EXPECT_EQ(FilesAfterRanksOfHost(body, "192.0.2.1"), 1);
}

TEST(AnyPlanGroup, ARankThatHasLeftDoesNotDelayTheOthersUntilTheDeadline) {
  const CollectiveSpec sum = MakeSpec(CollectiveKind::kAllReduce, kRanksOfHost, 6);
  FilesAfterRanksOfHost([&](AnyPlanGroup* group) {
    if (group->rank() == 1) return;
    const absl::Status status = group->Prepare(sum, kRingPlan).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("rank 1 (host "), HasSubstr("has left the group")));
  });
}

}  // namespace
}  // namespace xlad::collectives
