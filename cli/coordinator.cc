#include <chrono>
#include <cstdio>
#include <thread>

#include "base/child_process.h"
#include "base/file_system.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/coordinator_flags.h"
#include "service/coordinator_daemon.h"
#include "service/executable_cache.h"

namespace xlad::cli {
namespace {

int Run(const service::DaemonOptions& options) {
  KeepFilesPrivate();
  std::atomic<int>* stop = StopRequested();
  const auto daemon = service::CoordinatorDaemon::Start(options);
  if (!daemon.ok()) return Fail(daemon.status());
  LogInfo("coordinator listens", {{"address", (*daemon)->Address()}, {"data", options.data_folder}});
  while (*stop == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  LogInfo("coordinator stops; running jobs continue on their workers");
  (*daemon)->Shutdown();
  return kOk;
}

}  // namespace

void AddCoordinator(CLI::App& parent, Action* action) {
  auto options = std::make_shared<service::DaemonOptions>();
  options->program_path = OwnExecutablePath();
  options->data_folder = "xlad-data";
  auto cache = std::make_shared<std::string>();
  auto flags = std::make_shared<CoordinatorFlags>();
  CLI::App* app = parent.add_subcommand("coordinator", "run the coordinator daemon");
  app->footer("Example:\n  xlad coordinator --listen 127.0.0.1:7411 --data /var/lib/xlad\n"
              "SIGTERM stops it cleanly; running jobs continue and are adopted at the next start.");
  app->add_option("--listen", options->listen, "HOST:PORT to listen on; port 0: the system chooses")
      ->capture_default_str();
  app->add_option("--data", options->data_folder, "folder for the job log and blobs")->capture_default_str();
  app->add_option("--tls-cert", options->tls_cert_file, "PEM certificate chain (required off loopback)");
  app->add_option("--tls-key", options->tls_key_file, "PEM private key (required off loopback)");
  app->add_option("--token-file", options->token_file, "file whose first line is the token that clients must send");
  app->add_option("--cache", *cache, kCacheHelp);
  AddCoordinatorFlags(app, flags.get());
  app->callback([=] {
    *action = [=] {
      const auto chosen = flags->Options();
      if (!chosen.ok()) return Fail(chosen.status());
      options->coordinator = *chosen;
      options->build_limits.memory_bytes = flags->build_memory_bytes;
      options->cache_folder = service::CacheFolder(*cache, JoinPath(options->data_folder, "executables"));
      return Run(*options);
    };
  });
}

}  // namespace xlad::cli
