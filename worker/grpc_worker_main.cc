// The worker daemon: converts messages, signals and reports into events for WorkerCore, and carries out its actions.
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/net/advertised.h"
#include "base/net/network.h"
#include "base/net/socket_address.h"
#include "base/random.h"
#include "base/serial_queue.h"
#include "collectives/exec/transports/registry/registry.h"
#include "proto/protocol.h"
#include "runtime/host_threads.h"
#include "worker/attempt_process.h"
#include "worker/child_task.h"
#include "worker/grpc_attachment.h"
#include "worker/peer_acceptor.h"
#include "worker/worker_core.h"
#include "worker/worker_main.h"

namespace xlad::worker {
namespace {

constexpr std::chrono::milliseconds kTick{50};
constexpr int64_t kNetworkMs = 60'000;  // How long a worker waits for a name server and a route at its start.
// The next idle process is started this long after an attempt is ready, so that it does not slow down the first step.
constexpr int64_t kRefillDelayNs = 300 * kNsPerMs;

// A queue of events from all threads, read by the main thread.
class EventQueue {
 public:
  void Push(Event event) {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  // Returns all queued events; waits up to one tick for the first.
  std::deque<Event> Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kTick, [this] { return !events_.empty(); });
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
};

// The host and port on which the worker listens; port 0 means any free port. Without --listen, the host is that from
// which this machine reaches the coordinator, because workers on other machines then reach it, too. When a machine
// starts, its name servers may answer only later. Unavailable if none has answered after kNetworkMs, or when *stop is
// not 0.
absl::StatusOr<HostPort> ListenAddress(const WorkerOptions& options, const std::atomic<int>* stop) {
  if (options.listen.empty()) {
    XLAD_ASSIGN_OR_RETURN(const HostPort coordinator, ParseHostPort(options.coordinator.address));
    XLAD_ASSIGN_OR_RETURN(std::string own, OwnHostTowards(coordinator.host, coordinator.port, kNetworkMs, stop));
    return HostPort{std::move(own), 0};
  }
  const absl::StatusOr<std::string> host = ParseHost(options.listen);
  const absl::StatusOr<HostPort> at = host.ok() ? HostPort{*host, 0} : ParseHostPort(options.listen);
  if (!at.ok()) return at;
  const absl::Status resolved = ResolvePatiently(at->host, at->port, kNetworkMs, stop).status();
  // PeerAcceptor::Listen reports an unknown host, and names the interfaces of this machine.
  return absl::IsUnavailable(resolved) ? resolved : at;
}

// Peers encrypt only connections to addresses not on loopback. A port that other machines can reach must therefore be
// advertised with such an address.
absl::Status CheckAdvertised(const std::string& bound, const std::string& advertised) {
  XLAD_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(bound));
  XLAD_ASSIGN_OR_RETURN(const HostPort known, ParseHostPort(advertised));
  if (IsLoopback(at.host) || !IsLoopback(known.host)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("found --advertise ", known.host, " for a worker that listens on ",
                                                 bound, ", expected an address that is not on loopback"));
}

// The id in the options, or the id kept in the data folder, or a new id, which is then kept.
absl::StatusOr<std::string> WorkerId(const WorkerOptions& options, Random* random) {
  if (!options.worker_id.empty()) return options.worker_id;
  const std::string fresh = absl::StrCat("worker-", random->Hex(4));
  if (options.data_folder.empty()) return fresh;
  FileSystem& files = RealFileSystem();
  const std::string path = JoinPath(options.data_folder, "worker-id");
  if (files.Exists(path)) return files.Read(path);
  XLAD_RETURN_IF_ERROR(files.MakeDirectories(options.data_folder));
  XLAD_RETURN_IF_ERROR(files.WriteAtomically(path, fresh));
  return fresh;
}

// A task whose process could not be started.
class FailedTask final : public Task {
 public:
  FailedTask(const LaunchTask& launch, const absl::Status& status, const std::function<void(Event)>& emit)
      : step_(launch.first_step()) {
    const TaskKey key{launch.job_id(), launch.attempt()};
    emit(TaskHasFailed{key, step_, {status, ""}});
    emit(TaskHasExited{key, {}});
  }
  void Lease(int64_t) override {}
  void StopAt(int64_t) override {}
  void Abort(const collectives::Failure&) override {}
  int64_t finished_steps() const override { return step_; }

