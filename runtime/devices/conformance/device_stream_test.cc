// Streams, events and threads of every kind of device.
#include <atomic>
#include <thread>

#include "runtime/devices/conformance/device_conformance_fixture.h"

namespace xlad::runtime {
namespace {

using StreamConformance = DeviceConformance;

TEST_P(StreamConformance, AnEmptyStreamIsSynchronized) { EXPECT_TRUE(stream_->Synchronize().ok()); }

TEST_P(StreamConformance, WorkRunsInOrder) {
  const auto memory = *device_->Allocate(4000);
  std::vector<int32_t> expected(1000);
  for (int i = 0; i < 1000; ++i) {
    const std::vector<int32_t> value = {i};
    ASSERT_TRUE(stream_->CopyToDevice(memory->address(), BytesOf(value)).ok());
    ASSERT_TRUE(stream_->Copy(Add(memory->address(), 4 * (i % 999 + 1)), memory->address(), 4).ok());
    expected[0] = expected[i % 999 + 1] = i;
  }
  EXPECT_EQ(Download<int32_t>(memory->address(), 1000), expected);
}

TEST_P(StreamConformance, StreamsAreIndependent) {
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<std::vector<int32_t>> found(20, std::vector<int32_t>(100));
  for (int i = 0; i < 20; ++i) {
    streams.push_back(MakeStream());
    memory.push_back(*device_->Allocate(400));
    ASSERT_TRUE(streams[i]->CopyToDevice(memory[i]->address(), BytesOf(std::vector<int32_t>(100, i))).ok());
  }
  for (int i = 19; i >= 0; --i) {
    ASSERT_TRUE(streams[i]->CopyToHost(MutableBytesOf(found[i]), memory[i]->address()).ok());
    ASSERT_TRUE(streams[i]->Synchronize().ok());
    EXPECT_EQ(found[i], std::vector<int32_t>(100, i));
  }
}

TEST_P(StreamConformance, AnEventOrdersTwoStreams) {
  const auto consumer = MakeStream();
  const auto a = Upload(std::vector<int32_t>(1000)), b = Upload(std::vector<int32_t>(1000));
  ASSERT_TRUE(stream_->Synchronize().ok());
  for (int round = 1; round <= 200; ++round) {
    // The first stream writes a, the second copies a to b, and only then may the first write again.
    ASSERT_TRUE(stream_->CopyToDevice(a->address(), BytesOf(std::vector<int32_t>(1000, round))).ok());
    const auto written = stream_->Record();
    ASSERT_TRUE(written.ok()) << written.status();
    ASSERT_TRUE(consumer->WaitFor(**written).ok());
    ASSERT_TRUE(consumer->Copy(b->address(), a->address(), 4000).ok());
    const auto copied = consumer->Record();
    ASSERT_TRUE(copied.ok()) << copied.status();
    ASSERT_TRUE(stream_->WaitFor(**copied).ok());
    ASSERT_TRUE(stream_->FillZero(a->address(), 4000).ok());
    if (round % 50 != 0) continue;
    std::vector<int32_t> found(1000);
    ASSERT_TRUE(consumer->CopyToHost(MutableBytesOf(found), b->address()).ok());
    ASSERT_TRUE(consumer->Synchronize().ok());
    EXPECT_EQ(found, std::vector<int32_t>(1000, round));
  }
  ASSERT_TRUE(stream_->Synchronize().ok());
}

TEST_P(StreamConformance, TheHostWaitsForAnEvent) {
  const auto memory = Upload(Sequence(1000));
  std::vector<float> found(1000);
  ASSERT_TRUE(stream_->CopyToHost(MutableBytesOf(found), memory->address()).ok());
  const auto event = stream_->Record();
  ASSERT_TRUE(event.ok()) << event.status();
  ASSERT_TRUE((*event)->Wait().ok());
  EXPECT_TRUE((*event)->IsDone());
  EXPECT_EQ(found, Sequence(1000));
}

TEST_P(StreamConformance, AnEventIsDoneAfterSynchronize) {
  const auto event = stream_->Record();
  ASSERT_TRUE(event.ok()) << event.status();
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_TRUE((*event)->IsDone());
  EXPECT_TRUE((*event)->Wait().ok());
}

TEST_P(StreamConformance, AnEventOutlivesItsStream) {
  auto stream = MakeStream();
  const auto event = stream->Record();
  ASSERT_TRUE(event.ok()) << event.status();
  stream.reset();
  EXPECT_TRUE((*event)->Wait().ok());
  EXPECT_TRUE(stream_->WaitFor(**event).ok());
  EXPECT_TRUE(stream_->Synchronize().ok());
}

TEST_P(StreamConformance, AStreamMayWaitForItsOwnEvent) {
  const auto event = stream_->Record();
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_TRUE(stream_->WaitFor(**event).ok());
  EXPECT_TRUE(stream_->Synchronize().ok());
}

TEST_P(StreamConformance, DestroyingAStreamWaitsForItsWork) {
  const auto memory = *device_->Allocate(4000);
  std::vector<int32_t> found(1000);
  {
    const auto stream = MakeStream();
    ASSERT_TRUE(stream->CopyToDevice(memory->address(), BytesOf(std::vector<int32_t>(1000, 9))).ok());
    ASSERT_TRUE(stream->CopyToHost(MutableBytesOf(found), memory->address()).ok());
  }
  EXPECT_EQ(found, std::vector<int32_t>(1000, 9));
}

TEST_P(StreamConformance, EventsOfOtherKindsAreRefused) {
  for (const DeviceKind& other : AllDeviceKinds()) {
    if (other.name == GetParam().name || !other.available().ok()) continue;
    const auto device = *other.make(other.models.empty() ? "" : other.models[0]);
    const auto stream = *device->MakeStream();
    const auto event = stream->Record();
    if (!event.ok()) continue;  // The kind is not implemented yet.
    EXPECT_EQ(stream_->WaitFor(**event).code(), absl::StatusCode::kInvalidArgument) << other.name;
  }
}

TEST_P(StreamConformance, ThreadsUseTheirOwnStreams) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto stream = MakeStream();
      const auto a = *device_->Allocate(4000), b = *device_->Allocate(4000);
      for (int round = 0; round < 100; ++round) {
        std::vector<int32_t> found(1000);
        const std::vector<int32_t> values(1000, 1000 * t + round);
        wrong += !stream->CopyToDevice(a->address(), BytesOf(values)).ok();
        wrong += !stream->Copy(b->address(), a->address(), 4000).ok();
        wrong += !stream->CopyToHost(MutableBytesOf(found), b->address()).ok();
        wrong += !stream->Synchronize().ok() || found != values;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(StreamConformance, ThreadsAllocateAndFree) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto stream = MakeStream();
      for (int round = 0; round < 200; ++round) {
        const auto memory = device_->Allocate(1 + 97 * round);
        if (!memory.ok()) {
          ++wrong;
          continue;
        }
        const std::vector<std::byte> values(1 + 97 * round, std::byte(t));
        std::vector<std::byte> found(values.size());
        wrong += !stream->CopyToDevice((*memory)->address(), values).ok();
        wrong += !stream->CopyToHost(absl::MakeSpan(found), (*memory)->address()).ok();
        wrong += !stream->Synchronize().ok() || found != values;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(All, StreamConformance, ::testing::ValuesIn(AllKinds()), KindName);

}  // namespace
}  // namespace xlad::runtime
