#include "base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file_descriptor.h"
#include "base/file_error.h"
#include "base/random.h"

namespace xlad {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
      return absl::StatusCode::kResourceExhausted;
    case EFBIG:
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case EMLINK:
    case ENAMETOOLONG:
    case ENODEV:
    case ENXIO:
    case EOPNOTSUPP:
    case ESPIPE:
    case EXDEV:
      return absl::StatusCode::kInvalidArgument;
    default:  // File systems in user space may return any error.
      return absl::StatusCode::kUnavailable;
  }
}

absl::Status SystemError(absl::string_view what, const std::string& path) {
  const int error = errno;
  const absl::Status status(CodeOf(error), absl::StrCat(what, " ", path, ": ", std::strerror(error)));
  return absl::IsUnavailable(status) ? MarkFileError(status) : status;
}

absl::Status Write(int fd, absl::string_view bytes, const std::string& path) {
  return WriteAll(fd, bytes) ? absl::OkStatus() : SystemError("cannot write", path);
}

bool IsRegular(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// Returns the path that `given` refers to after following symbolic links. The file need not exist.
std::string FollowLinks(const std::string& given) {
  constexpr int kMaxLinks = 40;
  std::filesystem::path path = given;
  std::error_code error;
  for (int i = 0; i < kMaxLinks && std::filesystem::is_symlink(path, error); ++i) {
    path = path.parent_path() / std::filesystem::read_symlink(path, error);  // An absolute target replaces the parent.
  }
  return path.string();
}

absl::StatusOr<std::string> ReadToEnd(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return SystemError("cannot open", path);
  std::string bytes;
  std::vector<char> piece(1 << 16);
  while (true) {
    const ssize_t n = read(file.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError("cannot read", path);
    if (n == 0) return bytes;
    bytes.append(piece.data(), n);
  }
}

absl::Status SyncFolder(const std::string& path) {
  const std::string folder = path.empty() ? "." : path;
  FileDescriptor file(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() < 0 || fsync(file.get()) != 0) return SystemError("cannot sync folder", folder);
  return absl::OkStatus();
}

absl::Status ReadExactly(int fd, int64_t offset, absl::Span<std::byte> out, const std::string& path) {
  const int64_t n = ReadAt(fd, offset, out);
  if (n < 0) return SystemError("cannot read", path);
  if (n == std::ssize(out)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path, " ends at byte ", offset + n, ", expected at least ", offset + std::ssize(out)));
}

class PosixFile final : public File {
 public:
  PosixFile(int fd, std::string path) : file_(fd), path_(std::move(path)) {}

  absl::StatusOr<int64_t> Size() const override {
    struct stat info {};
    if (fstat(file_.get(), &info) != 0) return SystemError("cannot read the size of", path_);
    return info.st_size;
  }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) const override {
    return ReadExactly(file_.get(), offset, out, path_);
  }
  absl::Status Append(absl::string_view bytes) override { return Write(file_.get(), bytes, path_); }
  absl::Status Sync() override {
    return fsync(file_.get()) == 0 ? absl::OkStatus() : SystemError("cannot sync", path_);
  }

 private:
  const FileDescriptor file_;
  const std::string path_;
};

class PosixFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::string> Read(const std::string& path) override {
    XLAD_ASSIGN_OR_RETURN(const int64_t size, Size(path));
    if (size == 0 || !IsRegular(path)) return ReadToEnd(path);  // The sizes of pipes and of files in /proc are unknown.
    return ReadRange(path, 0, size);
  }

  absl::StatusOr<std::string> ReadRange(const std::string& path, int64_t offset, int64_t size) override {
    FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() < 0) return SystemError("cannot open", path);
    std::string bytes(size, '\0');
    const absl::Span<std::byte> out(reinterpret_cast<std::byte*>(bytes.data()), bytes.size());
    XLAD_RETURN_IF_ERROR(ReadExactly(file.get(), offset, out, path));
    return bytes;
  }

  absl::StatusOr<int64_t> Size(const std::string& path) override {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return SystemError("cannot open", path);
    if (S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is a folder, expected a file"));
    }
    return info.st_size;
  }

  absl::Status WriteAtomically(const std::string& given, absl::string_view bytes) override {
    constexpr int kRandomBytes = 8;  // A process id would not be unique, because containers may share a folder.
    if (Exists(given) && !IsDirectory(given) && !IsRegular(given)) {  // Devices and pipes are written to, not replaced.
      FileDescriptor file(open(given.c_str(), O_WRONLY | O_CLOEXEC));
      return file.get() < 0 ? SystemError("cannot write", given) : Write(file.get(), bytes, given);
    }
    const std::string path = FollowLinks(given);
    const std::string temporary = absl::StrCat(path, ".tmp.", SystemRandom()->Hex(kRandomBytes));
    absl::Status status = WriteAndSync(temporary, path, bytes);
    if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) status = SystemError("cannot write", path);
    if (!status.ok()) {
      unlink(temporary.c_str());
      return status;
    }
    return SyncFolder(std::filesystem::path(path).parent_path().string());
  }

  bool Exists(const std::string& path) override { return access(path.c_str(), F_OK) == 0; }

  bool IsDirectory(const std::string& path) override {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    DIR* directory = opendir(path.c_str());
    if (directory == nullptr) return SystemError("cannot list", path);
    std::vector<std::string> names;
    while (true) {
      errno = 0;  // Only errno distinguishes an error from the end of the directory.
      const dirent* entry = readdir(directory);
      if (entry == nullptr) break;
      const absl::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    const int error = errno;
    closedir(directory);
    errno = error;
    if (error != 0) return SystemError("cannot list", path);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status MakeDirectories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (!error) return absl::OkStatus();
    errno = error.value();
    return SystemError("cannot make folder", path);
  }

  absl::Status Remove(const std::string& path) override {
    if (unlink(path.c_str()) != 0) return SystemError("cannot remove", path);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode) override {
    const int flags = mode == OpenMode::kRead ? O_RDONLY : O_WRONLY | O_CREAT | O_EXCL | O_APPEND;
    const int fd = open(path.c_str(), flags | O_CLOEXEC, 0644);
    if (fd < 0) return SystemError(mode == OpenMode::kRead ? "cannot open" : "cannot create", path);
    return std::make_unique<PosixFile>(fd, path);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) return SystemError(absl::StrCat("cannot rename ", from, " to"), to);
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& path) override { return SyncFolder(path); }

  absl::Status RemoveDirectory(const std::string& path) override {
    if (rmdir(path.c_str()) != 0) return SystemError("cannot remove folder", path);
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override {
    struct statvfs info {};
    if (statvfs(path.c_str(), &info) != 0) return SystemError("cannot read the free space of", path);
    return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  }

 private:
  static absl::Status WriteAndSync(const std::string& temporary, const std::string& path, absl::string_view bytes) {
    FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) return SystemError("cannot write", path);
    XLAD_RETURN_IF_ERROR(Write(file.get(), bytes, path));
    if (fsync(file.get()) != 0) return SystemError("cannot sync", path);
    return absl::OkStatus();
  }
};

}  // namespace

FileSystem& RealFileSystem() {
  static PosixFileSystem file_system;
  return file_system;
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  if (directory.empty()) return std::string(name);
  if (directory.back() == '/') directory.remove_suffix(1);
  return absl::StrCat(directory, "/", name);
}

std::string FolderOfPath(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return std::string(path.substr(0, slash == 0 ? 1 : slash));
}

}  // namespace xlad
