// Collectives on buffers that the host cannot access: which bytes are copied, and when.
#include "collectives/exec/staged_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "collectives/exec/layout.h"
#include "collectives/exec/testing/everything.h"
#include "collectives/exec/testing/partial_device_ops.h"
#include "collectives/exec/testing/test_world.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/testing/make_spec.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

// A device with a memory of floats, 256 by default. If the host can access the memory, device addresses are the
// addresses in the array `memory`. Otherwise they are larger by kAway bytes. Copies happen when the stream is
// synchronized.
class FakeDevice final : public PartialDeviceOps {
 public:
  static constexpr intptr_t kAway = intptr_t{1} << 46;

  explicit FakeDevice(bool accessible) : accessible_(accessible) {}

  bool host_can_access() const override { return accessible_; }
  absl::Status CopyToDevice(void* to, absl::Span<const std::byte> from) override {
    const std::vector<std::byte> bytes(from.begin(), from.end());
    CheckInside(to, bytes.size());
    pending_.push_back([=, this] { std::memcpy(OnHost(to), bytes.data(), bytes.size()); });
    return absl::OkStatus();
  }
  absl::Status CopyToHost(absl::Span<std::byte> to, const void* from) override {
    CheckInside(from, to.size());
    if (copies_to_host-- == 0) return absl::InternalError("the copy was refused");
    pending_.push_back([=, this] { std::memcpy(to.data(), OnHost(from), to.size()); });
    return absl::OkStatus();
  }
  absl::Status Synchronize() override {
    ++synchronized;
    for (const auto& copy : pending_) copy();
    pending_.clear();
    return error;
  }

  std::byte* At(int64_t element) {
    const auto on_host = reinterpret_cast<intptr_t>(memory.data() + element);
    return reinterpret_cast<std::byte*>(on_host + (accessible_ ? 0 : kAway));
  }
  float* OnHost(const void* address) const {
    return reinterpret_cast<float*>(reinterpret_cast<intptr_t>(address) - (accessible_ ? 0 : kAway));
  }

  std::vector<float> memory = std::vector<float>(256);
  absl::Status error;
  int synchronized = 0;
  int copies_to_host = -1;  // The number of copies until one fails; negative if none fails.

  size_t pending() const { return pending_.size(); }

 private:
  void CheckInside(const void* address, size_t bytes) const {
    const int64_t begin = OnHost(address) - memory.data(), count = static_cast<int64_t>(bytes / sizeof(float));
    XLAD_CHECK(begin >= 0 && begin + count <= std::ssize(memory)) << "copies outside the device's memory";
  }

  const bool accessible_;
  std::vector<std::function<void()>> pending_;
};

// Writes input i plus 100 (i + 1) to output i, for each element, and 0 to elements that the input lacks.
class AddHundreds final : public Communicator {
 public:
  AddHundreds(const CollectiveSet& set, absl::Status result) : set_(set), result_(std::move(result)) {}

  absl::Status Launch(const CollectiveLaunch& launch) override {
    const CollectiveSpec& spec = set_.collectives[launch.spec].spec;
    if (launch.inputs.size() != spec.counts.size()) return absl::InvalidArgumentError("wrong number of operands");
    for (size_t i = 0; i < launch.inputs.size(); ++i) {
      const auto* in = reinterpret_cast<const float*>(launch.inputs[i]);
      auto* out = reinterpret_cast<float*>(launch.outputs[i]);
      in_place += launch.inputs[i] == launch.outputs[i];
      EXPECT_EQ(reinterpret_cast<intptr_t>(in) % 64, 0);
      for (int64_t e = 0; e < spec.output_counts()[i]; ++e) {
        out[e] = e < spec.counts[i] ? in[e] + 100.0F * static_cast<float>(i + 1) : 0;
      }
    }
    at = {launch.step, launch.iteration};
    return result_;
  }

  int in_place = 0;
  std::pair<int64_t, uint64_t> at;

 private:
  const CollectiveSet& set_;
  const absl::Status result_;
};

