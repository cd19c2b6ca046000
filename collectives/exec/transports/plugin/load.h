// Finds and loads transport plugins.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/exec/transports/plugin/xlad_transport.h"

namespace xlad::collectives {

struct PluginSource {
  std::string name;             // The file is libxlad_transport_NAME.so.
  std::string package;          // The Debian package that the build needs to make it, for messages.
  std::string runtime_package;  // The Debian package with the library that it loads.
};

// The folders in which plugins are looked for: those of XLAD_PLUGIN_PATH, separated by colons, then that of the
// program.
std::vector<std::string> PluginFolders();

// Loads a plugin, which stays loaded until the process ends. NotFound, with the folders and the package, if the
// file does not exist; Unavailable if it cannot be loaded; FailedPrecondition if it was built for another version of
// the interface. Thread-safe.
absl::StatusOr<const xlad_transport_api*> LoadPlugin(const PluginSource& source,
                                                     const std::vector<std::string>& folders = PluginFolders());

}  // namespace xlad::collectives
