// A transport fault other than a delay must end in an error on every device if it affects a message of the first two of
// three all-reduces. Three algorithms are tested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/exec/checksum.h"
#include "collectives/exec/scheduled_communicator.h"
#include "collectives/exec/testing/test_world.h"
#include "collectives/exec/transports/fault/faulty_transport.h"
#include "collectives/exec/transports/skeleton/skeleton.h"
#include "collectives/exec/watchdog.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kDevices = 4, kVictim = 1;
constexpr int64_t kLimitMs = 1000;

struct Way {
  std::string name;
  DevicesOfWorkers placement;
  size_t ring_bytes = 0;
  bool skeleton = false;
};

CollectiveSet AllReduces(const std::string& algorithm, int64_t count) {
  CollectiveSet set;
  set.num_devices = kDevices;
  Collective collective;
  collective.name = "all-reduce.5";
  collective.spec.reduction = Reduction::kSum;
  collective.spec.ranks = kDevices;
  collective.spec.counts = {count};
  collective.plan.algorithm = algorithm;
  collective.groups = {{0, 1, 2, 3}};
  collective.hash = *ScheduleHash(collective.plan, collective.spec);
  set.collectives.push_back(collective);
  return set;
}

// Whether all other threads of this process sleep. A thread that could run but has no core does not sleep.
bool AllOthersSleep() {
  const std::string own = absl::StrCat(gettid());
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    if (thread.path().filename() == own) continue;
    std::string stat;
    if (!std::getline(std::ifstream(thread.path() / "stat"), stat)) continue;  // The thread has ended.
    const size_t state = stat.rfind(')') + 2;
    if (state >= stat.size() || stat[state] != 'S') return false;
  }
  return true;
}

class FaultTest : public ::testing::TestWithParam<Way> {
 protected:
  struct Result {
    std::vector<absl::Status> statuses;
    std::vector<std::vector<float>> values;
    bool happened = false;
  };

  // Runs three all-reduces on all devices. The watchdog detects devices that make no progress.
  Result Run(FaultPlan plan, const std::string& algorithm, bool checksums = false, int64_t count = 3000) {
    plan.device = kVictim;
    FaultState state;
    TestWorld::Options options;
    options.ring_bytes = GetParam().ring_bytes;
    options.transport.shares_memory = GetParam().ring_bytes > 0;
    if (GetParam().skeleton) options.transport.plugin = SkeletonTransport();
    if (plan.fault == Fault::kKill) {
      plan.at_fault = [this] {
        world_->worker_of(kVictim).abort.Raise({absl::CancelledError("device 1 is killed"), ""});
      };
    }
    options.decorate = [&](int device, Transport* inner) { return MakeFaultyTransport(plan, device, inner, &state); };
    world_ = std::make_unique<TestWorld>(GetParam().placement, options);
    const CollectiveSet set = AllReduces(algorithm, count);
    ManualClock clock;
    std::vector<std::unique_ptr<Recorder>> recorders;
    for (int device = 0; device < kDevices; ++device) {
      recorders.push_back(std::make_unique<Recorder>(device, &set, &clock));
    }
    Result result{std::vector<absl::Status>(kDevices), std::vector<std::vector<float>>(kDevices), false};
    std::atomic<int> running = kDevices;
    // Only these faults make devices wait without an error.
    const bool is_silent = plan.fault == Fault::kDrop || plan.fault == Fault::kHalfClose;
    std::thread watch([&] {
      if (is_silent) Watch(state, &clock, recorders, running);
    });
    world_->Run([&](int device) {
      result.values[device].assign(count, static_cast<float>(device + 1));
      result.statuses[device] = RunDevice(device, set, recorders[device].get(), checksums, &result.values[device]);
      --running;
    });
    watch.join();
    result.happened = state.happened;
    world_.reset();
    return result;
  }

