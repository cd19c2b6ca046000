// Positions that a peer announces are checked against the memory that the peer has shared.
#include "collectives/exec/group/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <optional>
#include <vector>

#include "base/file_system.h"

namespace xlad::collectives {
namespace {

using ::testing::HasSubstr;

class GroupMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = JoinPath(::testing::TempDir(), absl::StrCat("group-memory-test-", getpid()));
    RealFileSystem().Remove(path).IgnoreError();
    auto control = ControlFile::Create(path, 2);
    ASSERT_TRUE(control.ok()) << control.status();
    control_ = *std::move(control);
    control_->Unlink();
    owner_ = std::make_unique<GroupMemory>(control_.get(), 0);
    peer_ = std::make_unique<GroupMemory>(control_.get(), 1);
  }

  std::unique_ptr<ControlFile> control_;
  std::unique_ptr<GroupMemory> owner_, peer_;
};

TEST_F(GroupMemoryTest, APeerSeesWhatTheOwnerWrites) {
  std::byte* const address = *owner_->Allocate(5000);
  const std::optional<WindowPosition> position = owner_->Find(address + 7, 4993);
  ASSERT_TRUE(position.has_value());
  const auto seen = peer_->Address(0, *position, 4993);
  ASSERT_TRUE(seen.ok()) << seen.status();
  address[4999] = std::byte{42};
  EXPECT_EQ((*seen)[4992], std::byte{42});
  EXPECT_FALSE(owner_->Find(address + 7, 4994).has_value());
}

TEST_F(GroupMemoryTest, BuffersThatEndAfterTheWindowAreRefused) {
  std::byte* const address = *owner_->Allocate(5000);
  WindowPosition position = *owner_->Find(address, 5000);
  const uint64_t size = 5000;
  for (const auto& [offset, bytes] : std::vector<std::pair<uint64_t, int64_t>>{
           {size, 100000}, {size + 100000, 0}, {~uint64_t{0}, 1}, {~uint64_t{0} - 10, 100}, {0, int64_t{1} << 60}}) {
    position.offset = offset;
    const absl::Status status = peer_->Address(0, position, bytes).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << offset << " " << bytes << " " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected room for"));
  }
}

TEST_F(GroupMemoryTest, FreedMemoryAndUnknownWindowsAreRefused) {
  std::byte* const address = *owner_->Allocate(100);
  WindowPosition position = *owner_->Find(address, 100);
  ASSERT_TRUE(owner_->Free(address).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(peer_->Address(0, position, 100).status()));
  position.window = RankBlock::kWindows;
  EXPECT_TRUE(absl::IsDataLoss(peer_->Address(0, position, 100).status()));
}

// The windows that a peer announces are 32-bit numbers. No memory is reserved for those that cannot exist.
TEST_F(GroupMemoryTest, UnknownWindowsTakeNoMemory) {
  WindowPosition position;
  position.window = RankBlock::kWindows;
  EXPECT_TRUE(absl::IsDataLoss(peer_->Address(0, position, 1).status()));
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 10'000; ++i) {
    ++position.window;
    EXPECT_TRUE(absl::IsDataLoss(peer_->Address(0, position, 1).status()));
  }
  EXPECT_LT(mallinfo2().uordblks, before + 10'000);
}

// The number of mappings of segments in this process.
int64_t MappedSegments() {
  const std::string maps = *RealFileSystem().Read("/proc/self/maps");
  int64_t count = 0;
  for (size_t at = maps.find("/memfd:xlad"); at != std::string::npos; at = maps.find("/memfd:xlad", at + 1)) ++count;
  return count;
}

TEST_F(GroupMemoryTest, APeerUnmapsWhatTheOwnerHasFreed) {
  const int64_t before = MappedSegments();
  const auto map = [&](std::byte* address) { return peer_->Address(0, *owner_->Find(address, 5000), 5000).ok(); };
  std::byte* const first = *owner_->Allocate(5000);
  std::byte* const second = *owner_->Allocate(5000);
  std::byte* const third = *owner_->Allocate(5000);
  ASSERT_TRUE(map(first) && map(second) && map(third));
  ASSERT_TRUE(owner_->Free(second).ok() && owner_->Free(third).ok());
  ASSERT_TRUE(map(*owner_->Allocate(5000)));
  EXPECT_EQ(MappedSegments(), before + 4);
  ASSERT_TRUE(map(first));
}

}  // namespace
}  // namespace xlad::collectives
