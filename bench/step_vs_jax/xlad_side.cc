// Builds and trains a job directory on one mesh, controlled by commands on standard input. All devices are in this
// process, or are divided among several processes.
//
//   step_vs_jax_xlad XLAD JOBDIR MESH [WORKERS]
//
// XLAD is the program xlad. MESH is as in --mesh; "" means one device. WORKERS is the number of processes.
//
// Each command prints one line of JSON to standard output:
//   build      builds the program in a child process, as the coordinator does          {"build_ms": 812.0}
//   steps 20   trains 20 more steps with the first build                               {"ms": 410.2, "steps": 20}
//   memory     prints the planned bytes of one device's step, and the peak resident bytes of this process
//                                                                    {"plan_bytes": 17179620, "peak_rss": 90000000}
//   roofline   prints the work of the program as written, and the measured rates of this machine with the threads of
//              one device. The work is 0 if the trip count of a loop is unknown.
//                      {"flops": 2200000000, "state_bytes": 4000000, "flops_per_s": 1e11, "bytes_per_s": 1.7e10}
// After an error, the program prints one line to standard error and exits with code 1.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "client/job_directory.h"
#include "collectives/exec/transports/tcp/data_plane.h"
#include "hlo/analysis/trip_count.h"
#include "hlo/read/read.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/devices/cpu/machine_rates.h"
#include "runtime/host_threads.h"
#include "runtime/local_task.h"
#include "runtime/task_executor.h"
#include "service/build_queue/build_child.h"
#include "service/placement/placement.h"
#include "sharding/cost/cost.h"

namespace xlad {
namespace {

bool HasUnknownTripCount(const hlo::Module& module) {
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (instruction->opcode() == hlo::Opcode::kWhile && !hlo::TripCount(*instruction).has_value()) return true;
    }
  }
  return false;
}

class Side {
 public:
  Side(std::string program_path, client::Job job, int workers)
      : build_pool_({std::move(program_path)}), job_(std::move(job)), workers_(workers) {
    job_.spec.set_steps(int64_t{1} << 40);
    job_.spec.set_keep_final_state(false);
  }
  ~Side() {
    task_.reset();
    for (const Child& child : children_) close(child.to);
    for (const Child& child : children_) waitpid(child.pid, nullptr, 0);
  }

  absl::Status Build() {
    BuildRequest request;
    request.set_program(job_.program);
    *request.mutable_spec() = job_.spec;
    XLAD_ASSIGN_OR_RETURN(const auto state, client::OpenState(RealFileSystem(), job_));
    XLAD_ASSIGN_OR_RETURN(const auto data, client::OpenData(RealFileSystem(), job_));
    request.set_state_header(state->Header());
    if (data != nullptr) request.set_data_header(data->Header());
    const int64_t start_ns = RealClock().NowNs();
    XLAD_ASSIGN_OR_RETURN(BuildResponse response, service::BuildInChild(build_pool_, request, ChildLimits()));
    std::printf("{\"build_ms\": %.3f}\n", Milliseconds(start_ns));
    if (serialized_.empty()) serialized_ = std::move(*response.mutable_executable());
    return absl::OkStatus();
  }

