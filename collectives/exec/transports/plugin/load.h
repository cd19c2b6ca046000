// Finds and loads transport plugins.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/exec/transports/plugin/xlad_transport.h"

namespace xlad::collectives {

struct PluginSource {
  std::string name;             // The file is libxlad_transport_NAME.so.
  std::string package;          // The Debian package that is needed to build the plugin, for messages.
  std::string runtime_package;  // The Debian package with the library that the plugin loads.
};

// Returns the folders that are searched for plugins: the folders in XLAD_PLUGIN_PATH, which are separated by colons,
// then the folder of the program.
std::vector<std::string> PluginFolders();

// Loads a plugin, which stays loaded until the process ends. Thread-safe. NotFound, with the folders and the package,
// if the file does not exist. Unavailable if the file cannot be loaded. FailedPrecondition if the file is not a plugin,
// or was built for another version of the interface.
absl::StatusOr<const xlad_transport_api*> LoadPlugin(const PluginSource& source,
                                                     const std::vector<std::string>& folders = PluginFolders());

}  // namespace xlad::collectives
