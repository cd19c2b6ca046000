// `xlad drain` and `xlad undrain`.
#include "cli/command.h"
#include "client/coordinator_client.h"

namespace xlad::cli {
namespace {

void Add(CLI::App& parent, Action* action, const char* name, const char* help,
         absl::Status (client::CoordinatorClient::*call)(const std::string&)) {
  auto endpoint = std::make_shared<Endpoint>();
  auto worker_id = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand(name, help);
  app->footer(absl::StrCat("Example:\n  xlad ", name, " worker-1 --coordinator 127.0.0.1:7411"));
  app->add_option("WORKER", *worker_id, "the worker's id; xlad status lists all ids")->required();
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] {
    *action = [=] {
      const auto client = client::CoordinatorClient::Connect(*endpoint);
      if (!client.ok()) return Fail(client.status());
      const absl::Status status = (client->get()->*call)(*worker_id);
      return status.ok() ? static_cast<int>(kOk) : Fail(status);
    };
  });
}

}  // namespace

void AddDrain(CLI::App& parent, Action* action) {
  Add(parent, action, "drain", "give a worker no more work; its jobs save their state and continue on other workers",
      &client::CoordinatorClient::DrainWorker);
}

void AddUndrain(CLI::App& parent, Action* action) {
  Add(parent, action, "undrain", "let a drained worker take work again", &client::CoordinatorClient::UndrainWorker);
}

}  // namespace xlad::cli
