// The worker daemon: turns what happens into events for the core, and carries out the core's actions.
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/random.h"
#include "collectives/exec/transports/data_plane.h"
#include "runtime/host_threads.h"
#include "worker/daemon_task.h"
#include "worker/grpc_attachment.h"
#include "worker/grpc_task_store.h"
#include "worker/session_task.h"
#include "worker/worker_core.h"
#include "worker/worker_main.h"

namespace xlad::worker {
namespace {

constexpr std::chrono::milliseconds kTick{50};

// Destroys tasks on another thread, because destroying a task waits for the end of its current step.
class Reaper {
 public:
  Reaper() : thread_([this] { Run(); }) {}
  ~Reaper() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void Take(std::unique_ptr<Task> task) {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::unique_ptr<Task> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task.reset();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Task>> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

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

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "localhost";
  return name;
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

class Daemon {
 public:
  absl::Status Run(const WorkerOptions& options, runtime::DeviceKinds kinds, std::atomic<int>* stop) {
    XLAD_RETURN_IF_ERROR(Start(options, kinds));
    bool stop_handled = false;
    while (true) {
      for (Event& event : events_.Take()) {
        XLAD_RETURN_IF_ERROR(Handle(std::move(event)));
        if (exit_.has_value()) return End();
      }
      if (stop->load() != 0 && !std::exchange(stop_handled, true)) XLAD_RETURN_IF_ERROR(Handle(StopRequested{}));
      XLAD_RETURN_IF_ERROR(Handle(Tick{}));
      if (exit_.has_value()) return End();
    }
  }

 private:
  // Makes a device for each request and fills the offers of `identity`.
  absl::Status MakeDevices(const WorkerOptions& options, runtime::DeviceKinds kinds, RegisterWorker* identity) {
    if (options.devices.empty()) return absl::InvalidArgumentError("found no devices, expected 1 or more");
    int count = 0;
    for (const runtime::DeviceRequest& request : options.devices) {
      if (request.count < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("found ", request.count, " devices of kind ", request.Name(), ", expected 1 or more"));
      }
      XLAD_ASSIGN_OR_RETURN(*identity->add_offers(), runtime::MakeOffer(request, kinds));
      XLAD_ASSIGN_OR_RETURN(devices_.emplace_back(), runtime::MakeDevice(request, kinds));
      count += request.count;
    }
    identity->set_devices(count);
    *identity->mutable_target() = identity->offers(0).target();
    return absl::OkStatus();
  }

  absl::Status Start(const WorkerOptions& options, runtime::DeviceKinds kinds) {
    const std::unique_ptr<Random> random = SystemRandom();
    WorkerCoreOptions core;
    XLAD_RETURN_IF_ERROR(MakeDevices(options, kinds, &core.identity));
    XLAD_ASSIGN_OR_RETURN(const std::string id, WorkerId(options, random.get()));
    XLAD_ASSIGN_OR_RETURN(channel_, MakeChannel(options.coordinator));
    XLAD_ASSIGN_OR_RETURN(token_, ReadToken(options.coordinator.token_file));
    XLAD_ASSIGN_OR_RETURN(data_plane_,
                          collectives::DataPlane::Listen(&TcpNetwork(), absl::StrCat(options.listen_host, ":0")));
    core.grace_ms = options.grace_ms;
    progress_limit_ms_ = options.progress_limit_ms;
    const int threads = options.threads > 0 ? options.threads : runtime::HostThreads();
    threads_of_each_ = runtime::ThreadsOfEach(threads, core.identity.devices());
    core.identity.set_worker_id(id);
    core.identity.set_incarnation(random->Next());
    core.identity.set_host(HostName());
    core.identity.set_pid(getpid());
    core.identity.set_data_address(data_plane_->address());
    identity_ = core.identity;
    core_ = std::make_unique<WorkerCore>(core, [this](const LaunchTask& launch) { return MakeTask(launch); });
    const auto append = [](std::string* out, const runtime::DeviceRequest& request) {
      out->append(request.ToString());
    };
    LogInfo("worker started", {{"worker", id},
                               {"pid", absl::StrCat(getpid())},
                               {"devices", absl::StrJoin(options.devices, ",", append)},
                               {"data", data_plane_->address()},
                               {"coordinator", options.coordinator.address}});
    attachment_ = Attachment::Start(
        channel_, token_, [this](Event event) { events_.Push(std::move(event)); },
        [this](const absl::Status& status) { Refuse(status); });
    return absl::OkStatus();
  }

  std::unique_ptr<Task> MakeTask(const LaunchTask& launch) {
    runtime::WorkerEnvironment environment{{},
                                           &RealClock(),
                                           &TcpNetwork(),
                                           data_plane_.get(),
                                           identity_.worker_id(),
                                           identity_.incarnation(),
                                           progress_limit_ms_,
                                           threads_of_each_};
    for (const auto& device : devices_) environment.devices.push_back(device.get());
    const auto emit = [this](Event event) { events_.Push(std::move(event)); };
    if (launch.spec().session()) {
      return std::make_unique<SessionTask>(launch, runtime::SessionEnvironment{environment, nullptr, nullptr},
                                           MakeGrpcSessionStore(channel_, token_, launch), emit);
    }
    return std::make_unique<DaemonTask>(launch, runtime::TaskEnvironment{environment, nullptr, nullptr},
                                        MakeGrpcTaskStore(channel_, token_, launch), emit);
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
    CarryOut(core_->Handle(std::move(event), RealClock().NowNs()));
    return absl::OkStatus();
  }

  void CarryOut(Actions actions) {
    for (Action& action : actions) {
      if (auto* send = std::get_if<Send>(&action)) attachment_->Send(send->message);
      if (auto* drop = std::get_if<DropTask>(&action)) reaper_.Take(std::move(drop->task));
      if (auto* exit = std::get_if<Exit>(&action)) exit_ = exit->status;
    }
  }

  absl::Status End() {
    CarryOut(core_->Shutdown());
    attachment_->Flush();
    LogInfo("worker ends", {{"status", exit_->ToString()}});
    return *exit_;
  }

  // In this order, because each member may use those declared before it.
  EventQueue events_;
  std::shared_ptr<grpc::Channel> channel_;
  std::string token_;
  RegisterWorker identity_;
  int64_t progress_limit_ms_ = 0;
  int threads_of_each_ = 1;  // The cores of each device.
  std::unique_ptr<collectives::DataPlane> data_plane_;
  std::vector<std::unique_ptr<runtime::Device>> devices_;
  std::mutex refused_mutex_;
  absl::Status refused_;
  std::optional<absl::Status> exit_;
  Reaper reaper_;
  std::unique_ptr<WorkerCore> core_;
  std::unique_ptr<Attachment> attachment_;
};

}  // namespace

absl::Status RunWorker(const WorkerOptions& options, runtime::DeviceKinds kinds, std::atomic<int>* stop) {
  return Daemon().Run(options, kinds, stop);
}

}  // namespace xlad::worker