  absl::Status RunDevice(int device, const CollectiveSet& set, Recorder* recorder, bool checksums,
                         std::vector<float>* values) {
    XLAD_ASSIGN_OR_RETURN(auto communicator,
                          ScheduledCommunicator::Form({device, 0, &set, &world_->transport(device),
                                                       &world_->worker_of(device).abort, recorder, checksums}));
    XLAD_RETURN_IF_ERROR(communicator->PrepareAll());
    for (int step = 0; step < 3; ++step) {
      std::byte* buffer = reinterpret_cast<std::byte*>(values->data());
      const std::byte* input = buffer;
      XLAD_RETURN_IF_ERROR(communicator->Launch({0, {&input, 1}, {&buffer, 1}, step, 0}));
    }
    return absl::OkStatus();
  }

  // Advances the clock whenever the fault has happened, and all threads were found asleep several times without any
  // progress of a device in between. A thread that never sleeps must not end the test without a result, so a long time
  // without progress is enough, too. Returns when all devices have finished.
  void Watch(const FaultState& state, ManualClock* clock, const std::vector<std::unique_ptr<Recorder>>& recorders,
             const std::atomic<int>& running) {
    const auto texts = [&] {
      return absl::StrJoin(recorders, "|",
                           [](std::string* out, const auto& recorder) { absl::StrAppend(out, recorder->Now().text); });
    };
    std::vector<std::unique_ptr<ProgressWatchdog>> watchdogs;
    for (int w = 0; w < std::ssize(GetParam().placement); ++w) {
      std::vector<const Recorder*> own;
      for (const int device : GetParam().placement[w]) own.push_back(recorders[device].get());
      watchdogs.push_back(std::make_unique<ProgressWatchdog>(clock, kLimitMs, own, &world_->worker(w).abort));
    }
    std::string last;
    int same = 0, asleep = 0;
    while (running > 0) {
      // A yield would cost a time slice of every other program on a busy machine.
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      const bool all_sleep = AllOthersSleep();
      const std::string now = texts();
      if (!state.happened || now != last) same = asleep = 0;
      last = now;
      if (all_sleep) ++asleep;
      if (++same < 5000 && asleep < 10) continue;
      clock->Advance((kLimitMs + 1) * kNsPerMs);
      for (const auto& watchdog : watchdogs) watchdog->Poll();
    }
  }

  static std::string Texts(const Result& result) {
    return absl::StrJoin(result.statuses, "\n", absl::StreamFormatter());
  }

  std::unique_ptr<TestWorld> world_;
};

// Returns how many messages the victim sends in the first two of three all-reduces. In the last one, devices that need
// no more messages from the victim may already have finished without an error.
int64_t MessagesOf(const std::string& algorithm) {
  return algorithm == "direct_one_shot" ? 2 * (kDevices - 1) : 2 * 2 * (kDevices - 1);
}

const char* const kAlgorithms[] = {"ring", "direct", "direct_one_shot"};

TEST_P(FaultTest, WithoutAFaultTheSumIsRight) {
  FaultPlan plan;
  plan.message = 1 << 30;
  const Result result = Run(plan, "ring");
  EXPECT_FALSE(result.happened);
  for (int device = 0; device < kDevices; ++device) {
    ASSERT_TRUE(result.statuses[device].ok()) << result.statuses[device];
    // The result after three all-reduces: 10, 40, 160.
    EXPECT_EQ(result.values[device], std::vector<float>(3000, 160));
  }
}

TEST_P(FaultTest, ALostOrRepeatedMessageIsNamed) {
  for (const Fault fault : {Fault::kDrop, Fault::kDuplicate, Fault::kCorruptHeader, Fault::kHalfClose}) {
    for (const char* algorithm : kAlgorithms) {
      // If no message follows a duplicate in its own all-reduce, the next all-reduce finds it.
      const int64_t messages = MessagesOf(algorithm) / (fault == Fault::kDuplicate ? 2 : 1);
      for (int64_t message = 0; message < messages; message += 4) {
        FaultPlan plan;
        plan.fault = fault;
        plan.message = message;
        const Result result = Run(plan, algorithm);
        SCOPED_TRACE(absl::StrCat(algorithm, ", fault ", static_cast<int>(fault), ", message ", message));
        EXPECT_TRUE(result.happened);
        int named = 0;
        for (const absl::Status& status : result.statuses) {
          EXPECT_FALSE(status.ok()) << Texts(result);
          const std::string text(status.message());
          EXPECT_THAT(text, HasSubstr("all-reduce.5"));
          // The error names a message of another position in the schedule, or the operations that wait for a message.
          EXPECT_THAT(text, AnyOf(AllOf(HasSubstr("ranks disagree"), HasSubstr("message")), HasSubstr("no progress")));
        }
        for (const int device : {0, 2, 3}) {
          const std::string text(result.statuses[device].message());
          named += text.find("device 1") != std::string::npos || text.find("<-1") != std::string::npos;
        }
        EXPECT_GE(named, 1) << Texts(result);
      }
    }
  }
}

