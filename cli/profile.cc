#include "cli/profile.h"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/hash.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/net/network.h"
#include "cli/command.h"
#include "proto/mesh.h"
#include "runtime/devices/registry/registry.h"
#include "runtime/host_threads.h"
#include "runtime/local_task.h"
#include "runtime/step_listing.h"
#include "runtime/task_executor.h"
#include "service/build/build.h"
#include "service/placement/placement.h"
#include "tensor/safetensors.h"

namespace xlad::cli {
namespace {

constexpr size_t kMaxRows = 40;

double Milliseconds(int64_t ns) { return static_cast<double>(ns) / kNsPerMs; }

// Returns "" for loops and branches, because their time is that of the steps inside them.
std::string KindOf(const Executable& executable, const Step& step) {
  if (step.has_while_() || step.has_if_()) return "";
  return std::string(runtime::StepKind(executable, step));
}

absl::StatusOr<std::string> BuildJob(const client::Job& job, const Target& target) {
  BuildRequest request;
  *request.mutable_target() = target;
  request.set_program(job.program);
  *request.mutable_spec() = job.spec;
  XLAD_ASSIGN_OR_RETURN(const auto state, client::OpenState(RealFileSystem(), job));
  XLAD_ASSIGN_OR_RETURN(const auto data, client::OpenData(RealFileSystem(), job));
  request.set_state_header(state->Header());
  if (data != nullptr) request.set_data_header(data->Header());
  absl::StatusOr<BuildResponse> response = service::Build(request);
  if (!response.ok()) return Annotate(response.status(), job.program_path);
  return std::move(*response->mutable_executable());
}

absl::StatusOr<LaunchTask> LaunchOf(const client::Job& job, const std::string& bytes, const Executable& executable) {
  const int devices = NumDevices(executable.mesh());
  LaunchTask launch;
  launch.set_job_id("profile");
  launch.set_attempt(1);
  launch.set_executable_digest(Sha256Hex(bytes));
  *launch.mutable_spec() = job.spec;
  launch.mutable_spec()->set_keep_final_state(false);
  launch.set_state_blob(job.spec.state_blob());
  Peer* peer = launch.add_peers();
  peer->set_worker_id("profile");
  for (int device = 0; device < devices; ++device) {
    launch.add_devices()->set_device(device);
    peer->add_devices(device);
  }
  XLAD_ASSIGN_OR_RETURN(const auto plans, service::PlanCollectives(executable, devices));
  for (const CollectivePlanProto& plan : plans) *launch.add_plans() = plan;
  return launch;
}

// Returns the nanoseconds from the beginning of the task to its end.
absl::StatusOr<int64_t> RunTask(const LaunchTask& launch, runtime::TaskEnvironment environment) {
  runtime::StepWaiter waiter;
  environment.listener = &waiter;
  runtime::TaskExecutor task(launch, environment);
  const int64_t start_ns = environment.clock->NowNs();
  task.Lease(launch.spec().steps());
  XLAD_RETURN_IF_ERROR(waiter.WaitForEnd());
  return environment.clock->NowNs() - start_ns;
}

absl::StatusOr<Profile> Train(const client::Job& job, const ProfileOptions& options) {
  for (const std::string& uri : {job.spec.state_uri(), job.spec.data_uri()}) {
    if (uri.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--profile: found ", uri, ", expected state and data as files of the job directory, which this process reads"));
  }
  XLAD_ASSIGN_OR_RETURN(const DeviceOffer offer, runtime::MakeOffer(options.device, runtime::AllDeviceKinds()));
  XLAD_ASSIGN_OR_RETURN(const std::string bytes, BuildJob(job, offer.target()));
  Executable executable;
  if (!executable.ParseFromString(bytes)) return absl::InternalError("the executable cannot be read");
  XLAD_ASSIGN_OR_RETURN(const LaunchTask launch, LaunchOf(job, bytes, executable));
  Profile profile;
  profile.devices = launch.devices_size();
  profile.steps = job.spec.steps();
  const int threads = options.threads > 0 ? options.threads : runtime::HostThreads();
  profile.threads = runtime::ThreadsOfEach(threads, profile.devices);
  profile.simulated = executable.simulated();
  XLAD_ASSIGN_OR_RETURN(profile.rates, runtime::MeasureMachine(RealClock(), profile.threads * profile.devices));

  runtime::MemoryStore store(bytes);
  for (const auto& [digest, path] : {std::pair(job.spec.state_blob(), job.state_path),
                                     std::pair(job.spec.data_blob(), job.data_path)}) {
    if (digest.empty()) continue;
    XLAD_ASSIGN_OR_RETURN(const std::string tensors, RealFileSystem().Read(path));
    XLAD_RETURN_IF_ERROR(store.Add(digest, tensors));
  }
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Device> device,
                        runtime::MakeDevice(options.device, runtime::AllDeviceKinds()));
  runtime::TaskEnvironment environment;
  environment.devices = {device.get()};
  environment.clock = &RealClock();
  environment.network = &TcpNetwork();
  environment.store = &store;
  environment.worker_id = "profile";
  environment.threads_of_each = profile.threads;
  // The matrix library generates code in its first calls and keeps it. The profile contains no such calls, because a
  // task of one step runs first.
  LaunchTask one_step = launch;
  one_step.mutable_spec()->set_steps(std::min<int64_t>(1, launch.spec().steps()));
  XLAD_RETURN_IF_ERROR(RunTask(one_step, environment).status());

  std::mutex mutex;
  std::vector<runtime::StepTimes> times;
  environment.on_times = [&](int, const runtime::StepTimes& of_device) {
    const std::lock_guard lock(mutex);
    times.push_back(of_device);
  };
  XLAD_ASSIGN_OR_RETURN(profile.ns, RunTask(launch, environment));
  // The rates are measured again, because other programs may have slowed down the first measurement.
  XLAD_ASSIGN_OR_RETURN(const runtime::MachineRates after,
                        runtime::MeasureMachine(RealClock(), profile.threads * profile.devices));
  profile.rates.bytes_per_s = std::max(profile.rates.bytes_per_s, after.bytes_per_s);
  profile.rates.flops_per_s = std::max(profile.rates.flops_per_s, after.flops_per_s);
  profile.rows = ProfileRows(executable, times);
  return profile;
}

std::string Rate(double value, double seconds) {
  return value == 0 || seconds == 0 ? "-" : absl::StrFormat("%.2f", value / seconds / 1e9);
}

int64_t TotalNs(const Profile& profile) {
  int64_t ns = 0;
  for (const ProfileRow& row : profile.rows) ns += row.ns;
  return ns;
}

// The simulated microseconds of one call, such as "12.30 ", or "" if the devices are not simulated.
std::string SimulatedColumn(const Profile& profile, const ProfileRow& row) {
  if (profile.simulated.topology().empty()) return "";
  return absl::StrFormat("%9.2f ", row.simulated_us / static_cast<double>(std::max<int64_t>(row.calls, 1)));
}

std::string SimulatedLine(const SimulatedTime& time) {
  if (time.topology().empty()) return "";
  return absl::StrFormat(
      "simulated on %s: %.1f us per step; busy us: mxu %.1f, vpu %.1f, hbm %.1f, ici %.1f; waiting for collectives "
      "%.1f\n",
      time.topology(), time.us(), time.mxu_us(), time.vpu_us(), time.hbm_us(), time.ici_us(), time.stall_us());
}

}  // namespace

double ProfileRow::RooflineShare(const runtime::MachineRates& rates, int devices) const {
  if (ns == 0 || kind == "collective" || kind == "wait" || rates.bytes_per_s <= 0 || rates.flops_per_s <= 0) return 0;
  const double seconds = static_cast<double>(ns) * 1e-9;
  return std::max(bytes / rates.bytes_per_s, flops / rates.flops_per_s) * devices / seconds;
}

std::vector<ProfileRow> ProfileRows(const Executable& executable, const std::vector<runtime::StepTimes>& times) {
  const std::vector<const Step*> steps = runtime::NumberedSteps(executable);
  std::vector<ProfileRow> rows;
  std::map<std::string, size_t> row_of;  // Keys: the symbol of a kernel, or the number of another step.
  for (size_t s = 0; s < steps.size(); ++s) {
    const Step& step = *steps[s];
    const std::string kind = KindOf(executable, step);
    if (kind.empty()) continue;
    const std::string key = step.has_kernel() ? step.kernel().symbol() : absl::StrCat(s);
    const auto [entry, fresh] = row_of.emplace(key, rows.size());
    if (fresh) rows.push_back({step.name(), kind, step.source()});
    ProfileRow& row = rows[entry->second];
    for (const runtime::StepTimes& of_device : times) {
      if (s >= of_device.calls.size()) continue;
      row.calls += of_device.calls[s];
      row.ns += of_device.ns[s];
      row.flops += step.flops() * static_cast<double>(of_device.calls[s]);
      row.bytes += step.bytes() * static_cast<double>(of_device.calls[s]);
      row.simulated_us += step.simulated_us() * static_cast<double>(of_device.calls[s]);
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const ProfileRow& a, const ProfileRow& b) { return a.ns > b.ns; });
  return rows;
}

std::string ProfileTable(const Profile& profile) {
  const double steps = static_cast<double>(std::max<int64_t>(profile.steps, 1) * profile.devices);
  const auto total_ns = static_cast<double>(std::max<int64_t>(TotalNs(profile), 1));
  std::string text = absl::StrFormat("%9s %6s %9s %9s %9s %8s %7s  %s%-11s %s\n", "ms/step", "time", "calls/step",
                                     "us/call", "GFLOP/s", "GB/s", "roof",
                                     profile.simulated.topology().empty() ? "" : "simulated ", "kind", "instruction");
  for (size_t r = 0; r < profile.rows.size(); ++r) {
    const ProfileRow& row = profile.rows[r];
    if (r == kMaxRows) {
      absl::StrAppendFormat(&text, "and %d more (--format json prints all)\n", profile.rows.size() - r);
      break;
    }
    const double seconds = static_cast<double>(row.ns) * 1e-9;
    const double share = row.RooflineShare(profile.rates, profile.devices);
    absl::StrAppendFormat(
        &text, "%9.3f %5.1f%% %10.1f %9.1f %9s %8s %7s  %s%-11s %s%s\n", Milliseconds(row.ns) / steps,
        100 * static_cast<double>(row.ns) / total_ns, static_cast<double>(row.calls) / steps,
        static_cast<double>(row.ns) / 1e3 / static_cast<double>(std::max<int64_t>(row.calls, 1)),
        Rate(row.flops, seconds), Rate(row.bytes, seconds), share == 0 ? "-" : absl::StrFormat("%.0f%%", 100 * share),
        SimulatedColumn(profile, row), row.kind, row.name, row.source.empty() ? "" : absl::StrCat("  ", row.source));
  }
  absl::StrAppendFormat(&text,
                        "%s on %s of %s: %.3f ms each, %.3f ms in these rows\n"
                        "this machine: %.1f GB/s copied, %.1f GFLOP/s in f32 matrix products\n",
                        Counted(profile.steps, "step"), Counted(profile.devices, "device"),
                        Counted(profile.threads, "thread"),
                        Milliseconds(profile.ns) / static_cast<double>(std::max<int64_t>(profile.steps, 1)),
                        total_ns / kNsPerMs / steps, profile.rates.bytes_per_s / 1e9, profile.rates.flops_per_s / 1e9);
  return text + SimulatedLine(profile.simulated);
}

std::string ProfileJson(const Profile& profile) {
  nlohmann::ordered_json json;
  json["steps"] = profile.steps;
  json["devices"] = profile.devices;
  json["threads"] = profile.threads;
  json["ms"] = Milliseconds(profile.ns);
  json["copy_bytes_per_s"] = profile.rates.bytes_per_s;
  json["dot_flops_per_s"] = profile.rates.flops_per_s;
  const SimulatedTime& time = profile.simulated;
  if (!time.topology().empty()) {
    json["simulated"] = {{"topology", time.topology()},
                         {"step_us", time.us()},
                         {"units",
                          {{"mxu", time.mxu_us()}, {"vpu", time.vpu_us()}, {"hbm", time.hbm_us()},
                           {"ici", time.ici_us()}}},
                         {"stall_us", time.stall_us()},
                         {"hbm_traffic_bytes", time.hbm_bytes()}};
  }
  json["kernels"] = nlohmann::ordered_json::array();
  for (const ProfileRow& row : profile.rows) {
    json["kernels"].push_back({{"name", row.name},
                               {"kind", row.kind},
                               {"source", row.source},
                               {"calls", row.calls},
                               {"ms", Milliseconds(row.ns)},
                               {"flops", row.flops},
                               {"bytes", row.bytes},
                               {"roofline_share", row.RooflineShare(profile.rates, profile.devices)}});
    if (!time.topology().empty()) json["kernels"].back()["simulated_us"] = row.simulated_us;
  }
  return JsonText(json, 1) + "\n";
}

int RunProfile(const client::Job& job, const ProfileOptions& options) {
  SetLogLevel(LogLevel::kWarn);
  const absl::StatusOr<Profile> profile = Train(job, options);
  if (!profile.ok()) return Fail(profile.status());
  const std::string text = options.format == "json" ? ProfileJson(*profile) : ProfileTable(*profile);
  std::fputs(text.c_str(), stdout);
  return kOk;
}

}  // namespace xlad::cli
