// Messages and releases between devices: their order, and how waits end.
#include "collectives/exec/device/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

class CountedEvent final : public Event {
 public:
  explicit CountedEvent(int* waits = nullptr) : waits_(waits) {}
  bool IsDone() const override { return true; }
  absl::Status Wait() const override {
    if (waits_ != nullptr) ++*waits_;
    return absl::OkStatus();
  }

 private:
  int* const waits_;
};

DeviceMessage MessageOf(uint32_t index) {
  DeviceMessage message;
  message.header.index = index;
  return message;
}

TEST(DeviceMailbox, MessagesOfALinkArriveInOrder) {
  AbortSignal abort;
  DeviceMailbox mailbox("memory", &abort);
  std::thread peer([&] {
    mailbox.Post(1, 0, MessageOf(0));
    mailbox.Post(1, 7, MessageOf(100));
    mailbox.Post(2, 0, MessageOf(200));
    mailbox.Post(1, 0, MessageOf(1));
  });
  const auto index = [&](int from, int channel) { return mailbox.Take(from, channel)->header.index; };
  EXPECT_EQ(index(2, 0), 200);
  EXPECT_EQ(index(1, 0), 0);
  EXPECT_EQ(index(1, 0), 1);
  EXPECT_EQ(index(1, 7), 100);
  peer.join();
}

TEST(DeviceMailbox, NoMessageIsLostIfItArrivesWhileTheDeviceStartsToWait) {
  constexpr uint32_t kMessages = 20'000;
  AbortSignal abort;
  DeviceMailbox mailbox("memory", &abort);
  std::thread peer([&] {
    for (uint32_t i = 0; i < kMessages; ++i) {
      if (i % 8 == 0) std::this_thread::yield();
      mailbox.Post(1, 0, MessageOf(i));
    }
  });
  uint32_t next = 0;
  while (next < kMessages && mailbox.Take(1, 0)->header.index == next) ++next;
  EXPECT_EQ(next, kMessages);
  peer.join();
}

TEST(DeviceMailbox, TheSenderGetsTheEventOfTheLastRelease) {
  AbortSignal abort;
  DeviceMailbox mailbox("memory", &abort);
  int waits = 0;
  std::vector<std::shared_ptr<const Event>> events;
  for (int i = 0; i < 4; ++i) events.push_back(std::make_shared<CountedEvent>(&waits));
  std::thread peer([&] {
    for (const auto& event : events) mailbox.Release(1, 0, event);
  });
  EXPECT_EQ(*mailbox.WaitReleased(1, 0, 1), events[0]);
  EXPECT_EQ(*mailbox.WaitReleased(1, 0, 3), events[2]);
  peer.join();
  EXPECT_EQ(*mailbox.WaitReleased(1, 0, 3), events[2]);
  // The earlier events are reached before these two.
  mailbox.WaitUntilRead();
  EXPECT_EQ(waits, 2);
}

TEST(DeviceMailbox, AnAbortEndsWaitsAndPreventsRuns) {
  AbortSignal abort;
  DeviceMailbox mailbox("memory", &abort);
  EXPECT_TRUE(mailbox.Enter());
  EXPECT_TRUE(mailbox.is_busy());
  std::thread peer([&] { abort.Raise({absl::InternalError("rank 1 has failed"), ""}); });
  EXPECT_THAT(mailbox.Take(1, 0).status().message(), HasSubstr("rank 1 has failed"));
  EXPECT_THAT(mailbox.WaitReleased(1, 0, 1).status().message(), HasSubstr("rank 1 has failed"));
  peer.join();
  mailbox.Leave();
  EXPECT_FALSE(mailbox.is_busy());
  EXPECT_FALSE(mailbox.Enter());
  EXPECT_FALSE(mailbox.is_busy());
}

TEST(DeviceMailboxes, AreFoundByProgramAndDevice) {
  AbortSignal abort;
  DeviceMailboxes mailboxes;
  const auto made = mailboxes.Make(4, 2, "gpu_sim 1", &abort);
  EXPECT_EQ(mailboxes.Find(4, 2), made);
  EXPECT_EQ(mailboxes.Find(4, 3), nullptr);
  EXPECT_EQ(mailboxes.Find(5, 2), nullptr);
  EXPECT_NE(mailboxes.Make(4, 2, "gpu_sim 2", &abort), made);
  EXPECT_EQ(mailboxes.Find(4, 2)->memory(), "gpu_sim 2");
}

}  // namespace
}  // namespace xlad::collectives
