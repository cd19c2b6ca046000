// Every flag of every command is also an environment variable and a key of a configuration file. The table of these
// settings is derived from the flags. docs/reference/configuration.md describes it; `xlad config` prints it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace xlad::cli {

struct Setting {
  std::string section;   // "worker", or "ckpt.export" for a nested command.
  std::string key;       // "memory-limit"; the flag is --memory-limit.
  std::string variable;  // "XLAD_WORKER_MEMORY_LIMIT", or the variable that commands share, such as XLAD_COORDINATOR.
  const CLI::Option* option = nullptr;
  const CLI::App* command = nullptr;
};

// The settings of `app`'s commands, in the order of the commands and their flags.
std::vector<Setting> AllSettings(const CLI::App& app);

// Returns the command line without the program's name and without --config. Flags that variables or the configuration
// file set are added. The file is named by --config or XLAD_CONFIG. A flag of the command line overrides its variable,
// and a variable overrides the file. A setting that excludes a flag of the command line is ignored. `get` returns the
// value of a variable, if it is set. Returns the error of reading the file, or InvalidArgument for a section or key
// that does not exist, with the most similar name.
absl::StatusOr<std::vector<std::string>> WithSettings(
    const CLI::App& app, std::vector<std::string> arguments,
    const std::function<std::optional<std::string>(const std::string&)>& get);

}  // namespace xlad::cli
