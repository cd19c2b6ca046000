#include "cli/command.h"

#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "base/clock.h"
#include "base/file_error.h"
#include "base/file_system.h"
#include "base/log.h"
#include "cli/flag_checks.h"
#include "security/join_file.h"
#include "security/roles.h"
#include "service/credentials/kept_join_file.h"

namespace xlad::cli {
namespace {

std::atomic<int> stop_requested = 0;

void OnSignal(int signal) {
  if (stop_requested.exchange(signal) != 0) _exit(kInterrupted);
}

void OnDrainSignal(int /*signal*/) {
  int none = 0;
  stop_requested.compare_exchange_strong(none, SIGTERM);
}

// Replaces control characters, except for newlines and tabs, because a message may quote a file and a terminal would
// interpret them.
std::string WithoutControls(absl::string_view text) {
  std::string out(text);
  for (char& c : out) {
    const bool is_control = (c >= 0 && c < ' ') || c == 0x7f;
    if (is_control && c != '\n' && c != '\t') c = '?';
  }
  return out;
}

}  // namespace

int Fail(const absl::Status& status) {
  if (absl::IsCancelled(status) && stop_requested != 0) {
    std::fprintf(stderr, "xlad: interrupted\n");
    return kInterrupted;
  }
  std::fprintf(stderr, "xlad: error: %s\n", WithoutControls(status.message()).c_str());
  if (IsWrongUsage(status)) return kUsage;
  if (IsFileError(status)) return kFailed;
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

absl::StatusOr<std::string> TemporaryFolder() {
  std::error_code error;
  const std::string folder = std::filesystem::temp_directory_path(error).string();
  if (!error) return folder;
  const char* const named = std::getenv("TMPDIR");
  return absl::NotFoundError(absl::StrCat("TMPDIR: found \"", named == nullptr ? "" : named,
                                          "\", which is not a folder (", error.message(),
                                          "), expected one, for temporary files"));
}

bool ErrorIsTerminal() { return isatty(STDERR_FILENO) != 0; }

std::atomic<int>* StopRequested() {
  static const bool installed = [] {
    struct sigaction action{};
    action.sa_handler = OnSignal;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    action.sa_handler = OnDrainSignal;
    sigaction(kDrainSignal, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);  // A daemon continues if the reader of its output ends.
    return true;
  }();
  (void)installed;
  return &stop_requested;
}

namespace {

// Fills the endpoint from a join file. If `keeps_address` is true, the user has given the address, and that of the file
// is ignored.
void TakeJoinFile(const std::string& path, bool keeps_address, Endpoint* endpoint) {
  const absl::StatusOr<std::string> text = RealFileSystem().Read(path);
  if (!text.ok()) throw CLI::ValidationError("--join", std::string(text.status().message()));
  const absl::StatusOr<security::JoinFile> join = security::ParseJoinFile(*text);
  if (!join.ok()) throw CLI::ValidationError("--join", absl::StrCat(path, ": ", join.status().message()));
  if (!keeps_address) endpoint->address = join->address;
  endpoint->ca_file = endpoint->token_file = path;  // A join file has both (join_file.h).
}

}  // namespace

void AddEndpointFlags(CLI::App* app, Endpoint* endpoint, UseOwnJoinFile own) {
  endpoint->address = "127.0.0.1:7411";
  auto join = std::make_shared<std::string>();
  app->add_option("--join", *join, "join file of `xlad token`: address, certificate and token in one")
      ->envname("XLAD_JOIN");
  app->add_option("--coordinator", endpoint->address,
                  "the coordinator, HOST:PORT; except for worker, the join file of this user precedes the default")
      ->envname("XLAD_COORDINATOR")
      ->check(Address())
      ->capture_default_str();
  app->add_option("--tls-ca", endpoint->ca_file,
                  "PEM certificate of the authority that signed the coordinator's certificate")
      ->envname("XLAD_TLS_CA");
  app->add_option("--token-file", endpoint->token_file, "file whose first line is the bearer token")
      ->envname("XLAD_TOKEN_FILE");
  app->parse_complete_callback([app, endpoint, join, own] {
    const bool has_address = app->count("--coordinator") > 0;
    if (!join->empty()) return TakeJoinFile(*join, has_address, endpoint);
    if (!endpoint->ca_file.empty() || own == UseOwnJoinFile::kNo) return;
    const std::string path = security::DefaultJoinPath();
    if (path.empty() || !RealFileSystem().Exists(path)) return;
    Endpoint own_endpoint;
    TakeJoinFile(path, false, &own_endpoint);
    if (!has_address || own_endpoint.address == endpoint->address) *endpoint = own_endpoint;
  });
}

std::string OwnUserName() {
  const passwd* const entry = getpwuid(geteuid());
  if (entry != nullptr && security::IsUserName(entry->pw_name)) return entry->pw_name;
  return absl::StrCat("uid-", geteuid());
}

std::unique_ptr<service::JoinFileKeeper> KeepOwnJoinFile(const std::string& data_folder, const std::string& address) {
  const std::string path = security::DefaultJoinPath();
  if (path.empty()) return nullptr;
  auto keeper = service::JoinFileKeeper::Start({.path = path,
                                                .data_folder = data_folder,
                                                .address = address,
                                                .caller = {.user = OwnUserName(), .role = security::Role::kOperator}},
                                               service::JoinFileKeeper::AtEnd::kKeepFile);
  if (keeper.ok()) return *std::move(keeper);
  LogWarn("the join file of this user cannot be written, so its commands need --join FILE (xlad token)",
          {{"file", path}, {"error", std::string(keeper.status().message())}});
  return nullptr;
}

void AddFormatFlag(CLI::App* app, std::string* format) {
  *format = "table";
  CLI::Option* option =
      app->add_option("--format", *format, "what is printed: table or json")->check(OneOf({"table", "json"}));
  app->add_flag_callback("--json", [format] { *format = "json"; }, "--format json")->excludes(option);
}

}  // namespace xlad::cli
