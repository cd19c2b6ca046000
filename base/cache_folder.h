// The folders of this user's caches.
#pragma once

#include <string>

namespace xlad {

// Returns the value of an environment variable if it is an absolute path, and an empty string otherwise.
std::string FolderVariable(const char* name);

// Returns the user's cache folder: xlad in $XDG_CACHE_HOME or in $HOME/.cache. Empty if neither is an absolute path.
std::string UserCacheFolder();

// Returns the first of `flag`, $XLAD_CACHE and `usual` that is not empty. If this is "off", returns an empty string,
// which means that there is no cache.
std::string CacheFolder(const std::string& flag, const std::string& usual);

}  // namespace xlad
