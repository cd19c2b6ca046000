#include "base/log_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_descriptor.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/testing/test_folder.h"

namespace xlad {
namespace {

class LogFile : public ::testing::Test {
 protected:
  std::string Read(const std::string& path) { return RealFileSystem().Read(path).value_or("none"); }
  void Append(const std::string& text) {
    const FileDescriptor file(open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    ASSERT_TRUE(WriteAll(file.get(), text));
  }

  const TestFolder folder_;
  const std::string log_ = JoinPath(folder_.path(), "xlad.log");
};

TEST_F(LogFile, HasTheNamesOfSpdlog) {
  EXPECT_EQ(OldLogPath("/d.e/xlad.log", 2), "/d.e/xlad.2.log");
  EXPECT_EQ(OldLogPath("log", 1), "log.1");
}

// The latest parts are kept, in order, and no byte is lost if no process writes meanwhile.
TEST_F(LogFile, KeepsTheLatestParts) {
  for (int part = 0; part < 6; ++part) {
    Append(absl::StrCat("part ", part, "\n"));
    ASSERT_TRUE(RotateAppended(log_, 8).ok());  // One byte more than a part.
    EXPECT_EQ(Read(log_), absl::StrCat("part ", part, "\n"));
    ASSERT_TRUE(RotateAppended(log_, 7).ok());
    EXPECT_EQ(Read(log_), "");
    for (int old = 1; old <= kOldLogs; ++old) {
      EXPECT_EQ(Read(OldLogPath(log_, old)), part < old - 1 ? "none" : absl::StrCat("part ", part - old + 1, "\n"));
    }
  }
  struct stat info = {};
  ASSERT_EQ(stat(OldLogPath(log_, 1).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1 + kOldLogs);
}

TEST_F(LogFile, IsUnchangedIfItCannotBeCopied) {
  Append("a line\n");
  ASSERT_TRUE(std::filesystem::create_directory(OldLogPath(log_, 0)));
  EXPECT_FALSE(RotateAppended(log_, 1).ok());
  EXPECT_EQ(Read(log_), "a line\n");
  EXPECT_FALSE(RotateAppended(JoinPath(folder_.path(), "none.log"), 1).ok());
}

// Two writers append while the file is rotated again and again. All lines that are kept are complete, and those of
// a writer are in their order.
TEST_F(LogFile, IsRotatedWhileOthersAppend) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> writers;
  for (const char* name : {"a", "b"}) {
    writers.emplace_back([this, name, &stop] {
      const FileDescriptor file(open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
      for (int line = 0; !stop; ++line) WriteAll(file.get(), absl::StrCat(name, " ", line, " end\n"));
    });
  }
  int rotations = 0;
  while (rotations < 50) {
    const bool is_large = std::filesystem::exists(log_) && std::filesystem::file_size(log_) >= 5000;
    if (is_large) rotations += RotateAppended(log_, 5000).ok() ? 1 : 0;
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  std::string text;
  for (int old = kOldLogs; old > 0; --old) text += Read(OldLogPath(log_, old));
  text += Read(log_);
  std::map<std::string, int> last;
  int lines = 0;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n', absl::SkipEmpty()))) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    ASSERT_EQ(words.size(), 3u) << line;
    ASSERT_TRUE((words[0] == "a" || words[0] == "b") && words[2] == "end") << line;
    const auto [known, is_first] = last.emplace(words[0], -1);
    EXPECT_GT(std::stoi(words[1]), known->second) << line;
    known->second = std::stoi(words[1]);
    ++lines;
  }
  EXPECT_GT(lines, 1000);
}

// LogToFile keeps the same parts.
TEST_F(LogFile, OfOneProcessIsRotated) {
  const pid_t child = fork();
  if (child == 0) {
    if (!LogToFile(log_)) _exit(1);
    const std::string text(1 << 16, 'x');
    for (int line = 0; line < 6 * 256; ++line) LogInfo(absl::StrCat("line ", line), {{"text", text}});
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1 + kOldLogs);
  for (int old = 1; old <= kOldLogs; ++old) {
    EXPECT_LE(static_cast<int64_t>(std::filesystem::file_size(OldLogPath(log_, old))), kMaxLogBytes);
    EXPECT_GT(static_cast<int64_t>(std::filesystem::file_size(OldLogPath(log_, old))), kMaxLogBytes - (1 << 17));
  }
  EXPECT_NE(Read(log_).find(absl::StrCat("line ", 6 * 256 - 1)), std::string::npos);
}

TEST_F(LogFile, OfStandardErrorIsFoundIfItIsAppendedTo) {
  const FileDescriptor saved(dup(STDERR_FILENO));
  const auto with = [&](int flags) {
    const FileDescriptor file(open(log_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600));
    dup2(file.get(), STDERR_FILENO);
    const std::string path = AppendedStderr();
    dup2(saved.get(), STDERR_FILENO);
    return path;
  };
  EXPECT_EQ(with(O_APPEND), std::filesystem::canonical(log_).string());
  EXPECT_EQ(with(0), "");
}

}  // namespace
}  // namespace xlad
