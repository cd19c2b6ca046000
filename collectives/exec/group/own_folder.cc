#include "collectives/exec/group/own_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace xlad::collectives {

absl::Status PathError(absl::string_view what, const std::string& path) {
  const int error = errno;
  const std::string text = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  if (error == EEXIST) return absl::AlreadyExistsError(text);
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(absl::StrCat(text, " (user ", geteuid(), ")"));
  }
  return absl::UnavailableError(text);
}

absl::Status MakeOwnFolder(const std::string& path, bool is_private, absl::string_view advice) {
  const auto with_advice = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(status.message(), "; ", advice));
  };
  struct stat info{};
  bool is_there = false;
  while (!is_there) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      return with_advice(PathError("cannot create the folder", path));
    }
    is_there = lstat(path.c_str(), &info) == 0;
    // Another process may have removed the folder since mkdir.
    if (!is_there && errno != ENOENT) return with_advice(PathError("cannot look the folder up", path));
  }
  std::string found;
  if (!S_ISDIR(info.st_mode)) {
    found = "something that is not a folder";
  } else if (info.st_uid != geteuid()) {
    found = absl::StrCat("a folder of user ", info.st_uid);
  } else if (is_private && (info.st_mode & 077) != 0) {
    found = "a folder that others can access";
  }
  if (found.empty()) return absl::OkStatus();
  return with_advice(absl::FailedPreconditionError(absl::StrCat(
      path, ": found ", found, ", expected a ", is_private ? "private " : "", "folder of user ", geteuid())));
}

}  // namespace xlad::collectives
