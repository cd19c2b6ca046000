#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/cache_folder.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/net/network.h"
#include "base/process/child_process.h"
#include "cli/command.h"
#include "cli/coordinator_flags.h"
#include "cli/flag_checks.h"
#include "security/join_file.h"
#include "service/credentials/kept_join_file.h"
#include "service/rpc/coordinator_daemon.h"

namespace xlad::cli {
namespace {

// Keeps a join file if the coordinator does not listen on loopback and has no --tls-cert, so that commands of the user
// who runs it need no flag. Otherwise returns null.
std::unique_ptr<service::JoinFileKeeper> KeepOwnCredentials(const service::DaemonOptions& options,
                                                            const std::string& address) {
  const auto at = ParseHostPort(options.listen);
  if (!at.ok() || IsLoopback(at->host) || !options.tls_cert_file.empty()) return nullptr;
  auto keeper = KeepOwnJoinFile(options.data_folder, address);
  if (keeper != nullptr) LogInfo("commands of this user use a join file", {{"file", security::DefaultJoinPath()}});
  return keeper;
}

int RunCoordinator(const service::DaemonOptions& options) {
  if (const absl::Status valid = WrongUsage(service::CheckProtection(options)); !valid.ok()) return Fail(valid);
  KeepFilesPrivate();
  std::atomic<int>* stop = StopRequested();
  const auto daemon = service::CoordinatorDaemon::Start(options);
  if (!daemon.ok()) return Fail(daemon.status());
  LogInfo("coordinator listens", {{"address", (*daemon)->Address()}, {"data", options.data_folder}});
  const auto credentials = KeepOwnCredentials(options, (*daemon)->Address());
  if (!options.http.empty()) LogInfo("metrics and dashboard", {{"address", (*daemon)->HttpAddress()}});
  while (*stop == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  LogInfo("coordinator stops; running jobs continue on their workers");
  (*daemon)->Shutdown();
  return kOk;
}

}  // namespace

void AddCoordinator(CLI::App& parent, Action* action) {
  auto options = std::make_shared<service::DaemonOptions>();
  options->program_path = kOwnProgram;
  options->keep_idle_build = true;
  options->data_folder = "xlad-data";
  auto cache = std::make_shared<std::string>();
  auto flags = std::make_shared<CoordinatorFlags>();
  CLI::App* app = parent.add_subcommand("coordinator", "run the coordinator daemon");
  app->footer(
      "Example:\n  xlad coordinator --listen 127.0.0.1:7411 --data /var/lib/xlad\n"
      "SIGTERM stops it cleanly; running jobs continue and are adopted at the next start.");
  app->add_option("--listen", options->listen,
                  "HOST:PORT to listen on, where HOST may be an interface, such as eth0; port 0: the system chooses")
      ->capture_default_str()
      ->transform(InterfaceAddress())
      ->check(Address());
  app->add_option("--advertise", options->advertise, kAdvertiseHelp)->transform(InterfaceAddress())->check(Host());
  app->add_option("--data", options->data_folder, "folder for the job log and blobs")
      ->capture_default_str()
      ->check(NotEmpty());
  app->add_option("--http", options->http, kHttpHelp)->check(Address());
  app->add_option("--tls-cert", options->tls_cert_file, "PEM certificate chain; default: a generated one");
  app->add_option("--tls-key", options->tls_key_file, "PEM private key of the certificate of --tls-cert");
  app->add_option("--token-file", options->token_file,
                  "file whose first line is a token that allows every call; --tls-cert requires it if --listen is not "
                  "a loopback address");
  app->add_option("--cache", *cache, kCacheHelp);
  AddCoordinatorFlags(app, flags.get());
  app->callback([=] {
    *action = [=] {
      const auto chosen = flags->Options();
      if (!chosen.ok()) return Fail(chosen.status());
      options->coordinator = *chosen;
      options->build_limits.memory_bytes = flags->build_memory_bytes;
      options->cache_folder = CacheFolder(*cache, JoinPath(options->data_folder, "executables"));
      return RunCoordinator(*options);
    };
  });
}

}  // namespace xlad::cli