 private:
  const int64_t step_;
};

// Starts the processes of attempts, and keeps one that waits for its launch.
class AttemptPool {
 public:
  AttemptPool(std::vector<std::string> argv, AttemptSetup setup, bool keep_idle)
      : argv_(std::move(argv)), setup_(std::move(setup)), keep_idle_(keep_idle) {}

  absl::StatusOr<std::unique_ptr<AttemptProcess>> Take() {
    std::unique_ptr<AttemptProcess> idle = std::move(idle_);
    if (idle != nullptr && !idle->HasEnded()) return idle;
    return AttemptProcess::Start(argv_, setup_);
  }

  // Starts a process for the next attempt unless one is waiting.
  void Refill() {
    refill_at_ns_.reset();
    if (!keep_idle_ || (idle_ != nullptr && !idle_->HasEnded())) return;
    auto started = AttemptProcess::Start(argv_, setup_);
    if (started.ok()) idle_ = *std::move(started);  // If this fails, Take tries again and reports the error.
  }
  void RefillAt(int64_t ns) { refill_at_ns_ = ns; }
  void RefillIfDue(int64_t now_ns) {
    if (refill_at_ns_.has_value() && now_ns >= *refill_at_ns_) Refill();
  }

 private:
  const std::vector<std::string> argv_;
  const AttemptSetup setup_;
  const bool keep_idle_;
  std::unique_ptr<AttemptProcess> idle_;
  std::optional<int64_t> refill_at_ns_;
};

// A file that exists while the worker is registered, for programs that ask whether it is ready.
class ReadyFile {
 public:
  ~ReadyFile() { Set(false).IgnoreError(); }

  // Removes the file of an earlier process. The path is empty if there is no file.
  absl::Status Open(const std::string& path) {
    path_ = path;
    exists_ = !path.empty() && RealFileSystem().Exists(path);
    return Set(false);
  }

  absl::Status Set(bool is_ready) {
    if (path_.empty() || is_ready == exists_) return absl::OkStatus();
    XLAD_RETURN_IF_ERROR(is_ready ? RealFileSystem().WriteAtomically(path_, "") : RealFileSystem().Remove(path_));
    exists_ = is_ready;
    return absl::OkStatus();
  }

  // If the event changes whether the worker is registered, returns the new value. Otherwise returns nullopt.
  static std::optional<bool> After(const Event& event) {
    if (std::holds_alternative<Disconnected>(event)) return false;
    const auto* const message = std::get_if<CoordinatorMessage>(&event);
    if (message == nullptr || !message->has_registered()) return std::nullopt;
    return message->registered().refused().empty();
  }

 private:
  std::string path_;
  bool exists_ = false;
};

class Daemon {
 public:
  absl::StatusOr<WorkerEnd> Run(const WorkerOptions& options, runtime::DeviceKinds kinds, std::atomic<int>* stop) {
    XLAD_ASSIGN_OR_RETURN(const bool has_started, Start(options, kinds, stop));
    if (!has_started) return WorkerEnd::kIdle;
    bool stop_handled = false;
    while (true) {
      for (Event& event : events_.Take()) {
        XLAD_RETURN_IF_ERROR(Handle(std::move(event)));
        if (exit_.has_value()) return End();
      }
      if (stop->load() != 0 && !std::exchange(stop_handled, true)) XLAD_RETURN_IF_ERROR(Handle(StopRequested{}));
      attachment_->ProbeClock();
      XLAD_RETURN_IF_ERROR(Handle(Tick{}));
      pool_->RefillIfDue(RealClock().NowNs());
      if (exit_.has_value()) return End();
    }
  }

