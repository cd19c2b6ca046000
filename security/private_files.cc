#include "security/private_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/file_descriptor.h"
#include "base/random.h"

namespace xlad::security {
namespace {

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

std::string ParentOf(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }

// Root gives files to the owner of a folder. This owner may have replaced the last folder of a path by a symbolic link.
// If root followed the link, it would change files elsewhere in the name of this user.
bool GivesAway(PrivateOwner owner) { return owner == PrivateOwner::kOwnerOfParent && geteuid() == 0; }

// Changes the owner of an open file to the owner of `parent`, the descriptor of a folder. Returns false after an error,
// with errno.
bool GiveToOwnerOf(int parent, int fd) {
  struct stat found{};
  return fstat(parent, &found) == 0 && fchown(fd, found.st_uid, found.st_gid) == 0;
}

}  // namespace

absl::Status MakePrivateFolder(const std::string& folder, PrivateOwner owner) {
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(folder));
  if (!GivesAway(owner)) {
    return chmod(folder.c_str(), 0700) == 0 ? absl::OkStatus() : Failed("set mode 0700 on the folder", folder);
  }
  const FileDescriptor made(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!made.is_open()) return Failed("open the folder", folder);
  if (fchmod(made.get(), 0700) != 0) return Failed("set mode 0700 on the folder", folder);
  const FileDescriptor parent(openat(made.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
  return parent.is_open() && GiveToOwnerOf(parent.get(), made.get()) ? absl::OkStatus()
                                                                     : Failed("set the owner of", folder);
}

// All names are relative to one descriptor, because the folder may be replaced by a symbolic link at any time.
absl::Status WritePrivateFile(const std::string& path, const std::string& contents, PrivateOwner owner) {
  const std::string folder = ParentOf(path), name = std::filesystem::path(path).filename().string();
  const std::string temporary = absl::StrCat(name, ".", SystemRandom()->Hex(4));
  // O_PATH is enough for a folder that may not be listed.
  const FileDescriptor parent(open(folder.empty() ? "." : folder.c_str(),
                                   O_PATH | O_DIRECTORY | O_CLOEXEC | (GivesAway(owner) ? O_NOFOLLOW : 0)));
  if (!parent.is_open()) return Failed("open the folder", folder);
  absl::Status status;
  {
    constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    const FileDescriptor file(openat(parent.get(), temporary.c_str(), kNew, 0600));
    if (!file.is_open()) return Failed("make", JoinPath(folder, temporary));
    if (GivesAway(owner) && !GiveToOwnerOf(parent.get(), file.get())) status = Failed("set the owner of", path);
    if (!WriteAll(file.get(), contents) || fsync(file.get()) != 0) status = Failed("write", path);
  }
  if (status.ok() && renameat(parent.get(), temporary.c_str(), parent.get(), name.c_str()) != 0) {
    status = Failed("replace", path);
  }
  if (!status.ok()) unlinkat(parent.get(), temporary.c_str(), 0);
  // The file is complete even if its folder may not be read or its file system does not sync folders.
  if (status.ok()) RealFileSystem().SyncDirectory(folder).IgnoreError();
  return status;
}

}  // namespace xlad::security
