// Directories whose entries cannot be read. This file replaces readdir.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "base/file_system.h"
#include "base/testing/test_folder.h"

namespace {

int entries_left = -1;  // The number of entries that can still be read before readdir fails; unlimited if negative.

}  // namespace

extern "C" dirent* readdir(DIR* directory) {
  static const auto real = reinterpret_cast<decltype(&readdir)>(dlsym(RTLD_NEXT, "readdir"));
  if (entries_left < 0 || entries_left-- > 0) return real(directory);
  errno = EIO;
  return nullptr;
}

namespace xlad {
namespace {

TEST(FileSystem, AListThatEndsWithAnErrorIsNotReturned) {
  FileSystem& files = RealFileSystem();
  const TestFolder folder;
  ASSERT_TRUE(files.WriteAtomically(JoinPath(folder.path(), "file"), "x").ok());
  for (const int entries : {0, 1, 2, 3}) {  // The folder has 3 entries: the file, . and ..
    entries_left = entries;
    const absl::Status status = files.List(folder.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << "after " << entries << " entries";
    EXPECT_EQ(status.message(), absl::StrCat("cannot list ", folder.path(), ": Input/output error"));
  }
  entries_left = -1;
  const absl::StatusOr<std::vector<std::string>> names = files.List(folder.path());
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_EQ(*names, std::vector<std::string>{"file"});
}

}  // namespace
}  // namespace xlad
