// Tests how the results of one step become the parameters of the next step.
#include "runtime/device_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "runtime/devices/opaque/opaque_device.h"
#include "runtime/testing/test_support.h"

namespace xlad::runtime {
namespace {

using ::testing::HasSubstr;

// An executable whose parameters and results have 4 bytes each. Result r feeds parameter feeds[r], and is in the
// allocation of parameter shares[r], or in its own allocation if shares[r] is -1.
struct Entry {
  Executable executable;
  JobSpec spec;
};

Entry MakeEntry(int parameters, const std::vector<int>& feeds, const std::vector<int>& shares) {
  Entry entry;
  for (int p = 0; p < parameters; ++p) {
    const int allocation = AddAllocation(&entry.executable, Allocation::PARAMETER, 4);
    EntryValue* value = entry.executable.add_parameters();
    *value->mutable_buffer() = Whole(entry.executable, allocation);
    value->set_donated(true);
    JobSpec::Parameter* parameter = entry.spec.add_parameters();
    parameter->set_kind(JobSpec::Parameter::STATE);
    parameter->set_name(absl::StrCat("p", p));
  }
  for (size_t r = 0; r < feeds.size(); ++r) {
    const int allocation = shares[r] >= 0 ? shares[r] : AddAllocation(&entry.executable, Allocation::RESULT, 4);
    *entry.executable.add_results()->mutable_buffer() = Whole(entry.executable, allocation);
    JobSpec::Result* result = entry.spec.add_results();
    result->set_kind(JobSpec::Result::STATE);
    result->set_feeds(feeds[r]);
  }
  return entry;
}

Slice ToSlice(const BufferSlice& slice) { return {slice.allocation(), slice.offset(), slice.bytes()}; }

void WriteInt(DeviceBuffers& buffers, const BufferSlice& slice, int32_t value) {
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(&value), sizeof value);
  ASSERT_TRUE(buffers.Write(ToSlice(slice), bytes).ok());
}

int32_t ReadInt(const DeviceBuffers& buffers, const BufferSlice& slice) {
  int32_t value = 0;
  EXPECT_TRUE(buffers.Read(ToSlice(slice), {reinterpret_cast<std::byte*>(&value), sizeof value}).ok());
  return value;
}

TEST(DeviceBuffers, OutOfMemoryErrorsNameTheLargestValues) {
  Entry entry = MakeEntry(2, {0}, {0});
  constexpr int64_t kTooMuch = int64_t{1} << 60;
  const int arena = AddAllocation(&entry.executable, Allocation::TEMPORARY, kTooMuch);
  // The constant is allocated before the arena, although the executable lists it after the arena.
  const int constant = AddAllocation(&entry.executable, Allocation::CONSTANT, 16);
  entry.executable.mutable_allocations(constant)->set_blob(std::string(16, '\0'));
  Step step = KernelOn(entry.executable, "sort.3", {0, 1});
  SetSlice(step.mutable_kernel()->add_buffers(), arena, 64, kTooMuch - 64);
  *entry.executable.add_steps() = KernelOn(entry.executable, "add.1", {0, 1});
  SetSlice(entry.executable.mutable_steps(0)->mutable_kernel()->add_buffers(), arena, 0, 64);
  step.set_source("train.py:31");
  *entry.executable.add_steps()->mutable_while_()->add_body() = step;
  const std::unique_ptr<Device> device = MakeCpuDevice();
  const FeedPlan plan = *PlanFeeds(entry.executable, entry.spec);
  const std::unique_ptr<Stream> stream = *device->MakeStream();
  const Constants constants = *MakeConstants(device.get(), entry.executable);
  const auto made = DeviceBuffers::Allocate(device.get(), stream.get(), entry.executable, plan, constants.addresses);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kResourceExhausted);
  for (const std::string& words :
       {absl::StrCat("cannot allocate ", kTooMuch, " bytes; the largest values: sort.3 (train.py:31) (temporary, "
                     "1.15 EB), add.1 (temporary, 64 B); the program"),
        absl::StrCat("needs ", kTooMuch + 8 + 16), std::string("of which 24 are allocated")}) {
    EXPECT_THAT(std::string(made.status().message()), HasSubstr(words));
  }
}