 private:
  // Checks the requests, and fills the offers, the number of devices and the target of `identity`. The attempts'
  // processes make the devices.
  absl::Status OfferDevices(const WorkerOptions& options, runtime::DeviceKinds kinds, RegisterWorker* identity) {
    if (options.devices.empty()) return absl::InvalidArgumentError("found no devices, expected 1 or more");
    int count = 0;
    for (const runtime::DeviceRequest& request : options.devices) {
      if (request.count < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("found ", request.count, " devices of kind ", request.Name(), ", expected 1 or more"));
      }
      XLAD_ASSIGN_OR_RETURN(*identity->add_offers(), runtime::MakeOffer(request, kinds));
      count += request.count;
    }
    identity->set_devices(count);
    *identity->mutable_target() = identity->offers(0).target();
    return absl::OkStatus();
  }

  // Returns false if the worker must stop before it can listen.
  absl::StatusOr<bool> Start(const WorkerOptions& options, runtime::DeviceKinds kinds, std::atomic<int>* stop) {
    const std::unique_ptr<Random> random = SystemRandom();
    WorkerCoreOptions core;
    XLAD_RETURN_IF_ERROR(OfferDevices(options, kinds, &core.identity));
    XLAD_RETURN_IF_ERROR(collectives::ChooseTransport(options.transport).status());
    XLAD_ASSIGN_OR_RETURN(const std::string id, WorkerId(options, random.get()));
    if (const absl::Status opened = ready_file_.Open(options.ready_file); !opened.ok()) {
      return Annotate(opened, "--ready-file");
    }
    const absl::StatusOr<HostPort> listen = ListenAddress(options, stop);
    if (absl::IsUnavailable(listen.status()) && *stop != 0) return false;
    XLAD_RETURN_IF_ERROR(listen.status());
    XLAD_ASSIGN_OR_RETURN(acceptor_, PeerAcceptor::Listen(JoinHostPort(listen->host, listen->port)));
    XLAD_ASSIGN_OR_RETURN(const std::string data_address, AddressForOthers(acceptor_->address(), options.advertise));
    XLAD_RETURN_IF_ERROR(CheckAdvertised(acceptor_->address(), data_address));
    core.grace_ms = options.grace_ms;
    core.memory_limit_bytes = options.memory_limit_bytes;
    core.tasks_have_processes = true;
    core.identity.set_worker_id(id);
    core.identity.set_incarnation(random->Next());
    const std::string host = HostName();
    core.identity.set_host(host.empty() ? "localhost" : host);
    core.identity.set_pid(getpid());
    core.identity.set_data_address(data_address);
    core.identity.set_version(options.version);
    core.identity.set_protocol(kProtocol);
    core.identity.set_sends_partials_in_f32(true);
    core.identity.set_replaces_code(true);
    pool_ = std::make_unique<AttemptPool>(std::vector<std::string>{options.program_path, "__attempt"},
                                          MakeSetup(options, core.identity, listen->host), options.keep_idle_attempt);
    pool_->Refill();
    core_ = std::make_unique<WorkerCore>(core, [this](const LaunchTask& launch) { return MakeTask(launch); });
    const auto append = [](std::string* out, const runtime::DeviceRequest& request) {
      out->append(request.ToString());
    };
    LogInfo("worker started", {{"worker", id},
                               {"pid", absl::StrCat(getpid())},
                               {"devices", absl::StrJoin(options.devices, ",", append)},
                               {"data", data_address},
                               {"coordinator", options.coordinator.address}});
    clock_ = std::make_unique<SkewedClock>(&RealClock(), options.clock_skew);
    const auto emit = [this](Event event) { events_.Push(std::move(event)); };
    const auto refuse = [this](const absl::Status& status) { Refuse(status); };
    XLAD_ASSIGN_OR_RETURN(attachment_, Attachment::Start(options.coordinator, clock_.get(), emit, refuse));
    return true;
  }

