#include "base/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/file_descriptor.h"

namespace xlad {
namespace {

absl::Status CannotRotate(const std::string& path, const char* what) {
  return absl::InternalError(absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

// Copies all bytes of `from` to `to`, which is empty. Returns the offset after the last complete line, or -1 if the
// bytes cannot be copied.
int64_t CopyLines(int from, int to) {
  std::array<std::byte, 1 << 16> buffer;
  int64_t lines = 0;
  for (int64_t offset = 0;;) {
    const int64_t n = ReadAt(from, offset, absl::MakeSpan(buffer.data(), buffer.size()));
    if (n == 0) return lines;
    if (n < 0) return -1;
    const absl::string_view text(reinterpret_cast<const char*>(buffer.data()), n);
    if (!WriteAll(to, text)) return -1;
    const size_t end = text.rfind('\n');
    if (end != absl::string_view::npos) lines = offset + static_cast<int64_t>(end) + 1;
    offset += n;
  }
}

}  // namespace

std::string OldLogPath(const std::string& path, int part) {
  const std::filesystem::path name(path);
  const std::string file = absl::StrCat(name.stem().string(), ".", part, name.extension().string());
  return (name.parent_path() / file).string();
}

absl::Status RotateAppended(const std::string& path, int64_t max_bytes) {
  const FileDescriptor log(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat info = {};
  if (!log.is_open() || fstat(log.get(), &info) != 0) return CannotRotate(path, "open");
  if (!S_ISREG(info.st_mode) || info.st_size < max_bytes) return absl::OkStatus();
  const std::string copy_path = OldLogPath(path, 0);
  FileDescriptor copy(open(copy_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!copy.is_open()) return CannotRotate(copy_path, "create");
  const int64_t lines = CopyLines(log.get(), copy.get());
  if (lines < 0) {
    const absl::Status status = CannotRotate(copy_path, "write");
    unlink(copy_path.c_str());
    return status;
  }
  for (int part = kOldLogs; part > 1; --part) {
    const std::string newer = OldLogPath(path, part - 1), older = OldLogPath(path, part);
    if (std::rename(newer.c_str(), older.c_str()) == 0 || errno == ENOENT) continue;
    const absl::Status status = CannotRotate(newer, "rename");
    unlink(copy_path.c_str());
    return status;
  }
  if (ftruncate(log.get(), 0) != 0) return CannotRotate(path, "empty");
  // A part of a line whose rest was lost is removed.
  if (ftruncate(copy.get(), lines) != 0) return CannotRotate(copy_path, "shorten");
  if (std::rename(copy_path.c_str(), OldLogPath(path, 1).c_str()) != 0) return CannotRotate(copy_path, "rename");
  return absl::OkStatus();
}

std::string AppendedStderr() {
  struct stat info = {};
  const int flags = fcntl(STDERR_FILENO, F_GETFL);
  if (flags < 0 || (flags & O_APPEND) == 0 || fstat(STDERR_FILENO, &info) != 0 || !S_ISREG(info.st_mode)) return "";
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/fd/2", path, sizeof path);
  return size <= 0 || size == static_cast<ssize_t>(sizeof path) ? "" : std::string(path, size);
}

}  // namespace xlad
