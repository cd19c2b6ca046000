// Runs a job directory on one mesh, with all devices in this process, by commands from standard input.
//
//   step_vs_jax_xlad XLAD JOBDIR MESH        MESH is as in --mesh; "" means one device
//
// Each command prints one line of JSON to standard output:
//   build      builds the program in a child process, as the coordinator does          {"build_ms": 812.0}
//   steps 20   trains 20 more steps with the first build                               {"ms": 410.2, "steps": 20}
//   memory     one device's step by the buffer plan; this process      {"plan_bytes": 17179620, "peak_rss": 9e7}
// After an error, prints one line to standard error and exits with code 1.
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <mutex>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "client/job_directory.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/task_executor.h"
#include "service/build.h"
#include "service/placement/placement.h"
#include "storage/uri.h"

namespace xlad {
namespace {

// The blobs of a job, in memory.
class JobStore final : public runtime::TaskStore {
 public:
  static absl::StatusOr<std::unique_ptr<JobStore>> Make(const client::Job& job, const std::string& executable) {
    auto store = std::make_unique<JobStore>();
    for (const auto& [digest, bytes] :
         {std::pair(job.spec.state_blob(), job.state), {job.spec.data_blob(), job.data}}) {
      if (bytes.empty()) continue;
      XLAD_ASSIGN_OR_RETURN(store->sources_[storage::BlobUri(digest)],
                            storage::OpenSafetensors({storage::MakeMemoryReader(bytes)}, {digest}));
    }
    store->executable_ = executable;
    return store;
  }

  absl::StatusOr<std::string> ReadBlob(const std::string&, collectives::AbortSignal*) override { return executable_; }
  absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenTensors(const std::string& uri,
                                                                     collectives::AbortSignal*) override {
    return sources_.at(uri);
  }
  absl::StatusOr<CheckpointShard> WriteShard(int64_t, const std::string&, const storage::SerializedShard&,
                                             collectives::AbortSignal*) override {
    return absl::UnimplementedError("nothing is saved here");
  }

 private:
  std::string executable_;
  std::map<std::string, std::shared_ptr<storage::TensorSource>> sources_;
};

class Listener final : public runtime::TaskListener {
 public:
  void OnReady() override {}
  void OnStep(const StepMetrics& metrics) override {
    Note([&] { reported_ = metrics.step() + 1; });
  }
  void OnStopped(int64_t) override {}
  void OnFinished() override {}
  void OnFailed(int64_t, const collectives::Failure& failure) override {
    Note([&] { status_ = failure.status; });
  }

  absl::Status WaitForStep(int64_t steps) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reported_ >= steps || !status_.ok(); });
    return status_;
  }

 private:
  template <typename Change>
  void Note(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t reported_ = 0;
  absl::Status status_;
};

class Side {
 public:
  Side(std::string program_path, client::Job job) : program_path_(std::move(program_path)), job_(std::move(job)) {
    job_.spec.set_steps(int64_t{1} << 40);
    job_.spec.set_keep_final_state(false);
  }
  ~Side() { task_.reset(); }

  absl::Status Build() {
    BuildRequest request;
    request.set_program(job_.program);
    *request.mutable_spec() = job_.spec;
    request.set_state_header(Header(job_.state));
    request.set_data_header(Header(job_.data));
    const int64_t start_ns = RealClock().NowNs();
    XLAD_ASSIGN_OR_RETURN(BuildResponse response, service::BuildInChild(program_path_, request, ChildLimits()));
    std::printf("{\"build_ms\": %.3f}\n", Milliseconds(start_ns));
    if (serialized_.empty()) serialized_ = std::move(*response.mutable_executable());
    return absl::OkStatus();
  }

  absl::Status Steps(int64_t count) {
    if (task_ == nullptr) XLAD_RETURN_IF_ERROR(Start());
    const int64_t start_ns = RealClock().NowNs();
    task_->Lease(done_ += count);
    XLAD_RETURN_IF_ERROR(listener_.WaitForStep(done_));
    std::printf("{\"ms\": %.3f, \"steps\": %lld}\n", Milliseconds(start_ns), static_cast<long long>(count));
    return absl::OkStatus();
  }

