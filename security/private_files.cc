#include "security/private_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/file_descriptor.h"

namespace xlad::security {
namespace {

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

absl::Status WriteAndSync(int file, const std::string& path, const std::string& contents) {
  size_t written = 0;
  while (written < contents.size()) {
    const ssize_t n = write(file, contents.data() + written, contents.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("write", path);
    written += static_cast<size_t>(n);
  }
  return fsync(file) == 0 ? absl::OkStatus() : Failed("write", path);
}

}  // namespace

absl::Status MakePrivateFolder(const std::string& folder) {
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(folder));
  return chmod(folder.c_str(), 0700) == 0 ? absl::OkStatus() : Failed("set mode 0700 on the folder", folder);
}

absl::Status WritePrivateFile(const std::string& path, const std::string& contents) {
  const std::string temporary = absl::StrCat(path, ".", SystemRandom()->Hex(4));
  absl::Status status;
  {
    const FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.is_open()) return Failed("make", temporary);
    status = WriteAndSync(file.get(), temporary, contents);
  }
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) status = Failed("replace", path);
  if (!status.ok()) unlink(temporary.c_str());
  // The file is complete even if its folder may not be read or its file system does not sync folders.
  if (status.ok()) RealFileSystem().SyncDirectory(std::filesystem::path(path).parent_path().string()).IgnoreError();
  return status;
}

}  // namespace xlad::security