// All-reduces of 3 and 17 floats (collective 0), and an all-gather of 5 floats over 2 ranks (collective 1).
CollectiveSet Set() {
  CollectiveSet set;
  set.num_devices = 2;
  set.collectives.resize(2);
  set.collectives[0].spec = {CollectiveKind::kAllReduce, Reduction::kSum, tensor::ElementType::kF32, {3, 17}, 2, {}};
  set.collectives[1].spec = {CollectiveKind::kAllGather, Reduction::kNone, tensor::ElementType::kF32, {5}, 2, {}};
  for (Collective& collective : set.collectives) collective.groups = {{0, 1}};
  return set;
}

struct Staged {
  explicit Staged(absl::Status result = absl::OkStatus()) {
    auto made = std::make_unique<AddHundreds>(set, std::move(result));
    inner = made.get();
    communicator.emplace(&device, &set, 0, std::move(made));
    for (size_t i = 0; i < device.memory.size(); ++i) device.memory[i] = static_cast<float>(i);
  }
  // Launches a collective on buffers that begin at these elements of the device's memory.
  absl::Status Launch(int spec, const std::vector<int64_t>& inputs, const std::vector<int64_t>& outputs) {
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (const int64_t element : inputs) from.push_back(device.At(element));
    for (const int64_t element : outputs) to.push_back(device.At(element));
    XLAD_RETURN_IF_ERROR(communicator->Launch({spec, from, to, 7, 11}));
    return device.Synchronize();
  }

  const CollectiveSet set = Set();
  FakeDevice device{false};
  AddHundreds* inner = nullptr;
  std::optional<StagedCommunicator> communicator;
};

TEST(StagedCommunicator, CopiesInputsAndOutputs) {
  Staged staged;
  ASSERT_TRUE(staged.Launch(0, {0, 64}, {128, 192}).ok());
  EXPECT_EQ(staged.device.memory[0], 0);
  for (int e = 0; e < 3; ++e) EXPECT_EQ(staged.device.memory[128 + e], static_cast<float>(e + 100));
  for (int e = 0; e < 17; ++e) EXPECT_EQ(staged.device.memory[192 + e], static_cast<float>(64 + e + 200));
  EXPECT_EQ(staged.device.memory[131], 131);  // Elements after the outputs keep their values.
  EXPECT_EQ(staged.device.memory[192 + 17], 192 + 17);
  EXPECT_EQ(staged.inner->in_place, 0);
  EXPECT_EQ(staged.inner->at, (std::pair<int64_t, uint64_t>{7, 11}));
}

// A schedule in place may read what it wrote before, so the staged buffers must also be in place.
TEST(StagedCommunicator, OperationsInPlaceAreStagedInPlace) {
  Staged staged;
  ASSERT_TRUE(staged.Launch(0, {0, 64}, {0, 192}).ok());
  EXPECT_EQ(staged.inner->in_place, 1);
  EXPECT_EQ(staged.device.memory[2], 102);
  EXPECT_EQ(staged.device.memory[64], 64);
}

// The device may overwrite the inputs after Start. Wait copies the outputs.
TEST(StagedCommunicator, StartedCollectivesHaveBuffersOfTheirOwn) {
  Staged staged;
  const auto start = [&](int64_t input, int64_t output) {
    const std::vector<const std::byte*> from{staged.device.At(input), staged.device.At(input + 64)};
    const std::vector<std::byte*> to{staged.device.At(output), staged.device.At(output + 32)};
    return staged.communicator->Start({0, from, to, 7, 11});
  };
  const auto first = start(0, 128), second = start(32, 192);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
  for (int e = 0; e < 128; ++e) staged.device.memory[e] = -1;
  EXPECT_EQ(staged.device.memory[128], 128);
  ASSERT_TRUE(staged.communicator->Wait(*second).ok());
  ASSERT_TRUE(staged.communicator->Wait(*first).ok());
  ASSERT_TRUE(staged.device.Synchronize().ok());
  EXPECT_EQ(staged.device.memory[128], 100);
  EXPECT_EQ(staged.device.memory[128 + 32], 64 + 200);
  EXPECT_EQ(staged.device.memory[192], 32 + 100);
  EXPECT_FALSE(staged.communicator->Wait(*first).ok());
}

