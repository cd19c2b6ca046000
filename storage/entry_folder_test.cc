// Entries are damaged, renamed, cut off, or written by several processes at once. A wrong entry is never read.
#include "storage/entry_folder.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/file_descriptor.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/testing/test_folder.h"

namespace xlad::storage {
namespace {

namespace fs = std::filesystem;

class EntryFolderTest : public ::testing::Test {
 protected:
  EntryFolder Folder(const std::string& version = "1", int64_t max_bytes = int64_t{512} << 20) const {
    return EntryFolder(&RealFileSystem(), {own_.path(), version, max_bytes});
  }
  static std::string Key(int number) { return Sha256Hex(absl::StrCat(number)); }
  // The contents of an entry, which differ for each number.
  static std::string Contents(int number) {
    std::string text;
    for (int i = 0; i < 50 + number % 700; ++i) absl::StrAppend(&text, number, ".", i, " ");
    return text;
  }
  std::string PathOf(int number) const {
    return JoinPath(JoinPath(own_.path(), Key(number).substr(0, 2)), Key(number));
  }
  int64_t CountFiles() const {
    int64_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(own_.path())) count += entry.is_regular_file() ? 1 : 0;
    return count;
  }

  const TestFolder own_;
};

TEST_F(EntryFolderTest, EntriesAreReadByOtherObjectsOfTheSameVersionOnly) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Folder().Write({{Key(i), Contents(i)}}).ok());
  ASSERT_TRUE(Folder().Write({{Key(200), ""}}).ok());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Folder().Read(Key(i)), Contents(i));
  EXPECT_EQ(Folder().Read(Key(200)), "");
  EXPECT_EQ(Folder().Read(Key(201)), std::nullopt);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Folder("2").Read(Key(i)), std::nullopt);
  ASSERT_TRUE(Folder("2").Write({{Key(7), "of version 2"}}).ok());
  EXPECT_EQ(Folder("2").Read(Key(7)), "of version 2");
  EXPECT_EQ(Folder().Read(Key(7)), std::nullopt);
}

TEST_F(EntryFolderTest, DamagedCutAndRenamedEntriesAreNotFound) {
  ASSERT_TRUE(Folder().Write({{Key(1), Contents(1)}, {Key(2), Contents(2)}}).ok());
  const std::string whole = *RealFileSystem().Read(PathOf(1));
  const auto expect_missing = [&](const std::string& bytes) {
    std::ofstream(PathOf(1), std::ios::binary) << bytes;
    EXPECT_EQ(Folder().Read(Key(1)), std::nullopt);
  };
  const auto random = SeededRandom(1);
  for (int i = 0; i < 200; ++i) {
    const size_t place = random->Next() % whole.size();
    std::string damaged = whole;
    damaged[place] = static_cast<char>(damaged[place] ^ (1 << random->Next() % 8));
    expect_missing(damaged);
    expect_missing(whole.substr(0, place));
  }
  expect_missing(whole + " ");
  expect_missing("");
  expect_missing(*RealFileSystem().Read(PathOf(2)));  // The entry of another key.
  fs::remove(PathOf(1));
  fs::create_directory(PathOf(1));
  EXPECT_EQ(Folder().Read(Key(1)), std::nullopt);
  fs::remove(PathOf(1));
  ASSERT_TRUE(Folder().Write({{Key(1), Contents(1)}}).ok());
  EXPECT_EQ(Folder().Read(Key(1)), Contents(1));
}