// In each of several rounds, writes a different number into every result, calls FeedBack, and checks that the
// parameters contain these numbers.
void CheckFeedsOn(const Entry& entry, Device* device) {
  const absl::StatusOr<FeedPlan> plan = PlanFeeds(entry.executable, entry.spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Constants constants = *MakeConstants(device, entry.executable);
  const std::unique_ptr<Stream> stream = *device->MakeStream();
  const std::unique_ptr<DeviceBuffers> buffers =
      *DeviceBuffers::Allocate(device, stream.get(), entry.executable, *plan, constants.addresses);
  std::map<int, int> expected;
  for (int p = 0; p < entry.executable.parameters_size(); ++p) {
    WriteInt(*buffers, entry.executable.parameters(p).buffer(), expected[p] = 1000 + p);
  }
  ASSERT_TRUE(buffers->SaveState().ok());
  for (int round = 0; round < 4; ++round) {
    ASSERT_TRUE(buffers->RestoreState().ok());
    for (int p = 0; p < entry.executable.parameters_size(); ++p) {
      ASSERT_EQ(ReadInt(*buffers, entry.executable.parameters(p).buffer()), expected[p])
          << "round " << round << ", " << p;
    }
    // A step may overwrite every donated parameter.
    for (int p = 0; p < entry.executable.parameters_size(); ++p) {
      WriteInt(*buffers, entry.executable.parameters(p).buffer(), -1);
    }
    for (int r = 0; r < entry.executable.results_size(); ++r) {
      WriteInt(*buffers, entry.executable.results(r).buffer(), 100 * round + r);
      if (entry.spec.results(r).feeds() >= 0)
        expected[static_cast<int>(entry.spec.results(r).feeds())] = 100 * round + r;
    }
    ASSERT_TRUE(buffers->FeedBack().ok());
  }
}

void CheckFeeds(const Entry& entry) {
  CheckFeedsOn(entry, MakeCpuDevice().get());
  CheckFeedsOn(entry, MakeOpaqueDevice()->get());
}

TEST(DeviceBuffers, DonatedParameters) { CheckFeeds(MakeEntry(3, {0, 1, 2}, {0, 1, 2})); }
TEST(DeviceBuffers, ExchangedAllocations) { CheckFeeds(MakeEntry(3, {2, 0, 1}, {-1, -1, -1})); }
TEST(DeviceBuffers, ResultsInAllocationsOfOtherParameters) { CheckFeeds(MakeEntry(3, {0, 1, 2}, {1, 2, 0})); }
TEST(DeviceBuffers, ChainsFromResultsThroughParameters) { CheckFeeds(MakeEntry(3, {0, 1, 2}, {-1, 0, 1})); }
TEST(DeviceBuffers, StateThatNoResultFeedsIsRestored) { CheckFeeds(MakeEntry(3, {1, -1}, {-1, 0})); }

TEST(DeviceBuffers, RandomFeeds) {
  const std::unique_ptr<Random> random = SeededRandom(21);
  for (int round = 0; round < 300; ++round) {
    const int n = 1 + static_cast<int>(random->Below(6));
    const auto shuffled = [&] {
      std::vector<int> order(n);
      std::iota(order.begin(), order.end(), 0);
      for (int i = n - 1; i > 0; --i) std::swap(order[i], order[random->Below(i + 1)]);
      for (int& value : order) value = random->Below(3) == 0 ? -1 : value;
      return order;
    };
    CheckFeeds(MakeEntry(n, shuffled(), shuffled()));
  }
}

TEST(DeviceBuffers, ResultsThatArePartsOfAnAllocationAreCopied) {
  Entry entry = MakeEntry(2, {1, 0}, {-1, -1});
  const int both = AddAllocation(&entry.executable, Allocation::RESULT, 8);
  SetSlice(entry.executable.mutable_results(0)->mutable_buffer(), both, 0, 4);
  SetSlice(entry.executable.mutable_results(1)->mutable_buffer(), both, 4, 4);
  CheckFeeds(entry);
}

// A copied result or its parameter shares memory with a result that is exchanged with its parameter.
TEST(DeviceBuffers, RefusesCopiesFromAndToExchangedMemory) {
  const auto message = [](Entry entry) {
    for (int r = 0; r < entry.spec.results_size(); ++r) entry.spec.mutable_results(r)->set_name(absl::StrCat("r", r));
    const absl::Status status = PlanFeeds(entry.executable, entry.spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    return std::string(status.message());
  };
  Entry from = MakeEntry(2, {0, 1}, {-1, -1});
  *from.executable.mutable_results(1)->mutable_buffer() = from.executable.results(0).buffer();
  EXPECT_THAT(message(from), HasSubstr("result 1 (\"r1\"): found a result that must be copied to its parameter, but "
                                       "allocation 2, which contains the result, is exchanged"));
  Entry to = MakeEntry(2, {0, 1}, {1, -1});
  const int large = AddAllocation(&to.executable, Allocation::RESULT, 8);
  SetSlice(to.executable.mutable_results(1)->mutable_buffer(), large, 4, 4);
  EXPECT_THAT(message(to), HasSubstr("result 1 (\"r1\"): found a result that must be copied to its parameter, but "
                                     "allocation 1, which contains the parameter, is exchanged"));
}

TEST(DeviceBuffers, RefusesEntriesThatDoNotMatch) {
  const auto message = [](const Entry& entry) {
    return std::string(PlanFeeds(entry.executable, entry.spec).status().message());
  };
  Entry entry = MakeEntry(2, {0, 0}, {-1, -1});
  EXPECT_THAT(message(entry), HasSubstr("result 1 (\"\"): found that it feeds parameter 0"));
  entry = MakeEntry(2, {7}, {-1});
  EXPECT_THAT(message(entry), HasSubstr("feeds parameter 7"));
  entry = MakeEntry(1, {0}, {-1});
  entry.executable.mutable_allocations(1)->set_bytes(8);
  entry.executable.mutable_results(0)->mutable_buffer()->set_bytes(8);
  EXPECT_THAT(message(entry), HasSubstr("found 8 bytes on a device, expected 4"));
  entry.spec.add_parameters();
  EXPECT_THAT(message(entry), HasSubstr("parameters and results: found 1 and 1, expected 2 and 1"));
  entry = MakeEntry(1, {0}, {-1});
  AddAllocation(&entry.executable, Allocation::CONSTANT, 16);
  const std::unique_ptr<Device> device = MakeCpuDevice();
  EXPECT_THAT(std::string(MakeConstants(device.get(), entry.executable).status().message()),
              HasSubstr("found a constant of 0 bytes, expected 16"));
}

}  // namespace
}  // namespace xlad::runtime
