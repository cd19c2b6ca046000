// The folders of this user's caches.
#pragma once

#include <string>

namespace xlad {

// Returns the value of an environment variable that names a folder, or an empty text unless the value is an absolute
// path.
std::string FolderVariable(const char* name);

// Returns the user's cache folder: xlad in $XDG_CACHE_HOME or in $HOME/.cache. Empty if neither is an absolute path.
std::string UserCacheFolder();

// Returns the folder of the flag if it is set, otherwise that of $XLAD_CACHE, otherwise `usual`. Returns an empty text
// (no cache) if the flag or variable that is used is "off".
std::string CacheFolder(const std::string& flag, const std::string& usual);

}  // namespace xlad
