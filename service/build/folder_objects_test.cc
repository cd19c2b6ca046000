#include "service/build/folder_objects.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/testing/test_folder.h"

namespace xlad::service {
namespace {

TEST(FolderObjects, ThoseThatTheFolderWouldNotKeepAreNotHeld) {
  const TestFolder own;
  const storage::EntryFolder folder(&RealFileSystem(), {own.path(), "1", int64_t{512} * 1000});
  FolderObjects objects(&folder);
  for (const int bytes : {0, 1, 999, 1000, 1001, 100'000}) {
    objects.Add(Sha256Hex(absl::StrCat(bytes)), std::string(bytes, 'x'));
  }
  const std::vector<storage::FolderEntry> added = objects.TakeAdded();
  ASSERT_EQ(added.size(), 4u);
  for (const storage::FolderEntry& entry : added) {
    EXPECT_LE(std::ssize(entry.contents), folder.max_entry_bytes());
    EXPECT_EQ(entry.key, Sha256Hex(absl::StrCat(entry.contents.size())));
  }
  EXPECT_TRUE(objects.TakeAdded().empty());
  ASSERT_TRUE(folder.Write(added).ok());
  for (const storage::FolderEntry& entry : added) EXPECT_EQ(objects.Find(entry.key), entry.contents);
  EXPECT_EQ(objects.Find(Sha256Hex("1001")), std::nullopt);
  EXPECT_EQ(objects.found().size(), 4u);
}

TEST(FolderObjects, WithoutAFolderNothingIsHeld) {
  FolderObjects objects(nullptr);
  objects.Add(Sha256Hex("a"), "code");
  EXPECT_EQ(objects.Find(Sha256Hex("a")), std::nullopt);
  EXPECT_TRUE(objects.TakeAdded().empty());
}

}  // namespace
}  // namespace xlad::service
