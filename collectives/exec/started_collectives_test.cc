// Collectives that are started first and waited for later. Other collectives run in between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "collectives/exec/progress_thread.h"
#include "collectives/exec/testing/test_world.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Sums of `count` floats over groups of `ranks` adjacent devices.
Collective SumOver(int devices, int ranks, int64_t count) {
  Collective collective;
  collective.name = absl::StrCat("sum.", ranks);
  collective.spec.reduction = Reduction::kSum;
  collective.spec.ranks = ranks;
  collective.spec.counts = {count};
  collective.plan = {"direct", 1, 1};
  for (int first = 0; first < devices; first += ranks) {
    collective.groups.emplace_back(ranks);
    std::iota(collective.groups.back().begin(), collective.groups.back().end(), first);
  }
  collective.hash = *ScheduleHash(collective.plan, collective.spec);
  return collective;
}

// Four devices on two workers that do not share memory. Collective 0, a sum over all devices, uses messages. Collective
// 1, a sum over pairs, does not.
class StartedCollectives : public ::testing::Test {
 protected:
  static constexpr int kDevices = 4;

  StartedCollectives() : world_(DevicesOfWorkers{{0, 1}, {2, 3}}, Options()) {
    set_.num_devices = kDevices;
    set_.collectives = {SumOver(kDevices, 4, 1000), SumOver(kDevices, 2, 1000)};
  }

  static TestWorld::Options Options() {
    TestWorld::Options options;
    options.transport.shares_memory = false;
    return options;
  }

  // Runs `body` on a thread for each device.
  template <typename Body>
  void Run(const Body& body) {
    world_.Run([&](int device) {
      Recorder recorder(device, &set_, &RealClock()), of_messages(device, &set_, &RealClock());
      auto formed =
          world_.worker_of(device).fabric->MakeCommunicator({device, &set_, &recorder, 0, &of_messages});
      ASSERT_TRUE(formed.ok()) << formed.status();
      body(device, **formed);
    });
  }

  // A buffer for an in-place collective.
  struct Buffer {
    explicit Buffer(float value) : values(1000, value) {}
    CollectiveLaunch Launch(int spec, int64_t step) {
      address = reinterpret_cast<std::byte*>(values.data());
      input = address;
      return {spec, {&input, 1}, {&address, 1}, step, 0};
    }
    std::vector<float> values;
    std::byte* address = nullptr;
    const std::byte* input = nullptr;
  };

  TestWorld world_;
  CollectiveSet set_;
};

TEST_F(StartedCollectives, ComputeTheSameAsLaunchedOnes) {
  Run([&](int device, Communicator& communicator) {
    for (int step = 0; step < 50; ++step) {
      const auto value = static_cast<float>(device + step);
      Buffer first(value), second(2 * value), pair(value), last(3 * value);
      const auto a = communicator.Start(first.Launch(0, step));
      const auto b = communicator.Start(second.Launch(0, step));
      ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
      const absl::Status launched = communicator.Launch(pair.Launch(1, step));
      ASSERT_TRUE(launched.ok()) << launched;
      if (step % 2 == 0) {
        ASSERT_TRUE(communicator.Wait(*b).ok());
        ASSERT_TRUE(communicator.Wait(*a).ok());
        ASSERT_TRUE(communicator.Launch(last.Launch(0, step)).ok());
      } else {
        ASSERT_TRUE(communicator.Launch(last.Launch(0, step)).ok());
        ASSERT_TRUE(communicator.Wait(*a).ok());
        ASSERT_TRUE(communicator.Wait(*b).ok());
      }
      const auto sum = static_cast<float>(6 + 4 * step), of_pair = static_cast<float>(1 + 4 * (device / 2) + 2 * step);
      EXPECT_EQ(first.values, std::vector<float>(1000, sum));
      EXPECT_EQ(second.values, std::vector<float>(1000, 2 * sum));
      EXPECT_EQ(pair.values, std::vector<float>(1000, of_pair));
      EXPECT_EQ(last.values, std::vector<float>(1000, 3 * sum));
    }
  });
}

// Devices 0 and 1 start a collective and then run another one. Only when both are done with the second collective do
// devices 2 and 3 start the first one.
TEST_F(StartedCollectives, DoNotBlockTheDevice) {
  std::latch ahead(2);
  Run([&](int device, Communicator& communicator) {
    Buffer all(1), pair(1);
    if (device >= 2) ahead.wait();
    const auto started = communicator.Start(all.Launch(0, 0));
    ASSERT_TRUE(started.ok()) << started.status();
    ASSERT_TRUE(communicator.Launch(pair.Launch(1, 0)).ok());
    if (device < 2) ahead.count_down();
    ASSERT_TRUE(communicator.Wait(*started).ok());
    EXPECT_EQ(all.values, std::vector<float>(1000, 4));
  });
}

TEST_F(StartedCollectives, ANumberThatNoStartHasReturnedIsRefused) {
  Run([&](int device, Communicator& communicator) {
    const auto refuses = [&](int64_t number) { return absl::IsInvalidArgument(communicator.Wait(number)); };
    EXPECT_TRUE(communicator.Wait(0).ok());
    EXPECT_TRUE(refuses(1) && refuses(-1));
    Buffer all(1);
    const auto started = communicator.Start(all.Launch(0, 0));
    ASSERT_TRUE(started.ok()) << started.status();
    EXPECT_TRUE(refuses(*started + 1) && refuses(-1));
    ASSERT_TRUE(communicator.Wait(*started).ok());
    EXPECT_TRUE(refuses(*started));
  });
}

TEST_F(StartedCollectives, AnAbortEndsThemAndNamesThem) {
  std::latch formed(kDevices), started_all(2);
  Run([&](int device, Communicator& communicator) {
    formed.arrive_and_wait();
    Buffer all(1);
    if (device >= 2) return started_all.wait();  // These devices never start the collective.
    const auto started = communicator.Start(all.Launch(0, 7));
    ASSERT_TRUE(started.ok()) << started.status();
    started_all.count_down();
    if (device == 0) world_.worker(0).abort.Raise({absl::AbortedError("worker w1 was lost"), "w1"});
    const absl::Status status = communicator.Wait(*started);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("sum.4"), HasSubstr("step 7"), HasSubstr("worker w1 was lost")));
    EXPECT_FALSE(communicator.Start(all.Launch(0, 8)).ok() && communicator.Wait(*started + 1).ok());
  });
}

TEST(ProgressThread, KeepsTheOrderAndTheResults) {
  ProgressThread thread;
  std::vector<int> order;
  std::vector<int64_t> numbers;
  for (int i = 0; i < 100; ++i) {
    numbers.push_back(thread.Start([&order, i] {
      order.push_back(i);
      return i % 3 == 0 ? absl::OkStatus() : absl::AbortedError(absl::StrCat(i));
    }));
  }
  EXPECT_EQ(thread.Wait(numbers[50]), absl::AbortedError("50"));
  thread.Drain();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[i], i);
    if (i == 50) continue;
    EXPECT_EQ(thread.Wait(numbers[i]), i % 3 == 0 ? absl::OkStatus() : absl::AbortedError(absl::StrCat(i)));
  }
  EXPECT_THAT(std::string(thread.Wait(numbers[50]).message()), HasSubstr("has been waited for"));
  EXPECT_FALSE(thread.Wait(101).ok());
  EXPECT_FALSE(thread.Wait(0).ok());
}

}  // namespace
}  // namespace xlad::collectives
