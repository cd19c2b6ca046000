#include "worker/attempt_main.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/net/grpc_channel.h"
#include "base/net/message_socket.h"
#include "base/net/network.h"
#include "base/process/spawn.h"
#include "base/skewed_clock.h"
#include "collectives/exec/transports/registry/registry.h"
#include "collectives/exec/transports/tcp/data_plane.h"
#include "runtime/task_executor.h"
#include "worker/attempt_process.h"
#include "worker/attempt_runner.h"
#include "worker/grpc_task_store.h"
#include "worker/report_queue.h"
#include "worker/session_runner.h"

namespace xlad::worker {
namespace {

// Called when `new` cannot allocate memory. This function must not allocate memory.
void OnOutOfMemory() {
  constexpr char kText[] = "out of memory: an allocation on the host failed\n";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(kExitOutOfMemory);
}

absl::Status LimitMemory(int64_t bytes) {
  std::set_new_handler(OnOutOfMemory);
  if (bytes == 0) return absl::OkStatus();
  const rlimit limit{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  if (setrlimit(RLIMIT_DATA, &limit) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot limit the memory of this process to ", bytes, " bytes"));
}

class TaskRunner final : public Runner, private runtime::TaskListener {
 public:
  TaskRunner(const LaunchTask& launch, runtime::TaskEnvironment environment, std::unique_ptr<runtime::TaskStore> store,
             ReportQueue* queue)
      : reporter_(launch, queue), store_(std::move(store)) {
    environment.listener = this;
    environment.store = store_.get();
    executor_ = std::make_unique<runtime::TaskExecutor>(launch, environment);
  }

  void On(const CoordinatorMessage& message) override {
    if (message.has_renew()) executor_->Lease(message.renew().lease_until_step());
    if (message.has_stop_at()) StopAt(message.stop_at().step());
    if (message.has_checkpoint_at()) CheckpointAt(message.checkpoint_at().step());
    if (message.has_committed()) executor_->CheckpointIsCommitted(message.committed().step());
    if (message.has_replace_code()) executor_->ReplaceCode(message.replace_code().executable_digest());
  }
  void Abort(const collectives::Failure& failure) override { executor_->Abort(failure); }
  int64_t finished_steps() const override { return executor_->finished_steps(); }

 private:
  void StopAt(int64_t step) {
    TaskStopAnswer answer;
    answer.set_step(step);
    answer.set_accepted(executor_->StopAt(step));
    answer.set_current(executor_->begun_steps());
    reporter_.Send(&WorkerMessage::mutable_stop_answer, std::move(answer));
  }

  void CheckpointAt(int64_t step) {
    CheckpointAtAnswer answer;
    answer.set_step(step);
    answer.set_accepted(executor_->CheckpointAt(step));
    answer.set_current(executor_->begun_steps());
    reporter_.Send(&WorkerMessage::mutable_checkpoint_answer, std::move(answer));
  }

  void OnReady() override { reporter_.Send(&WorkerMessage::mutable_ready, TaskReady()); }
  void OnShardWritten(int64_t step, const CheckpointShard& shard) override {
    ShardWritten written;
    written.set_step(step);
    *written.mutable_shard() = shard;
    reporter_.Send(&WorkerMessage::mutable_shard_written, std::move(written));
  }
  void OnShardFailed(int64_t step, const absl::Status& error, bool must_be_stored) override {
    ShardFailed failed;
    failed.set_step(step);
    failed.set_error(std::string(error.message()));
    failed.set_error_code(static_cast<int>(error.code()));
    failed.set_must_be_stored(must_be_stored);
    reporter_.Send(&WorkerMessage::mutable_shard_failed, std::move(failed));
  }
  void OnStep(const StepMetrics& metrics) override {
    TaskSteps steps;
    *steps.add_metrics() = metrics;
    reporter_.Send(&WorkerMessage::mutable_steps, std::move(steps));
  }
  void OnTrace(TaskTrace trace) override { reporter_.Send(&WorkerMessage::mutable_trace, std::move(trace)); }
  void OnStopped(int64_t step) override {
    TaskStopped stopped;
    stopped.set_step(step);
    reporter_.Send(&WorkerMessage::mutable_stopped, std::move(stopped));
  }
  void OnFinished(const RunReport& report) override {
    TaskFinished finished;
    *finished.mutable_report() = report;
    reporter_.Send(&WorkerMessage::mutable_finished, std::move(finished));
  }
  void OnFailed(int64_t step, const collectives::Failure& failure) override { reporter_.SendFailed(step, failure); }

  Reporter reporter_;
  const std::unique_ptr<runtime::TaskStore> store_;
  std::unique_ptr<runtime::TaskExecutor> executor_;  // Declared last, because its threads use the other members.
};

// The main thread only reads commands, so that the process reacts at once to an abort or to the end of the daemon.
class AttemptMain {
 public:
  explicit AttemptMain(runtime::DeviceKinds kinds)
      : kinds_(kinds),
        socket_(FileDescriptor(kChannelDescriptor)),
        data_plane_(collectives::DataPlane::WithoutListener()),
        reports_(std::make_unique<ReportQueue>(&socket_, [this] { return FinishedSteps(); }, [] { _exit(1); })) {}

  [[noreturn]] void Run() {
    while (true) {
      absl::StatusOr<MessageSocket::Message> message = socket_.Receive();
      AttemptCommand command;
      if (!message.ok() || !command.ParseFromString(message->bytes)) _exit(1);
      Handle(command, std::move(message->descriptor));
    }
  }

 private:
  void Handle(const AttemptCommand& command, FileDescriptor descriptor) {
    if (dropped_) return;
    switch (command.command_case()) {
      case AttemptCommand::kSetup:
        setup_status_ = Setup(command.setup());
        return;
      case AttemptCommand::kMessage:
        if (command.message().has_launch()) return Launch(command.message().launch());
        if (runner_ != nullptr) runner_->On(command.message());
        return;
      case AttemptCommand::kPeer: {
        auto connection = AdoptSocket(descriptor.Release(), command.peer().address());
        const PeerHello& hello = command.peer().hello();
        if (!hello.blobs()) return data_plane_->Deliver(std::move(connection), hello);
        if (blob_server_ != nullptr) blob_server_->Take(std::move(connection), hello);
        return;
      }
      case AttemptCommand::kAbort: {
        const auto code = static_cast<absl::StatusCode>(command.abort().error_code());
        if (runner_ != nullptr) runner_->Abort({absl::Status(code, command.abort().error()), ""});
        return;
      }
      case AttemptCommand::kDrop:
        return Drop();
      default:
        return;
    }
  }

  absl::Status Setup(const AttemptSetup& setup) {
    SetLogsText(setup.text_log());
    XLAD_RETURN_IF_ERROR(LimitMemory(setup.memory_bytes()));
    setup_ = setup;
    clock_ = std::make_unique<SkewedClock>(&RealClock(), ClockSkew{setup.clock_offset_ns(), setup.clock_ppm()});
    XLAD_ASSIGN_OR_RETURN(channel_, MakeChannel({setup.coordinator(), setup.ca_file(), setup.token_file()}));
    XLAD_ASSIGN_OR_RETURN(token_, TokenFile::Open(setup.token_file()));
    OpenCache(setup);
    XLAD_ASSIGN_OR_RETURN(transport_, MakeTransport(setup));
    for (const AttemptDevice& device : setup.devices()) {
      XLAD_ASSIGN_OR_RETURN(devices_.emplace_back(),
                            runtime::MakeDevice({device.kind(), device.model(), device.count()}, kinds_));
    }
    return absl::OkStatus();
  }

  // Without a cache, everything is read from the coordinator.
  void OpenCache(const AttemptSetup& setup) {
    if (setup.cache_folder().empty()) return;
    storage::HostCache::Options options;
    options.max_bytes = setup.cache_bytes();
    auto cache = storage::HostCache::Open(setup.cache_folder(), options);
    if (cache.ok()) cache_ = *std::move(cache);
    if (cache_ != nullptr) return;
    LogWarn("blobs are not cached on this host", {{"error", std::string(cache.status().message())}});
  }

  static absl::StatusOr<collectives::TransportChoice> MakeTransport(const AttemptSetup& setup) {
    if (setup.transport().empty()) return collectives::TransportChoice();
    return collectives::ChooseTransport(setup.transport(), setup.any_network());
  }

  void Launch(const LaunchTask& launch) {
    SetLogContext({{"job", launch.job_id()}, {"attempt", absl::StrCat(launch.attempt())}});
    if (!setup_status_.ok()) {
      return Reporter(launch, reports_.get()).SendFailed(launch.first_step(), {setup_status_, ""});
    }
    runtime::WorkerEnvironment environment{{},
                                           clock_.get(),
                                           &TcpNetwork(),
                                           data_plane_.get(),
                                           setup_.worker_id(),
                                           setup_.incarnation(),
                                           setup_.progress_limit_ms(),
                                           setup_.threads_of_each(),
                                           transport_,
                                           [this](const auto& silent) { reports_->SetSilence(silent); }};
    for (const auto& device : devices_) environment.devices.push_back(device.get());
    BlobSource blobs{channel_, token_, cache_};
    if (cache_ != nullptr && launch.peers_size() > 1) {
      const AttemptPeers peers(launch, setup_.worker_id());
      blobs.peers = std::make_shared<PeerBlobs>(&TcpNetwork(), peers);
      blob_server_ = std::make_unique<PeerBlobServer>(cache_, peers, PeerBlobServer::Options());
    }
    std::unique_ptr<Runner> runner;
    if (launch.spec().session()) {
      auto made = MakeSessionRunner(launch, {{environment, nullptr, nullptr},
                                             setup_.listen_host(),
                                             [blobs](const std::string& digest, collectives::AbortSignal* abort) {
                                               return ReadBlob(blobs, digest, abort);
                                             },
                                             reports_.get()});
      if (!made.ok()) return Reporter(launch, reports_.get()).SendFailed(launch.first_step(), {made.status(), ""});
      runner = *std::move(made);
    } else {
      runner = std::make_unique<TaskRunner>(launch, runtime::TaskEnvironment{environment, nullptr, nullptr, nullptr},
                                            MakeGrpcTaskStore(blobs, launch), reports_.get());
    }
    std::lock_guard<std::mutex> lock(mutex_);
    runner_ = std::move(runner);
  }

  // Ends the process when the runner's threads have ended, which may take as long as a step.
  void Drop() {
    dropped_ = true;
    std::thread([this] {
      std::unique_ptr<Runner> runner;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        runner = std::move(runner_);
      }
      runner.reset();
      reports_.reset();
      const xlad_transport_api* const plugin = transport_.plugin;
      if (plugin != nullptr && plugin->end_process != nullptr) plugin->end_process();
      _exit(0);
    }).detach();
  }

  int64_t FinishedSteps() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (runner_ != nullptr) finished_steps_ = runner_->finished_steps();
    return finished_steps_;
  }

  // The order matters, because each member may use those declared before it.
  const runtime::DeviceKinds kinds_;
  MessageSocket socket_;
  AttemptSetup setup_;
  std::unique_ptr<Clock> clock_;
  absl::Status setup_status_;
  bool dropped_ = false;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<TokenFile> token_;
  std::shared_ptr<storage::HostCache> cache_;
  std::vector<std::unique_ptr<runtime::Device>> devices_;
  collectives::TransportChoice transport_;
  std::unique_ptr<PeerBlobServer> blob_server_;  // Null if there is none.
  const std::unique_ptr<collectives::DataPlane> data_plane_;
  std::mutex mutex_;  // Guards the next two members.
  int64_t finished_steps_ = 0;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<ReportQueue> reports_;
};

}  // namespace

void RunAttempt(runtime::DeviceKinds kinds) {
  // The daemon decides when the attempt ends, even if a supervisor sends signals to all processes of the service.
  for (const int signal_number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGUSR1}) signal(signal_number, SIG_IGN);
  AttemptMain main(kinds);
  main.Run();
}

}  // namespace xlad::worker
