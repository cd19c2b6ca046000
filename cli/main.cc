// The `xlad` command: a table of subcommands, one file each.
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
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
    "Each flag of a command can also be set by an environment variable or in the file that --config names;\n"
    "xlad config lists the variables and keys.\n"
    "Exit codes: 0 done, 1 bad input or failed job, 2 wrong usage, 3 coordinator not reachable, or port or folder\n"
    "in use, 75 stopped by SIGTERM with the state saved, 130 interrupted.";

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

// The innermost subcommand that the command line names, and its full name: "xlad ckpt ls".
std::pair<const CLI::App*, std::string> UsedCommand(const CLI::App& app) {
  const CLI::App* command = &app;
  std::string name = "xlad";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().back();
    absl::StrAppend(&name, " ", command->get_name());
  }
  return {command, name};
}

// Whether the command line has a word where the name of a command is expected: "xlad explian --help".
bool NamesUnknownCommand(const CLI::App& app) {
  const CLI::App* const command = UsedCommand(app).first;
  const std::vector<std::string> unknown = command->remaining(true);
  return !SubcommandsOf(*command).empty() && !unknown.empty() && !absl::StartsWith(unknown[0], "-");
}

// The message of an error of CLI11 in the form of xlad's errors.
std::string Reworded(const CLI::ParseError& error) {
  const std::string text = error.what();
  const auto split = [](absl::string_view from, const char* by) {
    return std::vector<std::string>(absl::StrSplit(from, absl::MaxSplits(by, 1)));
  };
  if (error.get_name() == "ConversionError") {
    const auto parts = split(absl::StripPrefix(text, "Could not convert: "), " = ");
    if (parts.size() == 2) return absl::StrCat(parts[0], ": found ", parts[1], ", expected a number");
  }
  if (error.get_name() == "ArgumentMismatch" &&
      absl::EndsWith(text, " missing")) {  // Example: "--device: 1 required KIND missing".
    const auto parts = split(text, ": "), value = split(text, " required ");
    if (parts.size() == 2 && value.size() == 2) {
      return absl::StrCat(parts[0], ": found no value, expected ", absl::StripSuffix(value[1], " missing"));
    }
  }
  if (error.get_name() == "ArgumentMismatch") {  // Example: "--steps: At Most 1 required but received 2".
    const auto parts = split(text, ": "), value = split(text, " required but received ");
    if (parts.size() == 2 && value.size() == 2 && absl::StartsWith(parts[1], "At Most 1 ")) {
      return absl::StrCat(parts[0], ": found ", value[1], " values, expected one");
    }
  }
  if (error.get_name() == "ExcludesError") {
    const auto parts = split(text, " excludes ");
    if (parts.size() == 2) return absl::StrCat(parts[0], " and ", parts[1], " cannot be used together");
  }
  return text;
}

// The error message for an unknown word. For a flag or a command of `xlad`, it suggests the most similar one, if there
// is one. For a nested command, it lists all.
std::string UnknownWord(const CLI::App& command, const std::string& name, const std::string& word) {
  const std::vector<std::string> commands = SubcommandsOf(command);
  const bool is_flag = absl::StartsWith(word, "-");
  const std::string nearest = NearestName(word, is_flag ? FlagsOf(command) : commands);
  const std::string suggestion = nearest.empty() ? "" : absl::StrCat(", did you mean ", nearest, "?");
  if (is_flag) return absl::StrCat("found unknown flag ", word, suggestion);
  if (commands.empty()) return absl::StrCat("found extra argument ", word);
  if (command.get_parent() == nullptr) return absl::StrCat("found unknown command ", word, suggestion);
  return absl::StrCat("found unknown command ", word, " of ", name, ", expected ", absl::StrJoin(commands, ", "));
}

int UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const auto [command, name] = UsedCommand(app);
  const std::vector<std::string> unknown = command->remaining(true), commands = SubcommandsOf(*command);
  std::string text = Reworded(error);
  if (!unknown.empty()) {
    text = UnknownWord(*command, name, std::vector<std::string>(absl::StrSplit(unknown[0], '='))[0]);
  } else if (error.get_name() == "RequiredError" && !commands.empty()) {
    text = absl::StrCat("found no command after ", name, ", expected ", absl::StrJoin(commands, ", "));
  }
  std::fprintf(stderr, "xlad: error: %s\nTry: %s --help\n", text.c_str(), name.c_str());
  return kUsage;
}

// `xlad help COMMAND` is `xlad COMMAND --help`, and `xlad --version` is `xlad version`.
std::vector<std::string> WithoutSynonyms(std::vector<std::string> arguments) {
  if (arguments.empty()) return arguments;
  if (arguments[0] == "help") {
    arguments.erase(arguments.begin());
    arguments.push_back("--help");
  } else if (arguments[0] == "--version") {
    arguments[0] = "version";
  }
  return arguments;
}

// Whether standard output is a pipe or a socket whose reader has ended, for example `head`.
bool OutputHasNoReader() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, /*timeout=*/0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

// Ends this process as SIGPIPE ends commands that do not handle signals: without a message. Returns if the process that
// started this one blocks the signal.
void EndBySigpipe() {
  signal(SIGPIPE, SIG_DFL);
  raise(SIGPIPE);
}

int Main(int argc, char** argv) {
  if (argc >= 2 && absl::string_view(argv[1]) == "__build") return service::RunBuildChild(/*is_idle=*/argc > 2);
  if (argc == 2 && absl::string_view(argv[1]) == "__attempt") worker::RunAttempt(runtime::AllDeviceKinds());
  CLI::App app("xlad: trains HLO programs on a mesh of devices", "xlad");
  app.footer(kFooter);
  app.set_help_flag("-h,--help", "this help");
  Action action;
  for (const auto& add : kCommands) add(app, &action);
  for (CLI::App* command : app.get_subcommands(nullptr)) command->allow_extras();
  app.allow_extras();
  auto arguments = WithSettings(app, WithoutSynonyms({argv + 1, argv + argc}), [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  if (!arguments.ok()) return Fail(arguments.status());
  std::reverse(arguments->begin(), arguments->end());  // The parser expects the arguments in reverse order.
  try {
    app.parse(*arguments);
    if (!UsedCommand(app).first->remaining(true).empty()) return UsageError(app, CLI::ExtrasError({"extra"}));
  } catch (const CLI::CallForHelp&) {
    if (NamesUnknownCommand(app)) return UsageError(app, CLI::ExtrasError({"extra"}));
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
  if (code != kOk || written) return code;
  if (OutputHasNoReader()) EndBySigpipe();
  return Fail(absl::InternalError("cannot write to standard output"));
}

}  // namespace
}  // namespace xlad::cli

int main(int argc, char** argv) {
  // The system names a process after the path that it executes, which is /proc/self/exe if a daemon has started it.
  prctl(PR_SET_NAME, "xlad");
  try {
    return xlad::cli::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "xlad: error: out of memory: the arrays of the program may be too large for this machine\n");
    return xlad::cli::kFailed;
  } catch (const std::exception& error) {  // Only libraries throw; xlad's functions return errors.
    std::fprintf(stderr, "xlad: error: %s\n", error.what());
    return xlad::cli::kFailed;
  }
}
