#include "cli/settings.h"

#include <map>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/file_system.h"
#include "base/suggest.h"
#include "cli/wrong_usage.h"

namespace xlad::cli {
namespace {

using Values = std::map<std::string, std::string>;  // The keys are "section.key".

std::string VariableOf(const std::string& section, const std::string& key) {
  return absl::StrCat(
      "XLAD_", absl::AsciiStrToUpper(absl::StrReplaceAll(absl::StrCat(section, "_", key), {{".", "_"}, {"-", "_"}})));
}

void Append(const CLI::App& command, const std::string& section, std::vector<Setting>* settings) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames().front() == "help") continue;
    const std::string& key = option->get_lnames().front();
    const std::string& shared = option->get_envname();
    settings->push_back({section, key, shared.empty() ? VariableOf(section, key) : shared, option, &command});
  }
  for (const CLI::App* inner : command.get_subcommands(nullptr)) {
    Append(*inner, absl::StrCat(section, ".", inner->get_name()), settings);
  }
}

// Removes --config FILE from the arguments. Returns FILE, or "" if the arguments have no --config.
absl::StatusOr<std::string> TakeConfig(std::vector<std::string>* arguments) {
  for (size_t i = 0; i < arguments->size() && (*arguments)[i] != "--"; ++i) {
    const std::string& argument = (*arguments)[i];
    const bool has_file = absl::StartsWith(argument, "--config=");
    if (!has_file && argument != "--config") continue;
    const std::string next = i + 1 < arguments->size() ? (*arguments)[i + 1] : "";
    const std::string file = has_file ? argument.substr(9) : next;
    if (file.empty()) {
      return WrongUsage(absl::InvalidArgumentError("found --config without a file, expected a configuration file"));
    }
    arguments->erase(arguments->begin() + i, arguments->begin() + i + (has_file ? 1 : 2));
    return file;
  }
  return std::string();
}

// Returns OK if the setting exists, otherwise an error that names the most similar one.
absl::Status CheckKey(const std::vector<Setting>& settings, const std::string& file, const std::string& section,
                      const std::string& key) {
  std::vector<std::string> keys, sections;
  for (const Setting& setting : settings) {
    if (setting.section == section) keys.push_back(setting.key);
    sections.push_back(setting.section);
    if (setting.section == section && setting.key == key) return absl::OkStatus();
  }
  if (section.empty()) {
    return WrongUsage(absl::InvalidArgumentError(
        absl::StrCat(file, ": found ", key, " outside of a section, expected [COMMAND] before it, such as [worker]")));
  }
  const std::string nearest = keys.empty() ? NearestName(section, sections) : NearestName(key, keys);
  return WrongUsage(absl::InvalidArgumentError(absl::StrCat(
      file, ": found ",
      keys.empty() ? absl::StrCat("section [", section, "]") : absl::StrCat("key ", key, " in section [", section, "]"),
      ", expected the name of a ", keys.empty() ? "command" : "flag of that command without --",
      nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"))));
}

absl::StatusOr<Values> ReadConfig(const std::vector<Setting>& settings, const std::string& file) {
  Values values;
  XLAD_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().Read(file));
  std::istringstream stream(text);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(stream);
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", error.what()));
  }
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // Marks the beginning or end of a section.
    const std::string section = absl::StrJoin(item.parents, ".");
    XLAD_RETURN_IF_ERROR(CheckKey(settings, file, section, item.name));
    values[absl::StrCat(section, ".", item.name)] = absl::StrJoin(item.inputs, ",");
  }
  return values;
}

// Whether one of `arguments` is the option.
bool IsGiven(const CLI::Option& option, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return false;
    for (const std::string& name : option.get_lnames()) {
      if (argument == "--" + name || absl::StartsWith(argument, absl::StrCat("--", name, "="))) return true;
    }
    for (const std::string& name : option.get_snames()) {
      if (absl::StartsWith(argument, "-" + name) && !absl::StartsWith(argument, "--")) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Setting> AllSettings(const CLI::App& app) {
  std::vector<Setting> settings;
  for (const CLI::App* command : app.get_subcommands(nullptr)) Append(*command, command->get_name(), &settings);
  return settings;
}

absl::StatusOr<std::vector<std::string>> WithSettings(
    const CLI::App& app, std::vector<std::string> arguments,
    const std::function<std::optional<std::string>(const std::string&)>& get) {
  const std::vector<Setting> settings = AllSettings(app);
  XLAD_ASSIGN_OR_RETURN(std::string file, TakeConfig(&arguments));
  if (file.empty()) file = get("XLAD_CONFIG").value_or("");
  Values values;
  if (!file.empty()) {
    XLAD_ASSIGN_OR_RETURN(values, ReadConfig(settings, file));
  }
  // Finds the command in the arguments. Its flags follow its name.
  const CLI::App* command = &app;
  size_t begin = 0;
  for (; begin < arguments.size(); ++begin) {
    const auto inner =
        command->get_subcommands([&](const CLI::App* candidate) { return candidate->get_name() == arguments[begin]; });
    if (inner.empty()) break;
    command = inner.front();
  }
  const std::vector<std::string> given(arguments.begin() + begin, arguments.end());
  std::vector<std::string> added;
  for (const Setting& setting : settings) {
    if (setting.command != command || IsGiven(*setting.option, given)) continue;
    bool excluded = false;
    for (const CLI::Option* other : setting.option->get_excludes()) excluded = excluded || IsGiven(*other, given);
    const std::optional<std::string> variable = get(setting.variable);
    const bool is_set = variable.has_value() && !variable->empty();
    // The parser reads the variables that commands share, so they are skipped here.
    if (excluded || (is_set && !setting.option->get_envname().empty())) continue;
    const auto in_file = values.find(absl::StrCat(setting.section, ".", setting.key));
    if (is_set) {
      added.push_back(absl::StrCat("--", setting.key, "=", *variable));
    } else if (in_file != values.end()) {
      added.push_back(absl::StrCat("--", setting.key, "=", in_file->second));
    }
  }
  arguments.insert(arguments.begin() + begin, added.begin(), added.end());
  return arguments;
}

}  // namespace xlad::cli
