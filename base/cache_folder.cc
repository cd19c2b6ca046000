#include "base/cache_folder.h"

#include <cstdlib>

#include "base/file_system.h"

namespace xlad {

std::string FolderVariable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || value[0] != '/' ? "" : value;
}

std::string UserCacheFolder() {
  if (const std::string folder = FolderVariable("XDG_CACHE_HOME"); !folder.empty()) return JoinPath(folder, "xlad");
  const std::string home = FolderVariable("HOME");
  return home.empty() ? "" : JoinPath(home, ".cache/xlad");
}

std::string CacheFolder(const std::string& flag, const std::string& usual) {
  const char* const variable = std::getenv("XLAD_CACHE");
  const std::string chosen = flag.empty() && variable != nullptr ? variable : flag;
  if (chosen == "off") return "";
  return chosen.empty() ? usual : chosen;
}

}  // namespace xlad
