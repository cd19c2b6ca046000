// Files with secrets. Only their owner can read them, from the moment of their creation.
#pragma once

#include <string>

#include "base/file_system.h"

namespace xlad::security {

// Who owns a file or folder that is made.
enum class PrivateOwner {
  kCaller,
  // If root is the caller: the owner of the folder that contains it. Otherwise the caller. A service with a user of its
  // own can thus read what root adds to its folder. Root does not follow a symbolic link as the last folder of a path.
  kOwnerOfParent,
};

// Makes a folder with mode 0700, and its missing parents. Sets this mode and the owner if the folder exists.
absl::Status MakePrivateFolder(const std::string& folder, PrivateOwner owner = PrivateOwner::kCaller);

// Replaces the file atomically, with mode 0600. Readers get either the old or the new contents. After an error, the
// file is unchanged and no temporary file is left. Unavailable if a call of the file system fails.
absl::Status WritePrivateFile(const std::string& path, const std::string& contents,
                              PrivateOwner owner = PrivateOwner::kCaller);

}  // namespace xlad::security