  absl::Status Steps(int64_t count) {
    if (serialized_.empty()) XLAD_RETURN_IF_ERROR(Build());
    if (workers_ > 1 && children_.empty()) XLAD_RETURN_IF_ERROR(StartWorkers());
    if (workers_ == 1 && task_ == nullptr) XLAD_RETURN_IF_ERROR(Start(0, {""}));
    const int64_t start_ns = RealClock().NowNs();
    if (workers_ == 1) XLAD_RETURN_IF_ERROR(Train(count));
    for (const Child& child : children_) XLAD_RETURN_IF_ERROR(WriteLine(child.to, absl::StrCat(count)));
    for (const Child& child : children_) XLAD_RETURN_IF_ERROR(ReadLine(child.from).status());
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

  absl::Status Roofline() const {
    XLAD_ASSIGN_OR_RETURN(const auto module, hlo::ReadModule(job_.program));
    XLAD_ASSIGN_OR_RETURN(const auto state, client::OpenState(RealFileSystem(), job_));
    int64_t state_bytes = 0;
    for (const auto& [name, tensor] : state->tensors()) state_bytes += tensor.shape.bytes();
    XLAD_ASSIGN_OR_RETURN(const runtime::MachineRates rates,
                          runtime::MeasureMachine(RealClock(), runtime::HostThreads()));
    absl::PrintF("{\"flops\": %.0f, \"state_bytes\": %d, \"flops_per_s\": %.0f, \"bytes_per_s\": %.0f}\n",
                 HasUnknownTripCount(*module) ? 0.0 : sharding::Flops(*module->entry()), state_bytes, rates.flops_per_s,
                 rates.bytes_per_s);
    return absl::OkStatus();
  }

 private:
  static double Milliseconds(int64_t since_ns) {
    return static_cast<double>(RealClock().NowNs() - since_ns) / kNsPerMs;
  }
  // A worker process, with pipes to and from it.
  struct Child {
    pid_t pid = 0;
    int to = -1, from = -1;
  };

  static absl::Status WriteLine(int file, const std::string& line) {
    const std::string text = line + "\n";
    if (write(file, text.data(), text.size()) == std::ssize(text)) return absl::OkStatus();
    return absl::UnavailableError("a worker process has ended");
  }
  static absl::StatusOr<std::string> ReadLine(int file) {
    std::string line;
    for (char c = 0; read(file, &c, 1) == 1; line += c) {
      if (c == '\n') return line;
    }
    return absl::UnavailableError("a worker process has ended");
  }

  // Starts the worker processes. Each writes its address and reads the addresses of all. Each further line that it
  // reads is a number of steps to train.
  absl::Status StartWorkers() {
    for (int worker = 0; worker < workers_; ++worker) {
      int to[2], from[2];
      if (pipe(to) != 0 || pipe(from) != 0) return absl::UnavailableError("cannot make a pipe");
      const pid_t pid = fork();
      if (pid == 0) {
        close(to[1]);
        close(from[0]);
        for (const Child& other : children_) close(other.to);
        const absl::Status status = BeWorker(worker, to[0], from[1]);
        if (!status.ok()) std::fprintf(stderr, "worker %d: %s\n", worker, std::string(status.message()).c_str());
        _exit(status.ok() ? 0 : 1);
      }
      close(to[0]);
      close(from[1]);
      children_.push_back({pid, to[1], from[0]});
    }
    std::string addresses;
    for (const Child& child : children_) {
      XLAD_ASSIGN_OR_RETURN(const std::string address, ReadLine(child.from));
      absl::StrAppend(&addresses, addresses.empty() ? "" : " ", address);
    }
    for (const Child& child : children_) XLAD_RETURN_IF_ERROR(WriteLine(child.to, addresses));
    return absl::OkStatus();
  }

  absl::Status BeWorker(int worker, int in, int out) {
    XLAD_ASSIGN_OR_RETURN(data_plane_, collectives::DataPlane::Listen(&TcpNetwork(), "127.0.0.1:0"));
    XLAD_RETURN_IF_ERROR(WriteLine(out, data_plane_->address()));
    XLAD_ASSIGN_OR_RETURN(const std::string addresses, ReadLine(in));
    XLAD_RETURN_IF_ERROR(Start(worker, absl::StrSplit(addresses, ' ')));
    while (true) {
      const absl::StatusOr<std::string> line = ReadLine(in);
      int64_t count = 0;
      if (!line.ok() || !absl::SimpleAtoi(*line, &count)) return absl::OkStatus();
      // Only the worker of device 0, which is worker 0, reports steps and can wait for them.
      if (worker == 0) XLAD_RETURN_IF_ERROR(Train(count));
      if (worker > 0) task_->Lease(done_ += count);
      XLAD_RETURN_IF_ERROR(WriteLine(out, "done"));
    }
  }

  absl::Status Train(int64_t count) {
    task_->Lease(done_ += count);
    return listener_.WaitForSteps(done_);
  }

  absl::Status Start(int worker, const std::vector<std::string>& addresses) {
    store_ = std::make_unique<runtime::MemoryStore>(serialized_);
    for (const auto& [digest, path] :
         {std::pair(job_.spec.state_blob(), job_.state_path), std::pair(job_.spec.data_blob(), job_.data_path)}) {
      if (digest.empty()) continue;
      XLAD_ASSIGN_OR_RETURN(const std::string tensors, RealFileSystem().Read(path));
      XLAD_RETURN_IF_ERROR(store_->Add(digest, tensors));
    }
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
    const int workers = static_cast<int>(addresses.size());
    for (int w = 0; w < workers; ++w) {
      Peer* peer = launch.add_peers();
      peer->set_worker_id(absl::StrCat("w", w));
      peer->set_data_address(addresses[w]);
      for (int device = devices * w / workers; device < devices * (w + 1) / workers; ++device) {
        if (w == worker) launch.add_devices()->set_device(device);
        peer->add_devices(device);
      }
    }
    XLAD_ASSIGN_OR_RETURN(const auto plans, service::PlanCollectives(executable, devices));
    for (const CollectivePlanProto& plan : plans) *launch.add_plans() = plan;
    runtime::TaskEnvironment environment;
    environment.devices = {device_.get()};
    environment.clock = &RealClock();
    environment.network = &TcpNetwork();
    environment.data_plane = data_plane_.get();
    environment.store = store_.get();
    environment.listener = &listener_;
    environment.worker_id = absl::StrCat("w", worker);
    environment.threads_of_each = runtime::ThreadsOfEach(runtime::HostThreads(), devices);
    task_ = std::make_unique<runtime::TaskExecutor>(launch, environment);
    return absl::OkStatus();
  }

  service::BuildPool build_pool_;
  client::Job job_;
  const int workers_;
  std::string serialized_;
  std::vector<Child> children_;
  std::unique_ptr<collectives::DataPlane> data_plane_;
  std::unique_ptr<runtime::Device> device_ = runtime::MakeCpuDevice();
  std::unique_ptr<runtime::MemoryStore> store_;
  runtime::StepWaiter listener_;
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
  if (command == "roofline") return side.Roofline();
  return absl::InvalidArgumentError(absl::StrCat("found \"", line, "\", expected build, steps N, memory or roofline"));
}

absl::Status Run(char** arguments, int workers) {
  SetLogLevel(LogLevel::kWarn);
  XLAD_ASSIGN_OR_RETURN(client::Job job, client::ReadJobDirectory(RealFileSystem(), arguments[2], arguments[3], -1));
  Side side(arguments[1], std::move(job), workers);
  for (std::string line; std::getline(std::cin, line);) {
    XLAD_RETURN_IF_ERROR(Obey(side, line));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace xlad

int main(int argc, char** argv) {
  int workers = 1;
  if (argc < 4 || argc > 5 || (argc == 5 && (!absl::SimpleAtoi(argv[4], &workers) || workers < 1))) {
    std::fprintf(stderr, "usage: step_vs_jax_xlad XLAD JOBDIR MESH [WORKERS]\n");
    return 2;
  }
  const absl::Status status = xlad::Run(argv, workers);
  if (!status.ok()) std::fprintf(stderr, "step_vs_jax_xlad: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
