// Where this user's caches are stored.
#pragma once

#include <string>

namespace xlad {

// The value of an environment variable that names a folder; empty unless it is an absolute path.
std::string FolderVariable(const char* name);

// The user's cache folder: xlad in $XDG_CACHE_HOME or in $HOME/.cache. Empty if neither is an absolute path.
std::string UserCacheFolder();

// Returns the folder from the flag, otherwise from $XLAD_CACHE, otherwise `usual`. Empty (no cache) if the choice is
// "off".
std::string CacheFolder(const std::string& flag, const std::string& usual);

}  // namespace xlad
