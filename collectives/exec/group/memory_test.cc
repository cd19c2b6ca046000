// Positions that a peer announces are checked against the memory that the peer has shared.
#include "collectives/exec/group/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file_system.h"
#include "collectives/exec/group/core.h"
#include "collectives/plan/mapped.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/testing/make_spec.h"

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

// The memory of a rank that announces only empty buffers.
class EmptyBuffers final : public WindowMemory {
 public:
  explicit EmptyBuffers(WindowMemory* memory) : memory_(*memory) {}
  std::optional<WindowPosition> Find(const void*, int64_t) const override { return WindowPosition{}; }
  absl::StatusOr<std::byte*> Address(int peer, const WindowPosition& position, int64_t bytes) override {
    return memory_.Address(peer, position, bytes);
  }

 private:
  WindowMemory& memory_;
};

class OwnerUntilEnd final : public GroupOwner {
 public:
  absl::Status CheckWhileWaiting() override { return is_over ? absl::CancelledError("over") : absl::OkStatus(); }
  absl::Status Disagreement(int) override { return absl::InternalError("the ranks disagree"); }
  std::atomic<bool> is_over = false;
};

// Without the check, rank 0 would use the address of an earlier operation, or null.
TEST_F(GroupMemoryTest, AnEmptyBufferInAnOperationThatReadsItIsRefused) {
  const CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 2, 4);
  OwnerUntilEnd owner;
  std::byte scratch[4 * 64] = {};
  std::byte* const shared = *owner_->Allocate(64);
  EmptyBuffers empty(peer_.get());
  absl::Status statuses[2];
  const auto run = [&](int rank) {
    GroupWaiter waiter(control_.get(), rank, /*exclusive=*/false);
    waiter.Start();
    WindowMemory* const memory = rank == 0 ? static_cast<WindowMemory*>(owner_.get()) : &empty;
    GroupCore core({control_.get(), &waiter, memory, scratch, 64, rank}, &owner);
    const Schedule schedule = *BuildSchedule({.algorithm = std::string(kMappedWindows)}, spec, rank);
    const GroupCommand command = *MakeGroupCommand(spec, schedule, GroupProtocol::kWindows);
    float own[8] = {};
    std::byte* const buffers = rank == 0 ? shared : reinterpret_cast<std::byte*>(own);
    const void* const inputs[] = {buffers};
    void* const outputs[] = {buffers + 4 * sizeof(float)};
    statuses[rank] = core.Run({&command, /*word=*/1 << 16, {}, inputs, outputs});
  };
  std::thread peer(run, 1);
  run(0);
  owner.is_over = true;  // Rank 1 waits for rank 0.
  peer.join();
  EXPECT_TRUE(absl::IsDataLoss(statuses[0])) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 1 announced no buffer"));
}

TEST_F(GroupMemoryTest, FreedMemoryAndUnknownWindowsAreRefused) {
  std::byte* const address = *owner_->Allocate(100);
  WindowPosition position = *owner_->Find(address, 100);
  ASSERT_TRUE(owner_->Free(address).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(peer_->Address(0, position, 100).status()));
  ++position.generation;
  const absl::Status status = peer_->Address(0, position, 100).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 announced a window that does not exist"));
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
