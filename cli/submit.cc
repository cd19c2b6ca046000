#include <cstdio>

#include "base/file_error.h"
#include "base/random.h"
#include "cli/command.h"
#include "cli/compile_flags.h"
#include "cli/devices.h"
#include "cli/flag_checks.h"
#include "cli/follow.h"
#include "cli/recovery_flags.h"
#include "cli/tensor_flags.h"
#include "client/coordinator_client.h"

namespace xlad::cli {
namespace {

struct SubmitOptions {
  std::string directory, mesh, curve, save_state, client_key;
  int64_t steps = -1, device_count = 0;
  DeviceRequests devices;
  client::TensorUris tensors;
  RecoveryFlags recovery;
  CompileFlags compile;
  bool wait = false;
  Endpoint endpoint;
};

int RunSubmit(const SubmitOptions& options) {
  auto job = client::ReadJobDirectory(RealFileSystem(), options.directory, options.mesh, options.steps,
                                      options.tensors);
  if (!job.ok()) return Fail(job.status());
  // The coordinator keeps the state even if this command does not wait for the end.
  job->spec.set_keep_final_state(true);
  job->spec.set_device_name(DeviceFlagText(options.devices));
  auto policy = ReadCompileFlags(options.compile);
  if (!policy.ok()) return Fail(policy.status());
  *job->spec.mutable_compile() = *std::move(policy);
  job->spec.set_compile_tier(TierOf(options.compile));
  ApplyRecoveryFlags(options.recovery, &job->spec);
  job->spec.set_devices(options.device_count);
  const auto client = client::CoordinatorClient::Connect(options.endpoint);
  if (!client.ok()) return Fail(client.status());
  const std::string key = options.client_key.empty() ? SystemRandom()->Hex(16) : options.client_key;
  // The key is printed before the first try, because the job may be accepted even if no answer arrives.
  if (options.client_key.empty()) std::fprintf(stderr, "xlad: submitting with --key %s\n", key.c_str());
  const auto id = (*client)->Submit(*job, key);
  if (!id.ok()) {
    if (!absl::IsUnavailable(id.status()) || IsFileError(id.status())) return Fail(id.status());
    return Fail(absl::UnavailableError(absl::StrCat(id.status().message(), "; if the coordinator may have accepted ",
                                                    "the job, submit again with --key ", key, " to learn its id")));
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
  auto options = std::make_shared<SubmitOptions>();
  CLI::App* app = parent.add_subcommand("submit", "submit a job directory to a coordinator; prints the job's id");
  app->footer("Example:\n  xlad submit examples/spiral_mlp --coordinator 127.0.0.1:7411 --mesh dp=4,tp=2 --wait");
  app->add_option("JOBDIR", options->directory, "job directory")->required()->check(NotEmpty());
  app->add_option("--mesh", options->mesh, "mesh axes and sizes, such as dp=4,tp=2; default: one device")
      ->check(MeshAxes());
  AddDeviceFlag(app, &options->devices, "at most COUNT devices of this kind; default: any devices");
  app->add_option("--steps", options->steps, "steps to train; default: as in the manifest")->check(AtLeast(0));
  app->add_option("--devices", options->device_count,
                  "with --mode canonical: the number of devices, which must divide that of the mesh's logical shards; "
                  "default: as many as the workers have")
      ->check(AtLeast(1));
  app->add_flag("--wait", options->wait, "follow the job to its end; the exit code is the job's");
  app->add_option("--curve", options->curve, "write losses, metrics and times to FILE (waits)")->check(OutputFile());
  app->add_option("--save-state", options->save_state, "write the final state to FILE, safetensors (waits)")
      ->check(OutputFile());
  AddTensorFlags(app, &options->tensors);
  AddRecoveryFlags(app, &options->recovery);
  AddCompileFlags(app, &options->compile);
  AddTierFlag(app, &options->compile);
  app->add_option("--key", options->client_key, "submitting again with the same key returns the same job")
      ->check(NotEmpty());
  AddEndpointFlags(app, &options->endpoint);
  app->callback([=] {
    CheckOutputsDiffer({{"--curve", options->curve}, {"--save-state", options->save_state}});
    *action = [=] { return RunSubmit(*options); };
  });
}

}  // namespace xlad::cli