  absl::Status Memory() {
    Executable executable;
    executable.ParseFromString(serialized_);
    int64_t plan_bytes = 0;
    for (const Allocation& allocation : executable.allocations()) plan_bytes += allocation.bytes();
    int64_t scratch = 0;
    for (const Step& step : executable.steps()) scratch = std::max(scratch, step.kernel().scratch_bytes());
    std::ifstream status("/proc/self/status");
    int64_t peak_kib = 0;
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("VmHWM:", 0) == 0) peak_kib = std::strtoll(line.c_str() + 6, nullptr, 10);
    }
    std::printf("{\"plan_bytes\": %lld, \"peak_rss\": %lld}\n", static_cast<long long>(plan_bytes + scratch),
                static_cast<long long>(peak_kib * 1024));
    return absl::OkStatus();
  }

 private:
  static double Milliseconds(int64_t since_ns) {
    return static_cast<double>(RealClock().NowNs() - since_ns) / kNsPerMs;
  }
  // A safetensors file begins with eight bytes of length, then that many bytes of JSON.
  static std::string Header(const std::string& bytes) {
    uint64_t length = 0;
    if (bytes.size() < sizeof(length)) return bytes;
    std::memcpy(&length, bytes.data(), sizeof(length));
    return bytes.substr(0, sizeof(length) + length);
  }

  absl::Status Start() {
    if (serialized_.empty()) XLAD_RETURN_IF_ERROR(Build());
    XLAD_ASSIGN_OR_RETURN(store_, JobStore::Make(job_, serialized_));
    Executable executable;
    if (!executable.ParseFromString(serialized_)) return absl::InternalError("the executable cannot be read");
    int devices = 1;
    for (const MeshAxis& axis : executable.mesh()) devices *= static_cast<int>(axis.size());
    LaunchTask launch;
    launch.set_job_id("step-vs-jax");
    launch.set_attempt(1);
    launch.set_executable_digest(Sha256Hex(serialized_));
    *launch.mutable_spec() = job_.spec;
    launch.set_state_blob(job_.spec.state_blob());
    Peer* peer = launch.add_peers();
    peer->set_worker_id("here");
    for (int device = 0; device < devices; ++device) {
      launch.add_devices()->set_device(device);
      peer->add_devices(device);
    }
    XLAD_ASSIGN_OR_RETURN(const auto plans, service::PlanCollectives(executable, peer->devices_size()));
    for (const CollectivePlanProto& plan : plans) *launch.add_plans() = plan;
    runtime::TaskEnvironment environment;
    environment.devices = {device_.get()};
    environment.clock = &RealClock();
    environment.store = store_.get();
    environment.listener = &listener_;
    environment.worker_id = "here";
    task_ = std::make_unique<runtime::TaskExecutor>(launch, environment);
    return absl::OkStatus();
  }

  const std::string program_path_;
  client::Job job_;
  std::string serialized_;
  std::unique_ptr<runtime::Device> device_ = runtime::MakeCpuDevice();
  std::unique_ptr<JobStore> store_;
  Listener listener_;
  std::unique_ptr<runtime::TaskExecutor> task_;
  int64_t done_ = 0;
};

absl::Status Obey(Side& side, const std::string& line) {
  std::istringstream words(line);
  std::string command;
  int64_t count = 0;
  words >> command >> count;
  if (command == "build") return side.Build();
  if (command == "steps" && count > 0) return side.Steps(count);
  if (command == "memory") return side.Memory();
  return absl::InvalidArgumentError(absl::StrCat("found \"", line, "\", expected build, steps N or memory"));
}

absl::Status Run(char** arguments) {
  SetLogLevel(LogLevel::kWarn);
  XLAD_ASSIGN_OR_RETURN(client::Job job, client::ReadJobDirectory(RealFileSystem(), arguments[2], arguments[3], -1));
  Side side(arguments[1], std::move(job));
  for (std::string line; std::getline(std::cin, line);) {
    XLAD_RETURN_IF_ERROR(Obey(side, line));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace xlad

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: step_vs_jax_xlad XLAD JOBDIR MESH\n");
    return 2;
  }
  const absl::Status status = xlad::Run(argv);
  if (!status.ok()) std::fprintf(stderr, "step_vs_jax_xlad: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
