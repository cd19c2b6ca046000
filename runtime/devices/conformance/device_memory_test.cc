// Memory and copies of every kind of device.
#include <algorithm>
#include <numeric>

#include "base/process/memory_limit.h"
#include "runtime/devices/conformance/device_conformance_fixture.h"

namespace xlad::runtime {
namespace {

using MemoryConformance = DeviceConformance;
using CopyConformance = DeviceConformance;

TEST_P(MemoryConformance, AllocationsAreAligned) {
  for (const int64_t bytes : {0, 1, 63, 64, 65, 4096, 1 << 20}) {
    const auto memory = device_->Allocate(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->address()) % XLAD_BUFFER_ALIGNMENT, 0u) << bytes;
    EXPECT_EQ((*memory)->bytes(), bytes);
  }
}

TEST_P(MemoryConformance, AllocationsDoNotOverlap) {
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  for (int i = 0; i < 100; ++i) memory.push_back(*device_->Allocate(100 + i));
  std::sort(memory.begin(), memory.end(), [](const auto& a, const auto& b) { return a->address() < b->address(); });
  for (size_t i = 1; i < memory.size(); ++i) {
    EXPECT_LE(Add(memory[i - 1]->address(), memory[i - 1]->bytes()), memory[i]->address());
  }
}

TEST_P(MemoryConformance, AllocationsOfZeroBytesHaveDifferentAddresses) {
  const auto a = *device_->Allocate(0), b = *device_->Allocate(0);
  EXPECT_NE(a->address(), nullptr);
  EXPECT_NE(a->address(), b->address());
}

TEST_P(MemoryConformance, LargeAllocationsCanBeUsedToTheEnd) {
  const int64_t bytes = int64_t{256} << 20;
  const auto memory = device_->Allocate(bytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::byte* const last = Add((*memory)->address(), bytes - 4);
  const std::vector<float> value = {5};
  ASSERT_TRUE(stream_->CopyToDevice((*memory)->address(), BytesOf(value)).ok());
  ASSERT_TRUE(stream_->CopyToDevice(last, BytesOf(value)).ok());
  EXPECT_EQ(Download(last, 1), value);
  EXPECT_EQ(Download((*memory)->address(), 1), value);
}

TEST_P(MemoryConformance, NegativeSizesAreRefused) {
  for (const int64_t bytes : {int64_t{-1}, INT64_MIN}) {
    EXPECT_EQ(device_->Allocate(bytes).status().code(), absl::StatusCode::kResourceExhausted) << bytes;
  }
}

TEST_P(MemoryConformance, HugeSizesAreRefused) {
  for (const int64_t bytes : {int64_t{1} << 50, INT64_MAX - 100, INT64_MAX}) {
    EXPECT_EQ(device_->Allocate(bytes).status().code(), absl::StatusCode::kResourceExhausted) << bytes;
  }
}

// Nothing is written to this memory, so the machine need not have as much.
TEST_P(MemoryConformance, TheSumOfAllocationsIsLimited) {
  if (stream_->host_can_access()) GTEST_SKIP() << "the memory of this device is the host's, which the system limits";
  if (GetParam().name == "cuda") GTEST_SKIP() << "a GPU has its own memory (cuda_device_test.cc)";
  const int64_t bytes = UsableMemoryBytes() / 2 + 1;
  auto first = device_->Allocate(bytes);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = device_->Allocate(bytes).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted);
  for (const std::string& word : {device_->Name(), absl::StrCat("cannot allocate ", bytes), std::string("may use")}) {
    EXPECT_NE(second.message().find(word), std::string::npos) << second;
  }
  first->reset();
  EXPECT_TRUE(device_->Allocate(bytes).ok());
}

TEST_P(MemoryConformance, ADeviceIsUsableAfterItRanOutOfMemory) {
  EXPECT_FALSE(device_->Allocate(int64_t{1} << 50).ok());
  const auto memory = Upload(Sequence(10));
  EXPECT_EQ(Download(memory->address(), 10), Sequence(10));
}

TEST_P(MemoryConformance, FreedMemoryIsReused) {
  // The allocations have 62.5 GiB in total, so most devices run out of memory unless they reuse freed memory.
  for (int i = 0; i < 1000; ++i) {
    const auto memory = device_->Allocate(64 << 20);
    ASSERT_TRUE(memory.ok()) << i << ": " << memory.status();
    ASSERT_TRUE(stream_->FillZero((*memory)->address(), 4096).ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
  }
}

TEST_P(MemoryConformance, ThousandsOfAllocationsKeepTheirContents) {
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  for (int i = 0; i < 3000; ++i) memory.push_back(Upload(std::vector<int32_t>{i}));
  for (int i = 0; i < 3000; i += 7) EXPECT_EQ(Download<int32_t>(memory[i]->address(), 1)[0], i);
}

TEST_P(MemoryConformance, EveryKindOfMemoryInTheRegistryCanBeAllocated) {
  EXPECT_FALSE(GetParam().memory.empty());
  for (const MemoryKind kind : GetParam().memory) {
    const auto memory = Upload(Sequence(100), kind);
    EXPECT_EQ(Download(memory->address(), 100), Sequence(100)) << MemoryKindName(kind);
  }
}

TEST_P(MemoryConformance, TheHostCanAccessPinnedHostMemory) {
  if (!HasMemory(MEMORY_PINNED_HOST)) GTEST_SKIP() << GetParam().name << " has no pinned host memory";
  const auto memory = Upload(Sequence(100), MEMORY_PINNED_HOST);
  float* const values = static_cast<float*>(memory->address());
  EXPECT_EQ(values[99], 99);
  values[99] = 7;
  EXPECT_EQ(Download(values + 99, 1)[0], 7);
}

TEST_P(MemoryConformance, KindsOfMemoryThatAreNotInTheRegistryAreRefused) {
  for (const MemoryKind kind : {MEMORY_DEVICE, MEMORY_PINNED_HOST}) {
    const absl::Status status = device_->Allocate(1, kind).status();
    EXPECT_EQ(status.code(), HasMemory(kind) ? absl::StatusCode::kOk : absl::StatusCode::kInvalidArgument) << status;
  }
}

TEST_P(MemoryConformance, UnknownKindsOfMemoryAreRefused) {
  EXPECT_EQ(device_->Allocate(1, static_cast<MemoryKind>(99)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(MemoryConformance, TheHostCannotAccessMemoryThatItMayNotAccess) {
  if (stream_->host_can_access()) GTEST_SKIP() << "the host may access the memory of this kind of device";
  const auto memory = Upload(Sequence(10));
  volatile char* const address = static_cast<char*>(memory->address());
  EXPECT_DEATH({ (void)*address; }, "");
  EXPECT_DEATH({ *address = 1; }, "");
}

TEST_P(MemoryConformance, AddressesOfFreedMemoryAreRefused) {
  if (!ChecksAddresses()) GTEST_SKIP() << "this kind of device does not check addresses";
  void* const address = FreedAddress();
  std::vector<float> values(10);
  EXPECT_EQ(stream_->CopyToHost(MutableBytesOf(values), address).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->CopyToDevice(address, BytesOf(values)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->FillZero(address, 40).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(MemoryConformance, RangesThatLeaveAnAllocationAreRefused) {
  if (!ChecksAddresses()) GTEST_SKIP() << "this kind of device does not check addresses";
  const auto memory = *device_->Allocate(100);
  EXPECT_TRUE(stream_->FillZero(memory->address(), 100).ok());
  EXPECT_EQ(stream_->FillZero(memory->address(), 101).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->FillZero(Add(memory->address(), 96), 8).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->FillZero(memory->address(), INT64_MAX).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->FillZero(Add(memory->address(), -4), 8).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(stream_->Synchronize().ok());
}

TEST_P(CopyConformance, HostToDeviceAndBack) {
  for (const int64_t count : {0, 1, 3, 16, 1000, 1 << 20}) {
    const auto memory = Upload(Sequence(count));
    EXPECT_EQ(Download(memory->address(), count), Sequence(count)) << count;
  }
}

TEST_P(CopyConformance, TheSourceOnTheHostMayBeReusedAtOnce) {
  const auto memory = *device_->Allocate(1 << 20);
  for (int round = 0; round < 100; ++round) {
    std::vector<int32_t> values(1000, round);
    ASSERT_TRUE(stream_->CopyToDevice(Add(memory->address(), 4000 * round), BytesOf(values)).ok());
    std::fill(values.begin(), values.end(), -1);
  }
  const std::vector<int32_t> found = Download<int32_t>(memory->address(), 100'000);
  for (int i = 0; i < 100'000; ++i) ASSERT_EQ(found[i], i / 1000);
}

TEST_P(CopyConformance, PartsOfAnAllocation) {
  const auto memory = Upload(Sequence(100));
  const std::vector<float> part = {-1, -2};
  ASSERT_TRUE(stream_->CopyToDevice(Add(memory->address(), 40), BytesOf(part)).ok());
  std::vector<float> expected = Sequence(100);
  expected[10] = -1;
  expected[11] = -2;
  EXPECT_EQ(Download(memory->address(), 100), expected);
  EXPECT_EQ(Download(Add(memory->address(), 44), 2), (std::vector<float>{-2, 12}));
}

TEST_P(CopyConformance, DeviceToDevice) {
  const auto from = Upload(Sequence(1000)), to = Upload(std::vector<float>(1000));
  ASSERT_TRUE(stream_->Copy(Add(to->address(), 400), from->address(), 400).ok());
  const std::vector<float> found = Download(to->address(), 1000);
  EXPECT_EQ(found[99], 0);
  EXPECT_EQ(found[100], 0);
  EXPECT_EQ(found[101], 1);
  EXPECT_EQ(found[199], 99);
  EXPECT_EQ(found[200], 0);
}

TEST_P(CopyConformance, BetweenKindsOfMemory) {
  for (const MemoryKind from_kind : GetParam().memory) {
    for (const MemoryKind to_kind : GetParam().memory) {
      const auto from = Upload(Sequence(100), from_kind);
      const auto to = *device_->Allocate(400, to_kind);
      ASSERT_TRUE(stream_->Copy(to->address(), from->address(), 400).ok());
      EXPECT_EQ(Download(to->address(), 100), Sequence(100));
    }
  }
}

TEST_P(CopyConformance, OverlappingRanges) {
  for (const int64_t shift : {1, 7, 64, 500, 999}) {
    std::vector<float> expected = Sequence(2000);
    auto memory = Upload(expected);
    ASSERT_TRUE(stream_->Copy(Add(memory->address(), 4 * shift), memory->address(), 4000).ok());
    for (int64_t i = 0; i < 1000; ++i) expected[i + shift] = static_cast<float>(i);
    EXPECT_EQ(Download(memory->address(), 2000), expected) << "to higher addresses by " << shift;
    memory = Upload(Sequence(2000));
    ASSERT_TRUE(stream_->Copy(memory->address(), Add(memory->address(), 4 * shift), 4000).ok());
    expected = Sequence(2000);
    for (int64_t i = 0; i < 1000; ++i) expected[i] = static_cast<float>(i + shift);
    EXPECT_EQ(Download(memory->address(), 2000), expected) << "to lower addresses by " << shift;
  }
}

TEST_P(CopyConformance, ARangeToItself) {
  const auto memory = Upload(Sequence(100));
  ASSERT_TRUE(stream_->Copy(memory->address(), memory->address(), 400).ok());
  EXPECT_EQ(Download(memory->address(), 100), Sequence(100));
}

TEST_P(CopyConformance, ZeroBytesAnywhere) {
  const auto memory = Upload(Sequence(4));
  void* const end = Add(memory->address(), 16);
  EXPECT_TRUE(stream_->CopyToDevice(end, {}).ok());
  EXPECT_TRUE(stream_->CopyToHost({}, end).ok());
  EXPECT_TRUE(stream_->Copy(end, memory->address(), 0).ok());
  EXPECT_TRUE(stream_->FillZero(end, 0).ok());
  EXPECT_TRUE(stream_->CopyToDevice(nullptr, {}).ok());
  EXPECT_EQ(Download(memory->address(), 4), Sequence(4));
}

TEST_P(CopyConformance, FillZeroChangesItsRangeOnly) {
  const auto memory = Upload(Sequence(100, 1));
  ASSERT_TRUE(stream_->FillZero(Add(memory->address(), 40), 80).ok());
  std::vector<float> expected = Sequence(100, 1);
  std::fill(expected.begin() + 10, expected.begin() + 30, 0.0f);
  EXPECT_EQ(Download(memory->address(), 100), expected);
}

TEST_P(CopyConformance, NegativeSizesAreInvalid) {
  const auto memory = Upload(Sequence(100));
  EXPECT_EQ(stream_->Copy(memory->address(), memory->address(), -1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_->FillZero(memory->address(), -1).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(CopyConformance, LargeCopies) {
  std::vector<int32_t> values((64 << 20) / 4);
  std::iota(values.begin(), values.end(), 0);
  const auto from = Upload(values);
  const auto to = *device_->Allocate(64 << 20);
  ASSERT_TRUE(stream_->Copy(to->address(), from->address(), 64 << 20).ok());
  EXPECT_EQ(Download<int32_t>(to->address(), std::ssize(values)), values);
}

INSTANTIATE_TEST_SUITE_P(Copies, CopyConformance, ::testing::ValuesIn(AllKinds()), KindName);
INSTANTIATE_TEST_SUITE_P(Memory, MemoryConformance, ::testing::ValuesIn(AllKinds()), KindName);

}  // namespace
}  // namespace xlad::runtime