TEST(StagedCommunicator, OnlyRunningCollectivesAreWaitedFor) {
  Staged staged;
  const std::vector<const std::byte*> from{staged.device.At(0), staged.device.At(64)};
  const std::vector<std::byte*> to{staged.device.At(128), staged.device.At(192)};
  const auto started = staged.communicator->Start({0, from, to, 7, 11});
  ASSERT_TRUE(started.ok()) << started.status();
  const auto message = [&](int64_t number) { return std::string(staged.communicator->Wait(number).message()); };
  for (const int64_t number : {int64_t{-1}, int64_t{0}, *started + 1}) {
    EXPECT_THAT(message(number), HasSubstr(absl::StrCat("collective start ", number, ", which has not been made")));
  }
  EXPECT_EQ(message(*started), "");
  EXPECT_THAT(message(*started), HasSubstr("which has been waited for"));
}

// The copy of the first operand writes to memory that is freed if the copy of the second one fails.
TEST(StagedCommunicator, NoCopyRunsAfterALaunchThatFails) {
  Staged staged;
  staged.device.copies_to_host = 1;
  EXPECT_EQ(staged.Launch(0, {0, 64}, {128, 192}), absl::InternalError("the copy was refused"));
  EXPECT_EQ(staged.device.pending(), 0u);
  ASSERT_TRUE(staged.device.Synchronize().ok());
  ASSERT_TRUE(staged.Launch(0, {0, 64}, {128, 192}).ok());
  EXPECT_EQ(staged.device.memory[128], 100);
}

// The output is larger than the input, so the operation is not in place although both begin at the same address.
TEST(StagedCommunicator, LargerOutputsHaveTheirOwnBuffers) {
  Staged staged;
  ASSERT_TRUE(staged.Launch(1, {0}, {0}).ok());
  EXPECT_EQ(staged.inner->in_place, 0);
  EXPECT_EQ(staged.device.memory[4], 104);
  EXPECT_EQ(staged.device.memory[9], 0);
  EXPECT_EQ(staged.device.memory[10], 10);
}

TEST(StagedCommunicator, AccessibleBuffersAreNotCopied) {
  const CollectiveSet set = Set();
  FakeDevice device(true);
  StagedCommunicator communicator(&device, &set, 0, std::make_unique<AddHundreds>(set, absl::OkStatus()));
  alignas(64) const float values[] = {1, 2, 3, 4, 5};
  const std::vector<const std::byte*> inputs{reinterpret_cast<const std::byte*>(values)};
  const std::vector<std::byte*> outputs{device.At(0)};
  ASSERT_TRUE(communicator.Launch({1, inputs, outputs}).ok());
  // The stream was synchronized once, so that the inputs were complete before the launch.
  EXPECT_EQ(device.synchronized, 1);
  EXPECT_EQ(device.memory[1], 102);
}

TEST(StagedCommunicator, ErrorsComeFromTheStreamTheCollectiveAndTheLaunch) {
  Staged stopped(absl::AbortedError("peer 1 ended"));
  EXPECT_EQ(stopped.Launch(0, {0, 64}, {128, 192}), absl::AbortedError("peer 1 ended"));
  ASSERT_TRUE(stopped.device.Synchronize().ok());
  EXPECT_EQ(stopped.device.memory[128], 128);  // Outputs of a failed collective are not copied.

  Staged failed;
  failed.device.error = absl::InternalError("a kernel failed");
  EXPECT_EQ(failed.Launch(0, {0, 64}, {128, 192}), failed.device.error);
  EXPECT_EQ(failed.inner->at.first, 0);  // The collective was not started.

  Staged wrong;
  EXPECT_THAT(std::string(wrong.Launch(2, {0}, {0}).message()),
              HasSubstr("found collective 2, expected 0 or more and less than 2"));
  EXPECT_THAT(std::string(wrong.Launch(0, {0}, {0}).message()),
              HasSubstr("inputs and outputs: found 1 and 1, expected 2 and 2"));
  const CollectiveSet set = Set();
  FakeDevice device(false);
  StagedCommunicator outside(&device, &set, 2, std::make_unique<AddHundreds>(set, absl::OkStatus()));
  EXPECT_THAT(std::string(outside.Launch({0, {}, {}}).message()), HasSubstr("device 2 launches"));
}