  static AttemptSetup MakeSetup(const WorkerOptions& options, const RegisterWorker& identity,
                                const std::string& listen_host) {
    AttemptSetup setup;
    setup.set_worker_id(identity.worker_id());
    setup.set_incarnation(identity.incarnation());
    setup.set_coordinator(options.coordinator.address);
    setup.set_ca_file(options.coordinator.ca_file);
    setup.set_token_file(options.coordinator.token_file);
    for (const runtime::DeviceRequest& request : options.devices) {
      AttemptDevice* device = setup.add_devices();
      device->set_kind(request.kind);
      device->set_model(request.model);
      device->set_count(request.count);
    }
    setup.set_progress_limit_ms(options.progress_limit_ms);
    const int threads = options.threads > 0 ? options.threads : runtime::HostThreads();
    setup.set_threads_of_each(runtime::ThreadsOfEach(threads, identity.devices()));
    setup.set_memory_bytes(options.memory_limit_bytes);
    setup.set_listen_host(listen_host);
    setup.set_transport(options.transport);
    setup.set_any_network(options.any_network);
    setup.set_cache_folder(options.cache_folder);
    setup.set_cache_bytes(options.cache_bytes);
    setup.set_text_log(LogsText());
    setup.set_clock_offset_ns(options.clock_skew.offset_ns);
    setup.set_clock_ppm(options.clock_skew.ppm);
    return setup;
  }

  std::unique_ptr<Task> MakeTask(const LaunchTask& launch) {
    const auto emit = [this](Event event) { events_.Push(std::move(event)); };
    auto process = pool_->Take();
    if (!process.ok()) return std::make_unique<FailedTask>(launch, process.status(), emit);
    return std::make_unique<ChildTask>(launch, *std::move(process), acceptor_.get(), emit);
  }

  void Refuse(const absl::Status& status) {
    std::lock_guard<std::mutex> lock(refused_mutex_);
    refused_ = status;
  }

  absl::Status Handle(Event event) {
    {
      std::lock_guard<std::mutex> lock(refused_mutex_);
      XLAD_RETURN_IF_ERROR(refused_);
    }
    if (const std::optional<bool> is_registered = ReadyFile::After(event); is_registered.has_value()) {
      const absl::Status set = ready_file_.Set(*is_registered);
      if (!set.ok()) LogWarn("the ready file cannot be changed", {{"error", std::string(set.message())}});
    }
    const bool is_ready = std::holds_alternative<TaskIsReady>(event);
    const bool has_ended = std::holds_alternative<TaskHasExited>(event);
    CarryOut(core_->Handle(std::move(event), RealClock().NowNs()));
    if (is_ready) pool_->RefillAt(RealClock().NowNs() + kRefillDelayNs);
    if (has_ended) pool_->Refill();
    return absl::OkStatus();
  }

  void CarryOut(Actions actions) {
    for (Action& action : actions) {
      if (auto* send = std::get_if<Send>(&action)) attachment_->Send(send->message);
      if (auto* drop = std::get_if<DropTask>(&action)) DestroyLater(std::move(drop->task));
      if (auto* exit = std::get_if<Exit>(&action)) exit_ = std::move(*exit);
    }
  }

  // Destroys the task on another thread, because this waits for the end of its process.
  void DestroyLater(std::unique_ptr<Task> task) {
    reaper_.Push([task = std::shared_ptr<Task>(std::move(task))]() mutable { task.reset(); });
  }

  absl::StatusOr<WorkerEnd> End() {
    CarryOut(core_->Shutdown());
    attachment_->Flush();
    LogInfo("worker ends", {{"status", exit_->status.ToString()}, {"work_moved", exit_->work_moved ? "yes" : "no"}});
    if (!exit_->status.ok()) return exit_->status;
    return exit_->work_moved ? WorkerEnd::kWorkMoved : WorkerEnd::kIdle;
  }

  // The order matters, because each member may use those declared before it.
  ReadyFile ready_file_;
  EventQueue events_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<PeerAcceptor> acceptor_;
  std::unique_ptr<AttemptPool> pool_;
  std::mutex refused_mutex_;
  absl::Status refused_;
  std::optional<Exit> exit_;
  SerialQueue reaper_;
  std::unique_ptr<WorkerCore> core_;
  std::unique_ptr<Attachment> attachment_;
};

}  // namespace

absl::StatusOr<WorkerEnd> RunWorker(const WorkerOptions& options, runtime::DeviceKinds kinds, std::atomic<int>* stop) {
  return Daemon().Run(options, kinds, stop);
}

}  // namespace xlad::worker
