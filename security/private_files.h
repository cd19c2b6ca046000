// Files with secrets. From their creation on, only their owner can read them.
#pragma once

#include <string>

#include "base/file_system.h"

namespace xlad::security {

// Makes a folder with mode 0700, and its parents. An existing folder gets that mode.
absl::Status MakePrivateFolder(const std::string& folder);

// Replaces the file atomically, with mode 0600. Readers get either the old or the new contents. An error leaves the old
// contents and no other file. Unavailable if a call of the file system fails.
absl::Status WritePrivateFile(const std::string& path, const std::string& contents);

}  // namespace xlad::security
