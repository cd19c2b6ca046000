#include "worker/worker_main.h"

#include "cli/command.h"

namespace xlad::cli {

void AddWorker(CLI::App& parent, Action* action) {
  auto options = std::make_shared<worker::WorkerOptions>();
  CLI::App* app = parent.add_subcommand("worker", "run a worker daemon");
  app->footer("Example:\n  xlad worker --coordinator 127.0.0.1:7411 --devices 2\n"
              "SIGTERM drains: its jobs stop at a step, with their state, and the worker exits with 0.");
  app->add_option("--devices", options->devices, "devices that this worker offers")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app->add_option("--listen", options->listen_host, "host on which peers connect")->capture_default_str();
  app->add_option("--id", options->worker_id, "name of this worker; none: a random one");
  app->add_option("--grace-ms", options->grace_ms, "how long draining may take")
      ->capture_default_str()
      ->check(AtLeast(1));
  app->add_option("--progress-limit-ms", options->progress_limit_ms,
                  "a task whose collective makes no progress for so long has failed; 0: never")
      ->envname("XLAD_PROGRESS_LIMIT_MS")
      ->capture_default_str()
      ->check(AtLeast(0));
  AddEndpointFlags(app, &options->coordinator);
  app->callback([=] {
    *action = [=] {
      const absl::Status status = worker::RunWorker(*options, StopRequested());
      return status.ok() ? kOk : Fail(status);
    };
  });
}

}  // namespace xlad::cli
