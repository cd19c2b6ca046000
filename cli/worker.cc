#include "worker/worker_main.h"

#include "cli/command.h"
#include "cli/devices.h"
#include "runtime/devices/registry/registry.h"

namespace xlad::cli {

void AddWorker(CLI::App& parent, Action* action) {
  auto options = std::make_shared<worker::WorkerOptions>();
  CLI::App* app = parent.add_subcommand("worker", "run a worker daemon");
  app->footer("Examples:\n  xlad worker --coordinator 127.0.0.1:7411 --devices 2\n"
              "  xlad worker --coordinator 127.0.0.1:7411 --device opaque:2\n"
              "SIGTERM drains: its jobs stop after a step and save their state, and the worker exits with 0.");
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
  AddEndpointFlags(app, &options->coordinator);
  app->callback([=] {
    *action = [=] {
      if (options->devices.empty()) options->devices = {{"cpu", "", 1}};
      if (options->devices[0].count == 0) options->devices[0].count = 1;
      const absl::Status status = worker::RunWorker(*options, runtime::AllDeviceKinds(), StopRequested());
      return status.ok() ? kOk : Fail(status);
    };
  });
}

}  // namespace xlad::cli
