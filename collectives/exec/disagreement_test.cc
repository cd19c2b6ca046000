// If ranks run different operations, an error on every rank names both operations. Tests four transports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "collectives/exec/group/process_group.h"
#include "collectives/exec/messages/message_group.h"
#include "collectives/exec/transports/registry/registry.h"
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

class DisagreementTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Calls `body` with the group of each rank, each on a thread of its own. A rank may still be forming its group when
  // another rank fails. It then gets the error while forming, which is passed to `failed`.
  template <typename Body>
  void OnRanks(const Body& body, const std::function<void(const absl::Status&)>& failed) {
    const auto transport = ChooseTransport(GetParam());
    if (absl::IsNotFound(transport.status())) GTEST_SKIP() << transport.status();
    ASSERT_TRUE(transport.ok()) << transport.status();
    MessageGroup::Options options;
    options.transport = *transport;
    if (transport->one_process) {
      auto groups = MessageGroup::InProcess(kRanks, options);
      ASSERT_TRUE(groups.ok()) << groups.status();
      return OnThreads([&](int rank) { body((*groups)[rank].get()); });
    }
    const std::string key = absl::StrCat("disagree-", getpid(), "-", SystemRandom()->Hex(4));
    const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap({});
    OnThreads([&](int rank) {
      const Launch launch{.rank = rank, .ranks = kRanks, .launcher = "test", .key = key};
      if (transport->shares_memory) {
        ProcessGroup::Options memory;
        memory.launch = launch;
        const auto group = ProcessGroup::Form(memory, bootstrap.get());
        ASSERT_TRUE(group.ok()) << group.status();
        return body(group->get());
      }
      MessageGroup::Options messages = options;
      messages.launch = launch;
      const auto group = MessageGroup::Join(messages);
      group.ok() ? body(group->get()) : failed(group.status());
    });
  }

  static void OnThreads(const std::function<void(int rank)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  // Returns the first error of the operation and of the barrier after it. A rank that does not wait for other ranks in
  // the operation gets the error only in the barrier.
  template <typename Group>
  static absl::Status PrepareAndRun(Group* group, const CollectiveSpec& spec) {
    XLAD_ASSIGN_OR_RETURN(const auto operation, group->Prepare(spec));
    return RunOnce(group, *operation);
  }
  template <typename Group, typename Operation>
  static absl::Status RunOnce(Group* group, Operation& operation) {
    std::vector<double> in(20000), out(20000);
    XLAD_RETURN_IF_ERROR(group->Run(operation, in.data(), out.data()));
    return group->Barrier();
  }

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
    OnRanks([&, a = a,
             b = b](auto* group) { ExpectBothNamed(PrepareAndRun(group, group->rank() == kOther ? b : a), a, b); },
            [&, a = a, b = b](const absl::Status& status) { ExpectBothNamed(status, a, b); });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, DisagreementTest, ::testing::Values("in-process", "shm", "tcp", "ucx"),
                         [](const auto& info) { return info.param == "in-process" ? "in_process" : info.param; });

}  // namespace
}  // namespace xlad::collectives
