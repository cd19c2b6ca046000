// Messages that name ranges of shared blocks, and the blocks of several programs.
#include "collectives/exec/device/shared_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collectives/exec/testing/partial_device_ops.h"
#include "collectives/exec/testing/test_world.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

// A device whose shared memory is memory of the host. A handle is an address.
class HostOps final : public PartialDeviceOps {
 public:
  bool host_can_access() const override { return true; }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Event>> Record() override { return std::make_unique<DoneEvent>(); }
  absl::Status WaitFor(const Event&) override {
    ++waits;
    return absl::OkStatus();
  }
  absl::StatusOr<SharedMemory> AllocateShared(int64_t bytes) override {
    if (bytes > most_bytes) return absl::ResourceExhaustedError("too little memory");
    allocated += bytes;
    std::shared_ptr<std::byte> memory(new std::byte[bytes], std::default_delete<std::byte[]>());
    return SharedMemory{memory, absl::StrCat(reinterpret_cast<uintptr_t>(memory.get()))};
  }
  absl::StatusOr<std::shared_ptr<std::byte>> OpenShared(const std::string& handle) override {
    uintptr_t address = 0;
    if (!absl::SimpleAtoi(handle, &address)) return absl::InvalidArgumentError("no address");
    return std::shared_ptr<std::byte>(reinterpret_cast<std::byte*>(address), [](std::byte*) {});
  }

  int waits = 0;
  int64_t allocated = 0, most_bytes = 1 << 20;

 private:
  class DoneEvent final : public Event {
   public:
    bool IsDone() const override { return true; }
    absl::Status Wait() const override { return absl::OkStatus(); }
  };
};

class SharedBlocksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.Run([this](int device) {
      TextLinks links(&world_.transport(device), kDeviceChannels);
      const absl::Status status = blocks_[device].Exchange({1 - device}, {}, 100 * (device + 1), &links);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  // What device 0 finds in a message of device 1.
  absl::StatusOr<Pieces> Resolve(const std::vector<int64_t>& numbers, size_t bytes) {
    const ConstPiece payload(reinterpret_cast<const std::byte*>(numbers.data()), bytes);
    const size_t first = std::min<size_t>(bytes, 5);  // Messages may arrive in pieces.
    const std::vector<ConstPiece> pieces = {payload.first(first), payload.subspan(first)};
    return blocks_[0].Resolve(1, {{}, pieces, static_cast<int64_t>(bytes)});
  }

  TestWorld world_{{{0}, {1}}};
  HostOps ops_[2];
  SharedBlockPool pool_;
  SharedBlocks blocks_[2] = {{&ops_[0], 0, &pool_}, {&ops_[1], 1, &pool_}};
};

TEST_F(SharedBlocksTest, APieceIsFoundInTheBlockOfItsSender) {
  EXPECT_EQ(blocks_[0].ProblemOf(0) + blocks_[0].ProblemOf(1), "");
  std::byte* const own = blocks_[1].own();
  const Pieces sent = {ConstPiece(own + 7, 13), ConstPiece(own + 200, 0), ConstPiece(own, 200)};
  const ConstPiece payload = blocks_[1].Payload(&sent, [&] { return sent; });
  int resolved = 0;
  const ConstPiece again = blocks_[1].Payload(&sent, [&] { return ++resolved, sent; });
  EXPECT_EQ(again.data(), payload.data());
  EXPECT_EQ(resolved, 0) << "the pieces are those of the first message";
  std::vector<int64_t> numbers(payload.size() / sizeof(int64_t));
  std::memcpy(numbers.data(), payload.data(), payload.size());
  const auto found = Resolve(numbers, payload.size());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(AreSameMemory(*found, sent));
  EXPECT_TRUE(Resolve({}, 0)->empty());
}

TEST_F(SharedBlocksTest, RangesOutsideOfTheBlockAreRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>& numbers : std::vector<std::vector<int64_t>>{
           {0, 201}, {201, 0}, {-1, 1}, {1, -1}, {199, 2}, {kMost, kMost}, {0, 200, 1, 200}}) {
    const auto found = Resolve(numbers, numbers.size() * sizeof(int64_t));
    EXPECT_EQ(found.status().code(), absl::StatusCode::kDataLoss) << numbers[0];
    EXPECT_THAT(found.status().message(), HasSubstr("from device 1")) << numbers[0];
  }
  EXPECT_EQ(Resolve({0, 200}, 15).status().code(), absl::StatusCode::kDataLoss) << "half a range";
}

TEST(SharedBlockPool, ProgramsOfADeviceUseOneBlock) {
  SharedBlockPool pool;
  HostOps ops;
  const auto first = *pool.Get(0, 1000, &ops), second = *pool.Get(0, 400, &ops), other = *pool.Get(1, 400, &ops);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
  EXPECT_EQ(ops.allocated, 1400) << "the first block of a device is not larger than needed";
}

TEST(SharedBlockPool, BlocksAreBoundedByTheLargest) {
  SharedBlockPool pool;
  HostOps ops;
  int64_t largest = 0;
  for (const bool keeps : {true, false}) {
    std::vector<std::shared_ptr<SharedBlock>> kept;
    const int device = keeps ? 0 : 1;
    ops.allocated = largest = 0;
    for (int64_t bytes = 100; bytes <= 10'000; bytes += 100) {
      const auto block = pool.Get(device, bytes, &ops);
      ASSERT_TRUE(block.ok()) << block.status();
      EXPECT_GE((*block)->bytes, bytes);
      EXPECT_LE((*block)->bytes, bytes + bytes / 4);
      largest = (*block)->bytes;
      if (keeps) kept.push_back(*block);
    }
    if (keeps) EXPECT_LT(ops.allocated, 62'500);
  }
  // A device that keeps freed memory can use it again, because blocks are requested in the sizes of earlier blocks.
  EXPECT_EQ((*pool.Get(1, 100, &ops))->bytes, largest);
}

TEST(SharedBlockPool, AProgramGetsWhatItNeedsIfMemoryIsScarce) {
  SharedBlockPool pool;
  HostOps ops;
  ops.most_bytes = 1240;
  const auto small = *pool.Get(0, 1000, &ops);
  EXPECT_EQ((*pool.Get(0, 1200, &ops))->bytes, 1200);
  EXPECT_EQ(pool.Get(0, 1600, &ops).status().code(), absl::StatusCode::kResourceExhausted);
}

// The runs of one program are on one stream, but those of two programs are not.
TEST(SharedBlockPool, ARunWaitsForThatOfAnotherProgram) {
  TestWorld world{{{0}, {1}}};
  SharedBlockPool pool;
  HostOps streams[2][2];
  world.Run([&](int device) {
    SharedBlocks programs[] = {{&streams[device][0], device, &pool}, {&streams[device][1], device, &pool}};
    for (int p = 0; p < 2; ++p) {
      TextLinks links(&world.transport(device), kDeviceChannels + p);
      const absl::Status status = programs[p].Exchange({1 - device}, {}, 100, &links);
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_EQ(programs[0].own(), programs[1].own());
    for (const int p : {0, 0, 1, 1, 0}) {
      EXPECT_TRUE(programs[p].BeginRun().ok());
      EXPECT_TRUE(programs[p].EndRun().ok());
    }
    EXPECT_EQ(streams[device][0].waits, 1);
    EXPECT_EQ(streams[device][1].waits, 1);
  });
}

}  // namespace
}  // namespace xlad::collectives