// Returns the memory of each rank after the collective of the set: inputs and then outputs, with unused elements before
// and after each operand. If `staged` is true, the ranks are devices whose memory the host cannot access.
std::vector<std::vector<float>> MemoriesAfter(const CollectiveSet& set, bool staged) {
  constexpr int64_t kUnused = 8;
  const CollectiveSpec& spec = set.collectives[0].spec;
  std::vector<std::vector<float>> memories(spec.ranks);
  TestWorld world({{0, 1}, {2}});
  world.Run([&](int rank) {
    FakeDevice device(/*accessible=*/!staged);
    const std::vector<int64_t> inputs = InputCounts(spec, rank), outputs = OutputCounts(spec, rank);
    int64_t end = kUnused;
    for (const int64_t count : inputs) end += count + kUnused;
    for (const int64_t count : outputs) end += count + kUnused;
    device.memory.resize(end);
    for (int64_t i = 0; i < end; ++i) device.memory[i] = static_cast<float>(1000 * (rank + 1) + i);
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    int64_t at = kUnused;
    for (const int64_t count : inputs) {
      from.push_back(device.At(at));
      at += count + kUnused;
    }
    for (const int64_t count : outputs) {
      to.push_back(device.At(at));
      at += count + kUnused;
    }
    Recorder recorder(rank, &set, &RealClock());
    auto formed = world.Form(rank, &set, &recorder);
    ASSERT_TRUE(formed.ok()) << formed.status();
    StagedCommunicator communicator(&device, &set, rank, *std::move(formed));
    const absl::Status status = communicator.Launch({0, from, to});
    EXPECT_TRUE(status.ok() && device.Synchronize().ok()) << status;
    memories[rank] = device.memory;
  });
  return memories;
}

// Collectives of every kind, also with parts of different sizes and with ranks that have no input or no output.
TEST(StagedCommunicator, OperandsHaveTheSizesOfTheirRank) {
  constexpr int kRanks = 3;
  const std::unique_ptr<Random> random = SeededRandom(11);
  for (int number = 1; number <= kNumCollectiveKinds; ++number) {
    const auto kind = static_cast<CollectiveKind>(number);
    for (int round = 0; round < 4; ++round) {
      CollectiveSpec spec = MakeSpec(kind, kRanks, static_cast<int64_t>(random->Below(9)));
      if (round > 0 && (InputHasParts(kind) || OutputHasParts(kind))) {
        spec.sizes.resize(kind == CollectiveKind::kAllToAll ? kRanks * kRanks : kRanks);
        for (int64_t& size : spec.sizes) size = static_cast<int64_t>(random->Below(9));
        spec.counts = {std::accumulate(spec.sizes.begin(), spec.sizes.end(), int64_t{0})};
      } else if (round > 0 && kind != CollectiveKind::kBarrier) {
        spec.counts.push_back(static_cast<int64_t>(random->Below(9)));
      }
      const absl::StatusOr<CollectivePlan> plan = ChoosePlan(spec, {});
      ASSERT_TRUE(plan.ok()) << spec.ToString() << plan.status();
      CollectiveSet set;
      set.num_devices = kRanks;
      set.collectives.push_back(MakeCollective(spec, *plan, kRanks));
      EXPECT_EQ(MemoriesAfter(set, /*staged=*/true), MemoriesAfter(set, /*staged=*/false)) << spec.ToString();
    }
  }
}

}  // namespace
}  // namespace xlad::collectives
