// Groups that are parts of a larger group, over three transports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "collectives/exec/joint_launch.h"
#include "collectives/exec/testing/group_fixture.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

constexpr int kSplitRanks = 5;

void Fails(const absl::Status& status) { ADD_FAILURE() << status; }

// Returns `value` of each rank of the group.
template <typename Group>
std::vector<float> ValuesOfAll(Group* group, int value) {
  const auto operation = group->Prepare(MakeSpec(CollectiveKind::kAllGather, group->ranks(), 1));
  EXPECT_TRUE(operation.ok()) << operation.status();
  if (!operation.ok()) return {};
  const auto own = static_cast<float>(value);
  std::vector<float> all(group->ranks());
  const absl::Status status = group->Run(**operation, &own, all.data());
  EXPECT_TRUE(status.ok()) << status;
  return all;
}

class SplitTest : public GroupTest {};

// Ranks 0, 2 and 4 form a group in the opposite order, rank 1 is alone, and rank 3 takes no part.
TEST_P(SplitTest, RanksOfOneColorFormAGroupInTheOrderOfTheirKeys) {
  const auto body = [](auto* group) {
    const int rank = group->rank();
    const int color = rank == 3 ? -1 : rank % 2;
    const auto part = group->Split({color, -rank});
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_EQ(*part == nullptr, rank == 3);
    const auto others = group->Split({7, 0});  // With equal keys, the order is that of the ranks.
    ASSERT_TRUE(others.ok()) << others.status();
    for (int time = 0; time < 3; ++time) {
      if (*part != nullptr) {
        const std::vector<float> expected = rank == 1 ? std::vector<float>{1} : std::vector<float>{4, 2, 0};
        EXPECT_EQ(ValuesOfAll(part->get(), rank), expected);
        EXPECT_EQ(expected[(*part)->rank()], rank);
      }
      EXPECT_EQ(ValuesOfAll(others->get(), rank), (std::vector<float>{0, 1, 2, 3, 4}));
      EXPECT_TRUE(group->Barrier().ok());
    }
    const auto half = (*others)->Split({rank / 3, 0});  // A part can be split again.
    ASSERT_TRUE(half.ok()) << half.status();
    EXPECT_EQ(ValuesOfAll(half->get(), rank), rank < 3 ? (std::vector<float>{0, 1, 2}) : (std::vector<float>{3, 4}));
  };
  OnRanks(kSplitRanks, body, Fails);
}

TEST_P(SplitTest, AnErrorEndsOneGroupAlone) {
  const auto body = [](auto* group) {
    const int rank = group->rank();
    const auto part = group->Split({rank % 2, 0});
    ASSERT_TRUE(part.ok()) << part.status();
    // Otherwise the error could reach a rank that has not yet formed its part.
    ASSERT_TRUE(group->Barrier().ok());
    const bool disagrees = rank == 2;  // The ranks of its part are 0, 2 and 4.
    const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, (*part)->ranks(), disagrees ? 5 : 6);
    const absl::Status status = PrepareAndRun(part->get(), spec);
    EXPECT_EQ(status.ok(), rank % 2 == 1) << status;
    EXPECT_EQ(ValuesOfAll(group, rank), (std::vector<float>{0, 1, 2, 3, 4}));
  };
  OnRanks(kSplitRanks, body, Fails);
}

