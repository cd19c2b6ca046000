#include "collectives/exec/transports/plugin/load.h"

#include <dlfcn.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/process/child_process.h"

namespace xlad::collectives {
namespace {

absl::StatusOr<const xlad_transport_api*> Load(const PluginSource& source, const std::string& path) {
  // RTLD_GLOBAL is needed because the components of Open MPI expect its symbols to be visible. The library is never
  // closed, because network libraries have threads and handlers that run until the process ends.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat("transport ", source.name, ": cannot load ", path, ": ", dlerror(),
                                               "; install the package ", source.runtime_package));
  }
  const auto function = reinterpret_cast<xlad_transport_function>(dlsym(library, "xlad_transport"));
  const xlad_transport_api* const api = function == nullptr ? nullptr : function();
  if (api != nullptr && api->abi == XLAD_TRANSPORT_ABI && api->struct_bytes == sizeof(xlad_transport_api)) return api;
  const std::string found = api == nullptr
                                ? "no plugin"
                                : absl::StrCat("a plugin of version ", api->abi, " of the interface, with a table of ",
                                               api->struct_bytes, " bytes");
  return absl::FailedPreconditionError(absl::StrCat("transport ", source.name, ": found ", found, " in ", path,
                                                    ", expected version ", XLAD_TRANSPORT_ABI, " with ",
                                                    sizeof(xlad_transport_api), " bytes; build it with this xlad"));
}

}  // namespace

std::vector<std::string> PluginFolders() {
  std::vector<std::string> folders;
  if (const char* const path = std::getenv("XLAD_PLUGIN_PATH"); path != nullptr) {
    folders = absl::StrSplit(path, ':', absl::SkipEmpty());
  }
  folders.push_back(FolderOfPath(OwnExecutablePath()));
  return folders;
}

absl::StatusOr<const xlad_transport_api*> LoadPlugin(const PluginSource& source,
                                                     const std::vector<std::string>& folders) {
  const std::string file = absl::StrCat("libxlad_transport_", source.name, ".so");
  for (const std::string& folder : folders) {
    const std::string path = JoinPath(folder, file);
    if (RealFileSystem().Exists(path)) return Load(source, path);
  }
  return absl::NotFoundError(absl::StrCat("transport ", source.name, ": found no ", file, " in ",
                                          absl::StrJoin(folders, ", "), "; install the package ", source.package,
                                          " and build xlad again, or add the folder of the file to XLAD_PLUGIN_PATH"));
}

}  // namespace xlad::collectives
