// How long the memory of devices is kept: nothing returns while work that reads or writes it has not ended.
#include "collectives/exec/device/device_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <latch>
#include <thread>

#include "absl/strings/str_cat.h"
#include "collectives/exec/testing/everything.h"
#include "collectives/exec/testing/partial_device_ops.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

// A stream on host memory whose work runs only when a thread waits for it. A missing wait is therefore found whatever
// the speed of the threads is.
class LazyStream final : public PartialDeviceOps {
 public:
  bool host_can_access() const override { return false; }
  absl::Status Synchronize() override {
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    RunUntil(ended_ + std::ssize(work_));
    return absl::OkStatus();
  }
  absl::Status Copy(void* to, const void* from, int64_t bytes) override {
    if (before_copy != nullptr) before_copy();
    return Add([this, to, from, bytes] {
      std::memcpy(to, from, bytes);
      ++copies;
    });
  }
  absl::Status FillZero(void* to, int64_t bytes) override {
    return Add([to, bytes] { std::memset(to, 0, bytes); });
  }
  absl::StatusOr<std::unique_ptr<Event>> Record() override {
    if (cannot_record) return absl::InternalError("no event can be recorded");
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    return std::make_unique<LazyEvent>(this, ended_ + std::ssize(work_));
  }
  absl::Status WaitFor(const Event& event) override {
    if (before_wait != nullptr) XLAD_RETURN_IF_ERROR(before_wait());
    const auto& lazy = dynamic_cast<const LazyEvent&>(event);
    return Add([stream = lazy.stream, end = lazy.end] { stream->RunUntil(end); });
  }
  std::string memory_name() const override { return "lazy"; }
  absl::StatusOr<std::shared_ptr<std::byte>> AllocateDevice(int64_t bytes) override {
    return std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>());
  }

  // Drops the work that has not run, as a stream does after an error.
  void Fail() {
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    ended_ += std::ssize(work_);
    work_.clear();
  }
  int64_t waiting() const {
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    return std::ssize(work_);
  }

  std::function<void()> before_copy;
  std::function<absl::Status()> before_wait;
  bool cannot_record = false;
  std::atomic<int> copies = 0;  // The number of copies that have run.

 private:
  struct LazyEvent final : Event {
    LazyEvent(LazyStream* of, int64_t after) : stream(of), end(after) {}
    bool IsDone() const override {
      const std::lock_guard<std::recursive_mutex> lock(mutex);
      return stream->ended_ >= end;
    }
    absl::Status Wait() const override {
      const std::lock_guard<std::recursive_mutex> lock(mutex);
      stream->RunUntil(end);
      return absl::OkStatus();
    }
    LazyStream* const stream;
    const int64_t end;  // The number of items of work before the event.
  };

  absl::Status Add(std::function<void()> work) {
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    work_.push_back(std::move(work));
    return absl::OkStatus();
  }
  void RunUntil(int64_t end) {
    while (ended_ < end && !work_.empty()) {
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      ++ended_;
      work();
    }
  }

  static inline std::recursive_mutex mutex;  // Shared, because the work of one stream may run that of another.
  int64_t ended_ = 0;
  std::deque<std::function<void()>> work_;
};

// Two devices of one process, with one AllGather or Broadcast from device 0. Rank r's input is full of r + 1.
class DeviceCommunicatorTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;
  static constexpr int64_t kCount = 64;

  void Form(CollectiveKind kind) {
    set_.num_devices = kRanks;
    CollectiveSpec spec = MakeSpec(kind, kRanks, kCount);
    spec.root = 0;
    set_.collectives = {MakeCollective(spec, {.algorithm = "direct"}, kRanks)};
    for (int rank = 0; rank < kRanks; ++rank) {
      mailboxes_.Make(0, rank, "lazy", &abort_);
      recorders_.push_back(std::make_unique<Recorder>(rank, &set_, &RealClock()));
      inputs_.emplace_back(kCount, static_cast<float>(rank + 1));
      outputs_.emplace_back(kCount * kRanks, 0.0f);
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      auto formed = DeviceCommunicator::Form(
          {rank, 0, &set_, &streams_[rank], &mailboxes_, &abort_, recorders_[rank].get()}, nullptr);
      ASSERT_TRUE(formed.ok()) << formed.status();
      communicators_.push_back(*std::move(formed));
    }
  }

  absl::Status Launch(int rank) {
    const std::vector<const std::byte*> from = {reinterpret_cast<const std::byte*>(inputs_[rank].data())};
    const std::vector<std::byte*> to = {reinterpret_cast<std::byte*>(outputs_[rank].data())};
    return communicators_[rank]->Launch({0, from, to, /*step=*/1, /*iteration=*/0});
  }
  // Launches on all ranks. Calls `after` in the thread of device 0 when its launch has returned.
  std::vector<absl::Status> LaunchAll(const std::function<void()>& after = [] {}) {
    std::vector<absl::Status> statuses(kRanks);
    std::thread second([&] { statuses[1] = Launch(1); });
    statuses[0] = Launch(0);
    after();
    second.join();
    return statuses;
  }

  AbortSignal abort_;
  CollectiveSet set_;
  LazyStream streams_[kRanks];
  DeviceMailboxes mailboxes_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<std::vector<float>> inputs_, outputs_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

