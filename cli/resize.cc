#include <cstdio>

#include "cli/command.h"
#include "cli/flag_checks.h"
#include "client/coordinator_client.h"

namespace xlad::cli {
namespace {

int RunResize(const Endpoint& endpoint, const std::string& job_id, const std::string& mesh, int64_t devices) {
  if (mesh.empty() == (devices == 0)) {
    return Fail(WrongUsage(absl::InvalidArgumentError(
        absl::StrCat("found ", mesh.empty() ? "neither --mesh nor --devices" : "--mesh and --devices",
                     ", expected --mesh, or --devices for a job in the canonical mode, whose mesh does not change"))));
  }
  const auto axes = client::ParseMeshFlag(mesh);
  if (!axes.ok()) return Fail(axes.status());
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  if (const absl::Status resized = (*client)->Resize(job_id, *axes, devices); !resized.ok()) return Fail(resized);
  const auto job = (*client)->GetJob(job_id);
  if (!job.ok() || (job->state() != PENDING && job->state() != COMPILING)) return kOk;
  if (const auto why = (*client)->Why(job_id); why.ok()) std::printf("%s\n", why->text().c_str());
  return kOk;
}

}  // namespace

void AddResize(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto job_id = std::make_shared<std::string>();
  auto mesh = std::make_shared<std::string>();
  auto devices = std::make_shared<int64_t>(0);
  CLI::App* app = parent.add_subcommand("resize", "continue a job on another mesh, from a state that it saves now");
  app->footer("Examples:\n"
              "  xlad resize job-1a2b3c4d --mesh dp=2 --coordinator 127.0.0.1:7411\n"
              "  xlad resize job-1a2b3c4d --devices 2 --coordinator 127.0.0.1:7411");
  app->add_option("JOB", *job_id, "the job's id")->required();
  app->add_option("--mesh", *mesh, "sizes of the axes of the job's mesh, such as dp=2,tp=2")->check(MeshAxes());
  app->add_option("--devices", *devices,
                  "for a job in the canonical mode: the number of devices that run its logical shards")
      ->check(AtLeast(1));
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return RunResize(*endpoint, *job_id, *mesh, *devices); }; });
}

}  // namespace xlad::cli
