#include <cstdio>

#include "base/random.h"
#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/devices.h"
#include "cli/flag_checks.h"
#include "cli/follow.h"
#include "cli/recovery_flags.h"
#include "client/coordinator_client.h"

namespace xlad::cli {
namespace {

struct Options {
  std::string directory, mesh, curve, save_state, client_key;
  int64_t steps = -1, device_count = 0;
  DeviceRequests devices;
  RecoveryFlags recovery;
  CompileFlags compile;
  bool wait = false;
  Endpoint endpoint;
};

int Run(const Options& options) {
  auto job = client::ReadJobDirectory(RealFileSystem(), options.directory, options.mesh, options.steps);
  if (!job.ok()) return Fail(job.status());
  job->spec.set_keep_final_state(!options.save_state.empty());
  job->spec.set_device_name(DeviceFlagText(options.devices));
  auto policy = ReadCompileFlags(options.compile);
  if (!policy.ok()) return Fail(policy.status());
  *job->spec.mutable_compile() = *std::move(policy);
  ApplyRecoveryFlags(options.recovery, &job->spec);
  job->spec.set_devices(options.device_count);
  const auto client = client::CoordinatorClient::Connect(options.endpoint);
  if (!client.ok()) return Fail(client.status());
  const std::string key = options.client_key.empty() ? SystemRandom()->Hex(16) : options.client_key;
  // Before the first attempt: if no answer comes, the job may have been accepted nevertheless.
  if (options.client_key.empty()) std::fprintf(stderr, "xlad: submitting with --key %s\n", key.c_str());
  const auto id = (*client)->Submit(*job, key);
  if (!id.ok()) {
    return Fail(absl::IsUnavailable(id.status())
                    ? Annotate(id.status(), absl::StrCat("submit again with --key ", key, " to learn the job's id"))
                    : id.status());
  }
  std::printf("%s\n", id->c_str());
  std::fflush(stdout);
  if (!options.wait && options.curve.empty() && options.save_state.empty()) return kOk;
  FollowOptions follow;
  follow.curve_path = options.curve;
  follow.state_path = options.save_state;
  return FollowJob(**client, *id, job->spec, follow);
}

}  // namespace

void AddSubmit(CLI::App& parent, Action* action) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand("submit", "submit a job directory to a coordinator; prints the job's id");
  app->footer("Example:\n  xlad submit examples/spiral_mlp --coordinator 127.0.0.1:7411 --mesh dp=4,tp=2 --wait");
  app->add_option("JOBDIR", options->directory, "job directory")->required();
  app->add_option("--mesh", options->mesh, "mesh axes and sizes, as dp=4,tp=2; none: one device");
  AddDeviceFlag(app, &options->devices, "COUNT: the most that the job takes of this kind; default any devices");
  app->add_option("--steps", options->steps, "steps to train; none: as the manifest says")->check(AtLeast(0));
  app->add_option("--devices", options->device_count,
                  "with --mode canonical: the devices that run the mesh's logical shards, a number that divides them; "
                  "none: as many as the workers have")
      ->check(AtLeast(1));
  app->add_flag("--wait", options->wait, "follow the job to its end; the exit code is the job's");
  app->add_option("--curve", options->curve, "write losses, metrics and times to FILE (waits)")->check(OutputFile());
  app->add_option("--save-state", options->save_state, "write the final state to FILE, safetensors (waits)")
      ->check(OutputFile());
  AddRecoveryFlags(app, &options->recovery);
  AddCompileFlags(app, &options->compile);
  app->add_option("--key", options->client_key, "submitting again with the same key returns the same job");
  AddEndpointFlags(app, &options->endpoint);
  app->callback([=] { *action = [=] { return Run(*options); }; });
}

}  // namespace xlad::cli