// In a Broadcast, the copy of the root's own input would wait for the peers, too.
TEST_F(DeviceCommunicatorTest, LaterWorkOfTheSenderRunsAfterThePeersRead) {
  Form(CollectiveKind::kAllGather);
  for (const absl::Status& status : LaunchAll()) ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(streams_[1].copies, 0) << "a launch returns before its work has run";
  ASSERT_TRUE(streams_[0].FillZero(inputs_[0].data(), kCount * 4).ok());
  ASSERT_TRUE(streams_[0].Synchronize().ok());
  ASSERT_TRUE(streams_[1].Synchronize().ok());
  EXPECT_EQ(outputs_[1][0], 1) << "the receiver reads what the sender's buffer contained at the launch";
}

TEST_F(DeviceCommunicatorTest, TheDestructorWaitsUntilThePeersHaveRead) {
  Form(CollectiveKind::kBroadcast);
  for (const absl::Status& status : LaunchAll()) ASSERT_TRUE(status.ok()) << status;
  streams_[0].Fail();  // Its stream no longer waits for the peer.
  EXPECT_EQ(streams_[1].copies, 0);
  communicators_[0].reset();
  EXPECT_EQ(streams_[1].copies, 1);
}

TEST_F(DeviceCommunicatorTest, TheDestructorWaitsForItsOwnStream) {
  Form(CollectiveKind::kBroadcast);
  for (const absl::Status& status : LaunchAll()) ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(streams_[1].waiting(), 0);
  communicators_[1].reset();
  EXPECT_EQ(streams_[1].waiting(), 0);
}

TEST_F(DeviceCommunicatorTest, ALaunchThatFailsWaitsForThePeers) {
  Form(CollectiveKind::kAllGather);
  std::latch peer_copies(1);
  int copies_of_peer = 0;
  // Device 1 has taken the message of device 0, and device 0 waits for the message of device 1.
  streams_[0].before_wait = [&] {
    peer_copies.wait();
    return absl::InternalError("the wait was refused");
  };
  streams_[1].before_copy = [&] {
    if (++copies_of_peer != 2) return;  // The first one is that of its own input.
    peer_copies.count_down();
    while (!abort_.raised()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // Without its wait, device 0 returns meanwhile.
  };
  const std::vector<absl::Status> statuses =
      LaunchAll([&] { EXPECT_EQ(streams_[1].copies, 2) << "the caller may now free its input"; });
  EXPECT_THAT(statuses[0].message(), HasSubstr("the wait was refused"));
}

TEST_F(DeviceCommunicatorTest, ALaunchThatFailsWaitsForItsOwnStream) {
  Form(CollectiveKind::kAllGather);
  int waits = 0;
  streams_[1].before_wait = [&] { return ++waits == 2 ? absl::InternalError("refused") : absl::OkStatus(); };
  EXPECT_THAT(LaunchAll()[1].message(), HasSubstr("refused"));
  EXPECT_EQ(streams_[1].waiting(), 0) << "the caller may now free its output";
}

TEST_F(DeviceCommunicatorTest, AReceiverThatCannotRecordAnEventEndsItsWork) {
  Form(CollectiveKind::kBroadcast);
  streams_[1].cannot_record = true;
  int copies = -1;
  abort_.AddListener([&](const Failure&) { copies = streams_[1].copies; });
  const std::vector<absl::Status> statuses = LaunchAll();
  EXPECT_EQ(copies, 1) << "the sender may end when the signal has been raised";
  for (const absl::Status& status : statuses) EXPECT_THAT(status.message(), HasSubstr("no event can be recorded"));
}

}  // namespace
}  // namespace xlad::collectives