TEST_P(FaultTest, ADelayedMessageChangesNothing) {
  for (const char* algorithm : kAlgorithms) {
    FaultPlan plan;
    plan.fault = Fault::kDelay;
    plan.message = 3;
    plan.at_fault = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
    const Result result = Run(plan, algorithm, /*checksums=*/true);
    EXPECT_TRUE(result.happened);
    for (const absl::Status& status : result.statuses) EXPECT_TRUE(status.ok()) << Texts(result);
  }
}

TEST_P(FaultTest, AChecksumNamesTheHopThatChangedAPayload) {
  for (const char* algorithm : kAlgorithms) {
    for (int64_t message = 0; message < MessagesOf(algorithm); message += 5) {
      for (const int64_t count : {100, 40000}) {
        FaultPlan plan;
        plan.fault = Fault::kCorrupt;
        plan.message = message;
        const Result result = Run(plan, algorithm, /*checksums=*/true, count);
        EXPECT_TRUE(result.happened);
        int named = 0;
        for (const absl::Status& status : result.statuses) {
          const std::string text(status.message());
          EXPECT_THAT(text, HasSubstr("was changed on its way from device 1")) << Texts(result);
          named += absl::IsDataLoss(status) && text.find("found a wrong checksum") != std::string::npos;
        }
        EXPECT_GE(named, 1) << Texts(result);
      }
    }
  }
}

TEST_P(FaultTest, TheEndOfADeviceIsNamedByAllOthers) {
  for (const char* algorithm : kAlgorithms) {
    for (int64_t message = 0; message < MessagesOf(algorithm); message += 3) {
      FaultPlan plan;
      plan.fault = Fault::kKill;
      plan.message = message;
      const Result result = Run(plan, algorithm);
      EXPECT_TRUE(result.happened);
      for (int device = 0; device < kDevices; ++device) {
        const std::string text(result.statuses[device].message());
        const char* const expected = device == kVictim ? "ended this device" : "device 1 is killed";
        EXPECT_THAT(text, HasSubstr(expected)) << Texts(result);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, FaultTest,
                         ::testing::Values(Way{"in_process", {{0, 1, 2, 3}}}, Way{"tcp", {{0}, {1}, {2}, {3}}},
                                           Way{"shared", {{0}, {1}, {2}, {3}}, 64 << 10},
                                           Way{"mixed", {{0, 1}, {2, 3}}},
                                           Way{"skeleton", {{0}, {1}, {2}, {3}}, 0, true}),
                         [](const auto& info) { return info.param.name; });

TEST(PayloadChecksum, DependsOnBytesAndNotOnPieces) {
  std::vector<std::byte> all(20011);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i * 7 + i / 256);
  const ConstPiece whole(all);
  const uint32_t checksum = PayloadChecksum({whole});
  for (const size_t cut : {0, 1, 4095, 4096, 4097, 8192, 20011}) {
    EXPECT_EQ(PayloadChecksum({whole.subspan(0, cut), ConstPiece(), whole.subspan(cut)}), checksum) << cut;
  }
  for (const size_t at : {0, 4095, 4096, 20010}) {
    all[at] ^= std::byte{1};
    EXPECT_NE(PayloadChecksum({whole}), checksum) << at;
    all[at] ^= std::byte{1};
  }
  EXPECT_NE(PayloadChecksum({}), 0u);
  EXPECT_NE(PayloadChecksum({whole.first(20010)}), checksum);
}

}  // namespace
}  // namespace xlad::collectives
