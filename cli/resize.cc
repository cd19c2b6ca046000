#include "cli/command.h"
#include "client/coordinator_client.h"

namespace xlad::cli {
namespace {

int Run(const Endpoint& endpoint, const std::string& job_id, const std::string& mesh) {
  const auto axes = client::ParseMeshFlag(mesh);
  if (!axes.ok()) return Fail(axes.status());
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  const absl::Status status = (*client)->Resize(job_id, *axes);
  return status.ok() ? static_cast<int>(kOk) : Fail(status);
}

}  // namespace

void AddResize(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto job_id = std::make_shared<std::string>();
  auto mesh = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("resize", "continue a job on another mesh, from a state that it saves now");
  app->footer("Example:\n  xlad resize job-1a2b3c4d --mesh dp=2 --coordinator 127.0.0.1:7411");
  app->add_option("JOB", *job_id, "the job's id")->required();
  app->add_option("--mesh", *mesh, "sizes of the axes of the job's mesh, as dp=2,tp=2")->required();
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return Run(*endpoint, *job_id, *mesh); }; });
}

}  // namespace xlad::cli
