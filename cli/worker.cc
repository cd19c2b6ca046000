#include "worker/worker_main.h"

#include "base/child_process.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/transports.h"
#include "runtime/devices/registry/registry.h"

namespace xlad::cli {

void AddWorker(CLI::App& parent, Action* action) {
  auto options = std::make_shared<worker::WorkerOptions>();
  options->program_path = OwnExecutablePath();
  options->version = XLAD_VERSION;
  CLI::App* app = parent.add_subcommand("worker", "run a worker daemon");
  app->footer("Examples:\n  xlad worker --coordinator 127.0.0.1:7411 --devices 2\n"
              "  xlad worker --coordinator 127.0.0.1:7411 --device opaque:2\n"
              "SIGTERM drains: its jobs stop after a step and save their state. It exits with 75 if they\n"
              "continue elsewhere, with 0 if it was idle. A second SIGTERM ends it at once.");
  AddDeviceFlags(app, &options->devices, "COUNT: of this worker, 1 without it; default cpu");
  app->add_option("--listen", options->listen_host, "host on which peers connect")->capture_default_str();
  app->add_option("--id", options->worker_id, "name of this worker; default: a random one");
  AddThreadsFlag(app, &options->threads, "for all devices of this worker");
  app->add_option("--grace-ms", options->grace_ms, "how long draining may take")
      ->capture_default_str()
      ->check(AtLeast(1));
  app->add_option("--progress-limit-ms", options->progress_limit_ms,
                  "a task fails if its collective makes no progress for this long; 0: no limit")
      ->envname("XLAD_PROGRESS_LIMIT_MS")
      ->capture_default_str()
      ->check(AtLeast(0));
  app->add_option("--memory-limit", options->memory_limit_bytes,
                  "memory that each attempt may use, in bytes or as 500MB or 2GB; 0: no limit")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->capture_default_str();
  app->add_option("--idle-attempt", options->keep_idle_attempt,
                  "keep a process ready for the next attempt, so that it starts sooner")
      ->capture_default_str();
  AddTransportFlags(app, &options->transport, &options->any_network);
  AddEndpointFlags(app, &options->coordinator);
  app->callback([=] {
    *action = [=] {
      KeepFilesPrivate();
      if (options->devices.empty()) options->devices = {{"cpu", "", 1}};
      if (options->devices[0].count == 0) options->devices[0].count = 1;
      const auto end = worker::RunWorker(*options, runtime::AllDeviceKinds(), StopRequested());
      if (!end.ok()) return Fail(end.status());
      return static_cast<int>(*end == worker::WorkerEnd::kWorkMoved ? kMoved : kOk);
    };
  });
}

}  // namespace xlad::cli
