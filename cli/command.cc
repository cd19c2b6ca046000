#include "cli/command.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "base/file_system.h"

namespace xlad::cli {
namespace {

std::atomic<int> stop_requested = 0;

void OnSignal(int /*signal*/) {
  if (stop_requested.exchange(1) != 0) _exit(kInterrupted);
}

}  // namespace

int Fail(const absl::Status& status) {
  if (absl::IsCancelled(status) && stop_requested != 0) {
    std::fprintf(stderr, "xlad: interrupted\n");
    return kInterrupted;
  }
  std::fprintf(stderr, "xlad: error: %s\n", std::string(status.message()).c_str());
  return absl::IsUnavailable(status) || absl::IsAlreadyExists(status) ? kUnavailable : kFailed;
}

void KeepFilesPrivate() { umask(0077); }

absl::Status WriteOutput(const std::string& path, const std::string& bytes) {
  if (!path.empty() && path != "-") return RealFileSystem().WriteAtomically(path, bytes);
  std::cout << bytes << std::flush;
  if (!std::cout.good()) return absl::InternalError("cannot write to standard output");
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  if (path != "-") return RealFileSystem().Read(path);
  return std::string((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
}

bool ErrorIsTerminal() { return isatty(STDERR_FILENO) != 0; }

std::atomic<int>* StopRequested() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = OnSignal;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);  // A daemon outlives the reader of its output.
    return true;
  }();
  (void)installed;
  return &stop_requested;
}

void AddEndpointFlags(CLI::App* app, Endpoint* endpoint) {
  endpoint->address = "127.0.0.1:7411";
  app->add_option("--coordinator", endpoint->address, "the coordinator, HOST:PORT")
      ->envname("XLAD_COORDINATOR")
      ->capture_default_str();
  app->add_option("--tls-ca", endpoint->ca_file, "PEM certificate that signs the coordinator's")
      ->envname("XLAD_TLS_CA");
  app->add_option("--token-file", endpoint->token_file, "file whose first line is the bearer token")
      ->envname("XLAD_TOKEN_FILE");
}

void AddFormatFlag(CLI::App* app, std::string* format) {
  *format = "table";
  CLI::Option* option =
      app->add_option("--format", *format, "what is printed: table or json")->check(CLI::IsMember({"table", "json"}));
  app->add_flag_callback("--json", [format] { *format = "json"; }, "--format json")->excludes(option);
}

CLI::Validator AtLeast(int64_t least) {
  const auto check = [least](const std::string& text) -> std::string {
    int64_t value = 0;
    if (absl::SimpleAtoi(text, &value) && value >= least) return "";
    return absl::StrCat("found ", text, ", expected a whole number from ", least);
  };
  return CLI::Validator(check, absl::StrCat("of ", least, " or more"));
}

CLI::Validator OutputFile() {
  const auto check = [](const std::string& path) -> std::string {
    if (path == "-") return "";
    std::string folder = std::filesystem::path(path).parent_path().string();
    if (folder.empty()) folder = ".";
    if (access(folder.c_str(), W_OK) == 0 && std::filesystem::is_directory(folder)) return "";
    return absl::StrCat("cannot write ", path, ": ", folder, " is not a folder that can be written");
  };
  return CLI::Validator(check, "");
}

std::string MeshText(const google::protobuf::RepeatedPtrField<MeshAxis>& mesh) {
  if (mesh.empty()) return "single";
  return absl::StrJoin(mesh, ",", [](std::string* out, const MeshAxis& axis) {
    absl::StrAppend(out, axis.name(), "=", axis.size());
  });
}

}  // namespace xlad::cli
