#include "collectives/exec/group/meeting.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/random.h"

namespace xlad::collectives {
namespace {

std::string LockPath(const std::string& path) { return absl::StrCat(path, "/lock"); }

// The folder is renamed first, so that what a rank that arrives meanwhile puts into its new folder is not removed.
void RemoveIfLast(const std::string& path, int lock) {
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) return;
  const std::string removed = absl::StrCat(path, "-", SystemRandom()->Hex(8));
  std::error_code ignored;
  if (rename(path.c_str(), removed.c_str()) == 0) std::filesystem::remove_all(removed, ignored);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MeetingFolder>> MeetingFolder::Open(const std::string& path) {
  while (true) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) break;
    const int lock = open(LockPath(path).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0 && errno == ENOENT) continue;  // Another rank has removed the folder meanwhile.
    if (lock < 0) break;
    std::unique_ptr<MeetingFolder> folder(new MeetingFolder(path, lock));
    if (flock(lock, LOCK_SH) != 0) break;
    // The file that is locked must be the one in the folder: the last rank of an earlier group may have removed it.
    struct stat here {
    }, there{};
    if (fstat(lock, &here) == 0 && stat(LockPath(path).c_str(), &there) == 0 && here.st_ino == there.st_ino) {
      return folder;
    }
  }
  return absl::UnavailableError(absl::StrCat(path, ": cannot open the folder: ", std::strerror(errno)));
}

MeetingFolder::~MeetingFolder() {
  struct stat here {
  }, there{};
  const bool is_current =
      fstat(lock_, &here) == 0 && stat(LockPath(path_).c_str(), &there) == 0 && here.st_ino == there.st_ino;
  if (is_current) RemoveIfLast(path_, lock_);
  close(lock_);
}

void MeetingFolder::RemoveIfUnused(const std::string& path) {
  const int lock = open(LockPath(path).c_str(), O_RDWR | O_CLOEXEC);
  if (lock < 0) return;
  RemoveIfLast(path, lock);
  close(lock);
}

}  // namespace xlad::collectives
