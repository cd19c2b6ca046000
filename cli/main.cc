// The `xlad` command: a table of subcommands, one file each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/suggest.h"
#include "cli/command.h"
#include "cli/settings.h"
#include "runtime/devices/registry/registry.h"
#include "service/build/build.h"
#include "worker/attempt_main.h"

namespace xlad::cli {
namespace {

constexpr void (*kCommands[])(CLI::App&, Action*) = {
    AddUp,      AddCoordinator, AddWorker,  AddRun,    AddSubmit,  AddPs,     AddLogs,  AddCancel,  AddCkpt,
    AddEvents,  AddWhy,         AddStatus,  AddNodes,  AddTop,     AddResize, AddDrain, AddUndrain, AddBackup,
    AddRestore, AddPartition,   AddExplain, AddVerify, AddCompile, AddTune,   AddOpt,   AddEval,    AddBench,
    AddComm,    AddSimulate,    AddChaos,   AddConfig, AddVersion, AddToken,  AddTrace,
};

constexpr char kFooter[] =
    "Examples:\n"
    "  xlad run examples/spiral_mlp --mesh dp=4,tp=2 --workers 4\n"
    "  xlad explain examples/spiral_mlp --mesh dp=8\n"
    "  xlad up --workers 4 --devices 2\n"
    "  xlad submit examples/spiral_mlp --coordinator 127.0.0.1:7411 --mesh dp=8 --wait\n"
    "Each flag of a command is also an environment variable and a key of the file of --config FILE: xlad config\n"
    "Exit codes: 0 done, 1 bad input or failed job, 2 wrong usage, 3 not reachable or in use, 130 interrupted.";

std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::vector<std::string> SubcommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

// Prints a usage error. Suggests the most similar command or flag, if there is one.
int UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  for (const CLI::App* used : app.get_subcommands()) command = used;
  std::string text = error.what();
  const std::vector<std::string> unknown = command->remaining(true);
  if (!unknown.empty()) {
    const std::string word = std::vector<std::string>(absl::StrSplit(unknown[0], '='))[0];
    const bool flag = absl::StartsWith(word, "-");
    const std::string nearest = NearestName(word, flag ? FlagsOf(*command) : SubcommandsOf(*command));
    text = absl::StrCat("found ",
                        flag              ? "unknown flag "
                        : command == &app ? "unknown command "
                                          : "extra argument ",
                        word, nearest.empty() ? "" : absl::StrCat(", did you mean ", nearest, "?"));
  }
  std::fprintf(stderr, "xlad: error: %s\nTry: %s --help\n", text.c_str(),
               command == &app ? "xlad" : absl::StrCat("xlad ", command->get_name()).c_str());
  return kUsage;
}

int Main(int argc, char** argv) {
  if (argc == 2 && absl::string_view(argv[1]) == "__build") return service::RunBuildChild();
  if (argc == 2 && absl::string_view(argv[1]) == "__attempt") worker::RunAttempt(runtime::AllDeviceKinds());
  CLI::App app("xlad: trains HLO programs on a mesh of devices", "xlad");
  app.footer(kFooter);
  app.set_help_flag("-h,--help", "this help");
  Action action;
  for (const auto& add : kCommands) add(app, &action);
  for (CLI::App* command : app.get_subcommands(nullptr)) command->allow_extras();
  app.allow_extras();
  auto arguments = WithSettings(app, {argv + 1, argv + argc}, [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  if (!arguments.ok()) return Fail(arguments.status());
  std::reverse(arguments->begin(), arguments->end());  // The parser takes them from the end.
  try {
    app.parse(*arguments);
    const CLI::App* command = &app;
    for (const CLI::App* used : app.get_subcommands()) command = used;
    if (!command->remaining(true).empty()) return UsageError(app, CLI::ExtrasError({"extra"}));
  } catch (const CLI::CallForHelp&) {
    const auto used = app.get_subcommands();
    std::printf("%s", used.empty() ? app.help().c_str() : used[0]->help("xlad").c_str());
    return kOk;
  } catch (const CLI::ParseError& error) {
    return UsageError(app, error);
  }
  if (!action) {
    std::fprintf(stderr, "%s", app.help().c_str());
    return kUsage;
  }
  const int code = action();
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return code == kOk && !written ? Fail(absl::InternalError("cannot write to standard output")) : code;
}

}  // namespace
}  // namespace xlad::cli

int main(int argc, char** argv) {
  try {
    return xlad::cli::Main(argc, argv);
  } catch (const std::exception& error) {  // Thrown by a library; xlad's functions return errors.
    std::fprintf(stderr, "xlad: error: %s\n", error.what());
    return xlad::cli::kFailed;
  }
}
