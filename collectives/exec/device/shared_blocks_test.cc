// Messages that name ranges of shared blocks.
#include "collectives/exec/device/shared_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collectives/exec/testing/test_world.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

// A device whose shared memory is memory of the host. A handle is an address.
class HostOps final : public DeviceOps {
 public:
  bool host_can_access() const override { return true; }
  absl::Status CopyToDevice(void*, absl::Span<const std::byte>) override { return absl::UnimplementedError("copy"); }
  absl::Status CopyToHost(absl::Span<std::byte>, const void*) override { return absl::UnimplementedError("copy"); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::Status Copy(void*, const void*, int64_t) override { return absl::UnimplementedError("copy"); }
  absl::Status FillZero(void*, int64_t) override { return absl::UnimplementedError("fill"); }
  absl::StatusOr<std::unique_ptr<Event>> Record() override { return absl::UnimplementedError("record"); }
  absl::Status WaitFor(const Event&) override { return absl::UnimplementedError("wait"); }
  absl::StatusOr<SharedMemory> AllocateShared(int64_t bytes) override {
    std::shared_ptr<std::byte> memory(new std::byte[bytes], std::default_delete<std::byte[]>());
    return SharedMemory{memory, absl::StrCat(reinterpret_cast<uintptr_t>(memory.get()))};
  }
  absl::StatusOr<std::shared_ptr<std::byte>> OpenShared(const std::string& handle) override {
    uintptr_t address = 0;
    if (!absl::SimpleAtoi(handle, &address)) return absl::InvalidArgumentError("no address");
    return std::shared_ptr<std::byte>(reinterpret_cast<std::byte*>(address), [](std::byte*) {});
  }
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
  SharedBlocks blocks_[2] = {{&ops_[0], 0}, {&ops_[1], 1}};
};

TEST_F(SharedBlocksTest, APieceIsFoundInTheBlockOfItsSender) {
  EXPECT_EQ(blocks_[0].ProblemOf(0) + blocks_[0].ProblemOf(1), "");
  std::byte* const own = blocks_[1].own();
  const Pieces sent = {ConstPiece(own + 7, 13), ConstPiece(own + 200, 0), ConstPiece(own, 200)};
  const ConstPiece payload = blocks_[1].Payload(&sent, sent);
  EXPECT_EQ(blocks_[1].Payload(&sent, sent).data(), payload.data());
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

}  // namespace
}  // namespace xlad::collectives
