#include "collectives/exec/group/meeting.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "collectives/exec/group/own_folder.h"

namespace xlad::collectives {
namespace {

std::string LockPath(const std::string& path) { return absl::StrCat(path, "/lock"); }

// Whether the lock is that of the folder that is at this path now.
bool IsCurrent(const std::string& path, int lock) {
  struct stat here {
  }, there{};
  return fstat(lock, &here) == 0 && stat(LockPath(path).c_str(), &there) == 0 && here.st_ino == there.st_ino;
}

// Removes the folder if no other rank has it open. The folder is renamed first: a rank that arrives meanwhile creates a
// new folder, which must not be removed. For the same reason, the lock is compared after it was obtained: until then,
// another rank may have removed the folder.
void RemoveIfLast(const std::string& path, int lock) {
  if (flock(lock, LOCK_EX | LOCK_NB) != 0 || !IsCurrent(path, lock)) return;
  const std::string removed = absl::StrCat(path, "-", SystemRandom()->Hex(8));
  std::error_code ignored;
  if (rename(path.c_str(), removed.c_str()) == 0) std::filesystem::remove_all(removed, ignored);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MeetingFolder>> MeetingFolder::Open(const std::string& path) {
  while (true) {
    XLAD_RETURN_IF_ERROR(MakeOwnFolder(path, /*is_private=*/true, "remove it, or meet in a folder of this user"));
    const int lock = open(LockPath(path).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0 && errno == ENOENT) continue;  // Another rank has removed the folder.
    if (lock < 0) return PathError("cannot open the file", LockPath(path));
    std::unique_ptr<MeetingFolder> folder(new MeetingFolder(path, lock));
    if (flock(lock, LOCK_SH) != 0) return PathError("cannot lock the file", LockPath(path));
    // The locked file must be the file in the folder: the last rank of an earlier group may have removed the folder.
    if (IsCurrent(path, lock)) return folder;
  }
}

MeetingFolder::~MeetingFolder() {
  RemoveIfLast(path_, lock_);
  close(lock_);
}

void MeetingFolder::RemoveIfUnused(const std::string& path) {
  const int lock = open(LockPath(path).c_str(), O_RDWR | O_CLOEXEC);
  if (lock < 0) return;
  RemoveIfLast(path, lock);
  close(lock);
}

}  // namespace xlad::collectives
