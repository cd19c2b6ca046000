// `xlad config`: the flags of all commands with their environment variables and keys in a configuration file.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "cli/command.h"
#include "cli/settings.h"

namespace xlad::cli {
namespace {

struct ConfigOptions {
  std::string command;  // If empty, all commands.
  std::string format;
};

int RunConfig(const CLI::App& app, const ConfigOptions& options) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  bool found = false;
  for (const Setting& setting : AllSettings(app)) {
    const bool is_inside = setting.section.rfind(options.command + ".", 0) == 0;
    if (!options.command.empty() && setting.section != options.command && !is_inside) continue;
    found = true;
    const std::string description = setting.option->get_description();
    if (options.format == "json") {
      json.push_back({{"section", setting.section},
                      {"key", setting.key},
                      {"variable", setting.variable},
                      {"description", description}});
    } else {
      std::printf("%-32s --%-20s %-34s %s\n", absl::StrCat("[", setting.section, "] ", setting.key).c_str(),
                  setting.key.c_str(), setting.variable.c_str(), description.c_str());
    }
  }
  if (!found) {
    return Fail(WrongUsage(absl::InvalidArgumentError(
        absl::StrCat("--of: found command ", options.command, ", expected one that has flags; see xlad --help"))));
  }
  if (options.format == "json") std::printf("%s\n", JsonText(json, 2).c_str());
  return kOk;
}

}  // namespace

void AddConfig(CLI::App& parent, Action* action) {
  auto options = std::make_shared<ConfigOptions>();
  CLI::App* app = parent.add_subcommand("config", "print each flag with its variable and its key in a file");
  app->footer(
      "Examples:\n  xlad config --of worker\n  xlad worker --config /etc/xlad/xlad.toml\n"
      "A flag of the command line overrides its variable, and the variable overrides the file.");
  app->add_option("--of", options->command, "one command; default: all");
  AddFormatFlag(app, &options->format);
  app->callback([=, &parent] { *action = [=, &parent] { return RunConfig(parent, *options); }; });
}

}  // namespace xlad::cli
