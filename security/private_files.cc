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

// Returns false if the owner cannot be set, with errno.
bool SetOwner(int fd, const std::string& path, PrivateOwner owner) {
  if (owner == PrivateOwner::kCaller || geteuid() != 0) return true;
  struct stat parent{};
  return stat(ParentOf(path).c_str(), &parent) == 0 && fchown(fd, parent.st_uid, parent.st_gid) == 0;
}

}  // namespace

absl::Status MakePrivateFolder(const std::string& folder, PrivateOwner owner) {
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(folder));
  if (chmod(folder.c_str(), 0700) != 0) return Failed("set mode 0700 on the folder", folder);
  if (owner == PrivateOwner::kCaller) return absl::OkStatus();
  const FileDescriptor made(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  return made.is_open() && SetOwner(made.get(), folder, owner) ? absl::OkStatus() : Failed("set the owner of", folder);
}

absl::Status WritePrivateFile(const std::string& path, const std::string& contents, PrivateOwner owner) {
  const std::string temporary = absl::StrCat(path, ".", SystemRandom()->Hex(4));
  absl::Status status;
  {
    const FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.is_open()) return Failed("make", temporary);
    if (!SetOwner(file.get(), path, owner)) status = Failed("set the owner of", temporary);
    if (!WriteAll(file.get(), contents) || fsync(file.get()) != 0) status = Failed("write", temporary);
  }
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) status = Failed("replace", path);
  if (!status.ok()) unlink(temporary.c_str());
  // The file is complete even if its folder may not be read or its file system does not sync folders.
  if (status.ok()) RealFileSystem().SyncDirectory(ParentOf(path)).IgnoreError();
  return status;
}

}  // namespace xlad::security
