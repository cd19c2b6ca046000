#include "cli/command.h"
#include "client/coordinator_client.h"

namespace xlad::cli {
namespace {

int RunCancel(const Endpoint& endpoint, const std::string& job_id) {
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  const absl::Status status = (*client)->Cancel(job_id);
  return status.ok() ? kOk : Fail(status);
}

}  // namespace

void AddCancel(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto job_id = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("cancel", "end a job");
  app->footer("Example:\n  xlad cancel job-1a2b3c4d --coordinator 127.0.0.1:7411");
  app->add_option("JOB", *job_id, "the job's id")->required();
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return RunCancel(*endpoint, *job_id); }; });
}

}  // namespace xlad::cli