// The ranks add the operations in different orders. If each rank ran them one after the other in its order, ranks would
// wait for each other forever: rank 0 in the sum of all ranks, and rank 2 in the sum of the part.
TEST_P(SplitTest, JointLaunchesOfGroupsDoNotDependOnTheOrder) {
  const auto body = [](auto* group) {
    const int rank = group->rank();
    const auto part = group->Split({rank == 3 ? -1 : rank % 2, 0});
    ASSERT_TRUE(part.ok()) << part.status();
    const auto sum = group->Prepare(MakeSpec(CollectiveKind::kAllReduce, group->ranks(), 1));
    const auto gather = group->Prepare(MakeSpec(CollectiveKind::kAllGather, group->ranks(), 1));
    ASSERT_TRUE(sum.ok() && gather.ok()) << sum.status() << gather.status();
    using Operation = typename std::decay_t<decltype(*group)>::Operation;
    std::unique_ptr<Operation> part_sum;
    if (*part != nullptr) part_sum = *(*part)->Prepare(MakeSpec(CollectiveKind::kAllReduce, (*part)->ranks(), 1));
    JointLaunch launch;
    for (int time = 0; time < 20; ++time) {
      const auto own = static_cast<float>(rank + time);
      float total = 0, of_part = 0;
      std::vector<float> all(group->ranks());
      const std::vector<std::function<void()>> calls = {[&] { launch.Add(group, **sum, &own, &total); },
                                                        [&] { launch.Add(group, **gather, &own, all.data()); },
                                                        [&] {
                                                          if (part_sum != nullptr)
                                                            launch.Add(part->get(), *part_sum, &own, &of_part);
                                                        }};
      for (int i = 0; i < 3; ++i) calls[(i + (rank == 0 ? 0 : rank + time)) % 3]();
      const absl::Status status = launch.Run();
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(total, 10 + 5 * time);
      for (int other = 0; other < group->ranks(); ++other) EXPECT_EQ(all[other], other + time);
      if (part_sum != nullptr) EXPECT_EQ(of_part, rank == 1 ? 1 + time : 6 + 3 * time);  // The ranks 0, 2 and 4.
    }
    EXPECT_TRUE(launch.Run().ok()) << "an empty launch";
  };
  OnRanks(kSplitRanks, body, Fails);
}

// If the ranks added the two runs in different orders, they would sum different buffers.
TEST_P(SplitTest, AJointLaunchRefusesAnOperationThatIsAddedTwice) {
  const auto body = [](auto* group) {
    const int rank = group->rank();
    const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, group->ranks(), 1);
    const auto sum = group->Prepare(spec), other = group->Prepare(spec);
    ASSERT_TRUE(sum.ok() && other.ok()) << sum.status() << other.status();
    const std::vector<float> in = {static_cast<float>(rank), 1};
    std::vector<float> out(2);
    JointLaunch launch;
    for (const int i : {rank % 2, 1 - rank % 2}) launch.Add(group, **sum, &in[i], &out[i]);
    const absl::Status status = launch.Run();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("twice in a joint launch"));
    EXPECT_EQ(out, (std::vector<float>{0, 0}));
    for (const int i : {rank % 2, 1 - rank % 2}) launch.Add(group, i == 0 ? **sum : **other, &in[i], &out[i]);
    EXPECT_TRUE(launch.Run().ok()) << "the group can still be used";
    EXPECT_EQ(out, (std::vector<float>{10, 5}));
  };
  OnRanks(kSplitRanks, body, Fails);
}

TEST_P(SplitTest, AJointLaunchReturnsTheErrorOfOneGroup) {
  const auto body = [](auto* group) {
    const int rank = group->rank();
    const auto part = group->Split({rank % 2, 0});
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_TRUE(group->Barrier().ok());
    const auto gather = group->Prepare(MakeSpec(CollectiveKind::kAllGather, group->ranks(), 1));
    ASSERT_TRUE(gather.ok()) << gather.status();
    const auto own = static_cast<float>(rank);
    std::vector<float> all(group->ranks());
    // Only the ranks 0, 2 and 4 disagree on the size of their sum. Over messages, Prepare notices this.
    const auto sum = (*part)->Prepare(MakeSpec(CollectiveKind::kAllReduce, (*part)->ranks(), rank == 2 ? 5 : 6));
    std::vector<float> in(6), out(6);
    JointLaunch launch;
    launch.Add(group, **gather, &own, all.data());
    if (sum.ok()) launch.Add(part->get(), **sum, in.data(), out.data());
    const absl::Status status = launch.Run();
    EXPECT_EQ(sum.ok() && status.ok(), rank % 2 == 1) << status;
    EXPECT_EQ(all, (std::vector<float>{0, 1, 2, 3, 4}));
  };
  OnRanks(kSplitRanks, body, Fails);
}

INSTANTIATE_TEST_SUITE_P(Transports, SplitTest, ::testing::Values("shm", "tcp", "ucx"),
                         [](const auto& info) { return info.param; });

TEST(Split, ThreadsOfOneProcessAreRefused) {
  const auto groups = MessageGroup::InProcess(1, {});
  ASSERT_TRUE(groups.ok()) << groups.status();
  const absl::Status status = (*groups)[0]->Split({0, 0}).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected processes"));
}

}  // namespace
}  // namespace xlad::collectives