TEST_F(EntryFolderTest, KeysThatCouldNameOtherFilesAreRefused) {
  for (const std::string& key : {std::string(), std::string("../../x"), std::string(64, '.'), std::string(64, 'A'),
                                 Key(1) + "0", "../" + Key(1).substr(3), Key(1).substr(1)}) {
    EXPECT_EQ(Folder().Write({{key, "contents"}}).code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_EQ(Folder().Read(key), std::nullopt) << key;
    Folder().Touch({key});
  }
  EXPECT_EQ(CountFiles(), 0);
}

TEST_F(EntryFolderTest, TheLeastRecentlyUsedEntriesAreRemoved) {
  constexpr int64_t kMaxBytes = int64_t{256} * 20'000;  // 20'000 bytes for each of the 256 sub-folders.
  std::vector<int> same;  // Numbers whose keys are in one sub-folder.
  for (int i = 0; std::ssize(same) < 40; ++i) {
    if (Key(i).substr(0, 2) == Key(0).substr(0, 2)) same.push_back(i);
  }
  const EntryFolder folder = Folder("1", kMaxBytes);
  int64_t seconds = 10'000;
  for (const int number : same) {
    ASSERT_TRUE(folder.Write({{Key(number), std::string(1900, 'x')}}).ok());
    fs::last_write_time(PathOf(number), fs::file_time_type::clock::now() - std::chrono::seconds(seconds--));
    folder.Touch({Key(same[0])});
  }
  EXPECT_LE(CountFiles(), 20'000 / 1900);
  EXPECT_GE(CountFiles(), 9);
  EXPECT_TRUE(folder.Read(Key(same[0])).has_value());  // It has been used since.
  EXPECT_TRUE(folder.Read(Key(same.back())).has_value());
  EXPECT_FALSE(folder.Read(Key(same[1])).has_value());
  ASSERT_TRUE(folder.Write({{Key(1'000'000), std::string(20'000, 'x')}}).ok());
  EXPECT_FALSE(folder.Read(Key(1'000'000)).has_value());  // Too large.
}

// The coordinator's folder of executables also has tuned schedules, and several processes write to it.
TEST_F(EntryFolderTest, OnlyEntriesAndAbandonedTemporaryFilesAreRemoved) {
  const auto add = [&](const std::string& name, std::chrono::seconds age) {
    const std::string path = JoinPath(own_.path(), name);
    std::ofstream(path) << std::string(1000, 'x');
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
  };
  const std::chrono::hours day{24};
  for (const std::string& name : {Key(1), Key(2), Key(1) + ".tmp.12.0", Key(3) + ".12.1.tmp"}) add(name, day);
  for (const std::string& name : {Key(4) + ".tmp.13.0", Key(5) + ".13.1.tmp"}) add(name, std::chrono::seconds(1));
  for (const std::string& name : {"schedules-cpu.txt", "notes", "costs.tmp"}) add(name, 2 * day);
  add(Key(6), std::chrono::seconds(0));
  RemoveLeastRecentlyUsed(own_.path(), 3000);
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(own_.path())) left.insert(entry.path().filename().string());
  const std::set<std::string> used = {Key(4) + ".tmp.13.0", Key(5) + ".13.1.tmp", Key(6), "schedules-cpu.txt", "notes",
                                      "costs.tmp"};
  EXPECT_EQ(left, used);
  RemoveLeastRecentlyUsed(own_.path(), 0);
  EXPECT_EQ(CountFiles(), 5) << "only the entry was removed";
}

// Runs `work` in a process whose id is 1 in its own namespace. Returns the names of the files that it creates in the
// folder, or nothing if this process must not make namespaces or cannot watch folders.
std::set<std::string> NamesCreatedInANamespace(const std::string& folder, const std::function<void()>& work) {
  const FileDescriptor events(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!events.is_open()) return {};  // Other programs of this user watch as many folders as the system allows.
  EXPECT_GE(inotify_add_watch(events.get(), folder.c_str(), IN_CREATE), 0);
  const pid_t outer = fork();
  if (outer == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(0);
    const pid_t first = fork();
    if (first == 0) {
      if (getpid() == 1) work();
      _exit(0);
    }
    waitpid(first, nullptr, 0);
    _exit(0);
  }
  waitpid(outer, nullptr, 0);
  std::set<std::string> names;
  alignas(inotify_event) char buffer[1 << 16];
  const ssize_t bytes = read(events.get(), buffer, sizeof buffer);
  for (ssize_t at = 0; at < bytes;) {
    const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
    names.insert(event->name);
    at += static_cast<ssize_t>(sizeof *event + event->len);
  }
  return names;
}

// Containers may share a cache folder, and the ids of their processes may be equal.
TEST_F(EntryFolderTest, TemporaryFilesOfProcessesOfTwoContainersHaveDifferentNames) {
  const std::string folder = fs::path(PathOf(1)).parent_path();
  fs::create_directories(folder);
  const std::function<void()> writes[] = {
      [&] { (void)Folder().Write({{Key(1), Contents(1)}}); },
      [&] { RealFileSystem().WriteAtomically(PathOf(1), Contents(1)).IgnoreError(); }};
  for (const std::function<void()>& write : writes) {
    const std::set<std::string> one = NamesCreatedInANamespace(folder, write);
    if (one.empty()) GTEST_SKIP() << "this process must not make namespaces of process ids, or cannot watch folders";
    const std::set<std::string> other = NamesCreatedInANamespace(folder, write);
    EXPECT_EQ(one.size(), 1u);
    EXPECT_EQ(other.size(), 1u);
    EXPECT_NE(one, other);
  }
}

TEST_F(EntryFolderTest, AFolderThatCannotBeWrittenIsAnError) {
  const std::string file = JoinPath(own_.path(), "file");
  std::ofstream(file) << "a file in its place";
  const EntryFolder folder(&RealFileSystem(), {file, "1"});
  EXPECT_FALSE(folder.Write({{Key(1), "contents"}}).ok());
  EXPECT_EQ(folder.Read(Key(1)), std::nullopt);
}

// Two processes write the same keys all the time, and are killed at arbitrary moments.
TEST_F(EntryFolderTest, ReadersSeeOnlyCompleteEntriesOfWritersThatAreKilled) {
  int64_t found = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<pid_t> writers;
    for (int w = 0; w < 2; ++w) {
      const pid_t pid = fork();
      if (pid == 0) {
        for (int i = w;; i = (i + 1) % 20) {
          if (!Folder().Write({{Key(i), Contents(i)}}).ok()) _exit(1);
        }
      }
      writers.push_back(pid);
    }
    for (int i = 0; i < 100 || found == 0; ++i) {
      const std::optional<std::string> contents = Folder().Read(Key(i % 20));
      if (contents.has_value()) EXPECT_EQ(*contents, Contents(i % 20));
      found += contents.has_value() ? 1 : 0;
    }
    for (const pid_t pid : writers) {
      kill(pid, SIGKILL);
      int status = 0;
      waitpid(pid, &status, 0);
      EXPECT_TRUE(WIFSIGNALED(status));
    }
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace xlad::storage
