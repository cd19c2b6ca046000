#include "collectives/exec/group/meeting.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/random.h"
#include "collectives/exec/bootstrap.h"

namespace xlad::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string NewPath() {
  const std::string name = absl::StrCat("meeting-test-", getpid(), "-", SystemRandom()->Hex(4));
  return (std::filesystem::temp_directory_path() / name).string();
}

TEST(MeetingFolder, TheLastRankRemovesIt) {
  const std::string path = NewPath();
  for (int round = 0; round < 2; ++round) {
    std::unique_ptr<MeetingFolder> first = *MeetingFolder::Open(path), second = *MeetingFolder::Open(path);
    EXPECT_TRUE(FileBootstrap(RealFileSystem(), path)->Put("key", "value").ok());
    MeetingFolder::RemoveIfUnused(path);
    first.reset();
    EXPECT_TRUE(std::filesystem::exists(path));
    second.reset();
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  // A killed rank leaves a folder that is not locked.
  std::filesystem::create_directory(path);
  std::ofstream(path + "/lock").close();
  MeetingFolder::RemoveIfUnused(path);
  EXPECT_FALSE(std::filesystem::exists(path));
}

// While the object exists, this process does not run as root.
class WithoutRoot {
 public:
  static constexpr uid_t kNobody = 65534;
  // Returns whether this process can become another user, and that user can use the folder.
  static bool IsPossible(const std::string& folder) {
    const uid_t user = geteuid();
    if (user != 0) return true;
    if (seteuid(kNobody) != 0) return false;
    const bool usable = faccessat(AT_FDCWD, folder.c_str(), R_OK | W_OK | X_OK, AT_EACCESS) == 0;
    Become(user);
    return usable;
  }
  WithoutRoot() { XLAD_CHECK(user_ != 0 || seteuid(kNobody) == 0); }
  ~WithoutRoot() {
    if (user_ == 0) Become(user_);
  }

 private:
  // After a change of its user, other processes may not open the memory of this process until it allows it.
  static void Become(uid_t user) { XLAD_CHECK(seteuid(user) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0); }

  const uid_t user_ = geteuid();
};

TEST(MeetingFolder, PermanentErrorsNameTheFolderAndTheUser) {
  const std::string temporary = std::filesystem::temp_directory_path().string();
  if (!WithoutRoot::IsPossible(temporary)) GTEST_SKIP() << "no other user can use " << temporary;
  const std::string parent = NewPath(), path = parent + "/meet";
  std::filesystem::create_directory(parent);
  std::filesystem::permissions(parent, std::filesystem::perms(0555));
  {
    const WithoutRoot without_root;
    const absl::Status status = MeetingFolder::Open(path).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr(absl::StrCat("user ", geteuid()))));
  }
  std::filesystem::permissions(parent, std::filesystem::perms(0755));
  EXPECT_TRUE(absl::IsNotFound(MeetingFolder::Open(parent + "/missing/meet").status()));

  std::filesystem::create_directory(path);
  std::filesystem::permissions(path, std::filesystem::perms(0755));
  absl::Status status = MeetingFolder::Open(path).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a folder that others can access"));
  EXPECT_TRUE(std::filesystem::is_empty(path)) << "a file was made in a folder that was refused";
  std::filesystem::permissions(path, std::filesystem::perms(0700));
  if (geteuid() == 0) {
    const WithoutRoot without_root;
    status = MeetingFolder::Open(path).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("a folder of user 0, expected a private folder of user 65534"));
  }
  std::filesystem::remove(path);
  std::ofstream(path).close();
  EXPECT_TRUE(absl::IsFailedPrecondition(MeetingFolder::Open(path).status()));
  std::filesystem::remove_all(parent);
}

// No rank gets a folder that another rank is removing.
TEST(MeetingFolder, RanksArriveAndLeaveAtAnyTime) {
  const std::string path = NewPath();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        const auto folder = MeetingFolder::Open(path);
        ASSERT_TRUE(folder.ok()) << folder.status();
        ASSERT_TRUE(std::filesystem::exists(path + "/lock"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace xlad::collectives
