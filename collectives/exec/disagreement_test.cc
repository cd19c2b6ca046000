// If ranks run different operations, an error on every rank names both operations. Tests four transports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "collectives/exec/testing/group_fixture.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3, kOther = 1;

CollectiveSpec With(CollectiveSpec spec, tensor::ElementType type, Reduction reduction, int root) {
  spec.type = type;
  spec.reduction = reduction;
  spec.root = root;
  return spec;
}

class DisagreementTest : public GroupTest {
 protected:
  static void ExpectBothNamed(const absl::Status& status, const CollectiveSpec& a, const CollectiveSpec& b) {
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(a.ToString()), HasSubstr(b.ToString()),
                      AnyOf(HasSubstr(absl::StrCat("rank ", kOther)), HasSubstr(absl::StrCat("device ", kOther)))));
  }
};

TEST_P(DisagreementTest, SwappedOperationsAreNamedOnEveryRank) {
  const CollectiveSpec small = MakeSpec(CollectiveKind::kAllReduce, kRanks, 4);
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kBroadcast}) {
    const CollectiveSpec large = MakeSpec(kind, kRanks, 5000);
    OnRanks(
        kRanks,
        [&](auto* group) {
          const auto first = group->Prepare(small), second = group->Prepare(large);
          ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
          // A rank may still be in the first barrier when another rank has already failed.
          absl::Status status = RunOnce(group, **first);
          if (status.ok()) status = RunOnce(group, group->rank() == kOther ? **second : **first);
          ExpectBothNamed(status, small, large);
        },
        [](const absl::Status& status) { ADD_FAILURE() << status; });
  }
}

TEST_P(DisagreementTest, OtherTypesCountsAndCollectivesAreNamedOnEveryRank) {
  const CollectiveSpec sum = MakeSpec(CollectiveKind::kAllReduce, kRanks, 6);
  const CollectiveSpec cast = MakeSpec(CollectiveKind::kBroadcast, kRanks, 6);
  const std::pair<CollectiveSpec, CollectiveSpec> cases[] = {
      {sum, With(sum, tensor::ElementType::kF64, Reduction::kSum, 0)},
      {sum, With(sum, tensor::ElementType::kS32, Reduction::kSum, 0)},
      {sum, With(sum, tensor::ElementType::kF32, Reduction::kMax, 0)},
      {sum, MakeSpec(CollectiveKind::kAllReduce, kRanks, 7)},
      {sum, MakeSpec(CollectiveKind::kAllReduce, kRanks, 7000)},
      {sum, MakeSpec(CollectiveKind::kReduceScatter, kRanks, 6)},
      {With(cast, tensor::ElementType::kF32, Reduction::kNone, 2),
       With(cast, tensor::ElementType::kF32, Reduction::kNone, 0)}};
  for (const auto& [a, b] : cases) {
    SCOPED_TRACE(absl::StrCat(a.ToString(), " and ", b.ToString()));
    OnRanks(
        kRanks,
        [&, a = a, b = b](auto* group) {
          ExpectBothNamed(PrepareAndRun(group, group->rank() == kOther ? b : a), a, b);
        },
        [&, a = a, b = b](const absl::Status& status) { ExpectBothNamed(status, a, b); });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, DisagreementTest, ::testing::Values("in-process", "shm", "tcp", "ucx"),
                         [](const auto& info) { return info.param == "in-process" ? "in_process" : info.param; });

}  // namespace
}  // namespace xlad::collectives
