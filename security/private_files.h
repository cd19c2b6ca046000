// Files with secrets: readable by their owner alone from the moment in which they exist.
#pragma once

#include <string>

#include "base/file_system.h"

namespace xlad::security {

// Makes a folder with mode 0700, and its parents; an existing one gets that mode.
absl::Status MakePrivateFolder(const std::string& folder);

// Replaces the file at once, with mode 0600. Readers see the old or the new contents.
absl::Status WritePrivateFile(const std::string& path, const std::string& contents);

}  // namespace xlad::security
