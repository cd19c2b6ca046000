// What a group of ranks that send messages refuses, and which processes it examines.
#include "collectives/exec/messages/message_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/random.h"
#include "collectives/exec/group/control.h"
#include "collectives/exec/testing/death_in_shrink.h"
#include "collectives/exec/transports/registry/registry.h"
#include "collectives/exec/transports/shared_memory/shared_memory.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MessageGroup, AnAddressOtherThanLoopbackNeedsAMeetingFolder) {
  MessageGroup::Options options;
  options.launch.ranks = 2;
  options.launch.key = "key";
  for (const char* const host : {"127.0.0.1", "::1", "localhost"}) {
    options.listen_host = host;
    EXPECT_TRUE(MessageGroup::CheckListenHost(options).ok()) << host;
  }
  for (const char* const host : {"192.0.2.1", "0.0.0.0", "node7"}) {
    options.listen_host = host;
    options.meeting_folder = "";
    const absl::Status status = MessageGroup::CheckListenHost(options);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(host), HasSubstr("--listen"), HasSubstr("--meet")));
    EXPECT_EQ(MessageGroup::Join(options).status(), status);
    options.meeting_folder = "/shared";
    EXPECT_TRUE(MessageGroup::CheckListenHost(options).ok()) << host;
  }
}

// A process id of another PID namespace may be that of no process here, or that of another process.
TEST(MessageGroup, OnlyProcessesOfTheSameMachineAndNamespaceAreExamined) {
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  ASSERT_EQ(waitpid(ended, nullptr, 0), ended);
  ASSERT_NE(MachineName(), "");
  EXPECT_EQ(StateOfRank({MachineName()}, ended), ProcessState::kGone);
  EXPECT_EQ(StateOfRank({MachineName()}, getpid()), ProcessState::kRunning);
  for (const pid_t pid : {ended, getpid()}) {
    EXPECT_EQ(StateOfRank({}, pid), std::nullopt);
    EXPECT_EQ(StateOfRank({MachineName() + "1"}, pid), std::nullopt);
  }
}

// The process of a rank has ended, and a process that started later has its id.
TEST(MessageGroup, AProcessWithAReusedIdIsNotThatOfTheRank) {
  const uint64_t start = StartOfProcess(getpid());
  ASSERT_GT(start, 1u);
  EXPECT_EQ(StateOfRank({MachineName(), start}, getpid()), ProcessState::kRunning);
  EXPECT_EQ(StateOfRank({MachineName(), start - 1}, getpid()), ProcessState::kGone);
}

TEST(MessageGroup, ARankThatDiesInsteadOfShrinkingIsLeftOut) {
  const std::string key = absl::StrCat("message-group-test-", getpid(), "-", SystemRandom()->Hex(4));
  const std::string meeting = absl::StrCat(*ControlFolder(), "/meet-", key, "-", absl::Hex(Hash64("0,1")), "-messages");
  ExpectThatARankThatDiesInShrinkIsLeftOut(meeting, [&](int rank) {
    MessageGroup::Options options;
    options.launch = {.rank = rank, .ranks = 2, .launcher = "test", .key = key};
    options.transport = *ChooseTransport("tcp");
    auto group = MessageGroup::Join(options);
    if (!group.ok()) return group;
    EXPECT_FALSE((*group)->Prepare(MakeSpec(CollectiveKind::kAllReduce, 2, 4 + rank), "ring").ok()) << "they disagree";
    return group;
  });
}

TEST(MessageGroup, PlansForMappedMemoryAreRefused) {
  MessageGroup::Options options;
  options.transport.name = "shm";
  options.transport.one_process = true;
  const auto groups = *MessageGroup::InProcess(2, options);
  // Only some algorithms can run a broadcast.
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kBroadcast, 2, 8);
  const absl::Status status = groups[0]->Prepare(spec, "mapped_slots").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("found plan mapped_slots"), HasSubstr("(ProcessGroup)"),
                                                   HasSubstr("a plan that sends messages: direct"),
                                                   Not(HasSubstr("swing")), Not(HasSubstr("transport"))));
}

}  // namespace
}  // namespace xlad::collectives
