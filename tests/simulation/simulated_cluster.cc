#include "tests/simulation/simulated_cluster.h"

#include <algorithm>
#include <cstdlib>

#include "base/hash.h"
#include "proto/protocol.h"
#include "service/testing/whole_message.h"

namespace xlad::simulation {

// The tasks of one attempt. They begin when all of them have started, and step in lockstep.
struct SimulatedCluster::Gang {
  LaunchTask launch;
  std::map<int, SimulatedTask*> members;  // Tasks by worker.
  int64_t finished = 0;                   // The number of finished steps.
  bool formed = false;
  bool over = false;
  int64_t ready_ns = 0;
};

class SimulatedCluster::SimulatedTask final : public worker::Task {
 public:
  SimulatedTask(int w, std::shared_ptr<Gang> gang, std::function<void(worker::Event)> emit)
      : worker_(w), gang_(std::move(gang)), emit_(std::move(emit)) {
    gang_->members[w] = this;
  }
  ~SimulatedTask() override {
    gang_->members.erase(worker_);
    gang_->over = true;  // The other tasks cannot continue without this one.
  }
  void Lease(int64_t until) override { lease = until; }
  void StopAt(int64_t step) override {
    const bool accepted = gang_->finished <= step;
    if (accepted) {
      stop_at = step;
      told_stopped = false;
    }
    emit_(worker::TaskAnsweredStop{{gang_->launch.job_id(), gang_->launch.attempt()}, step, accepted, gang_->finished});
  }
  void CheckpointIsCommitted(int64_t step) override { committed_step = step; }
  void Abort(const collectives::Failure&) override { gang_->over = true; }
  int64_t finished_steps() const override { return gang_->finished; }
  worker::TaskKey key() const { return {gang_->launch.job_id(), gang_->launch.attempt()}; }

  int64_t lease = -1;
  int64_t stop_at = -1;
  int64_t written_step = -1, committed_step = -1;  // The step of the last shard and the step of the last checkpoint.
  bool told_ready = false, told_stopped = false, told_end = false;

 private:
  const int worker_;
  const std::shared_ptr<Gang> gang_;
  const std::function<void(worker::Event)> emit_;
};

SimulatedCluster::SimulatedCluster(uint64_t seed, int workers, int devices_each)
    : random_(SeededRandom(seed)), coordinator_random_(SeededRandom(seed + 1)), devices_each_(devices_each) {
  workers_.resize(workers);
  StartCoordinator();
  for (int w = 0; w < workers; ++w) StartWorker(w);
}

SimulatedCluster::~SimulatedCluster() {
  for (int w = 0; w < std::ssize(workers_); ++w) KillWorker(w);
}

void SimulatedCluster::Note(const std::string& what) { trace_hash_ = Hash64(what, trace_hash_); }

// `connection` is the number of a connection for a message to the coordinator, its negative for a message to the
// worker, and 0 for other events. Messages of one direction stay in order. Messages of a closed connection are lost.
void SimulatedCluster::Later(int64_t connection, int64_t delay_ms, std::function<void()> deliver) {
  int64_t due_ns = clock_.NowNs() + delay_ms * kNsPerMs;
  if (connection != 0) {
    due_ns = std::max(due_ns, last_due_ns_[connection]);
    last_due_ns_[connection] = due_ns;
  }
  const auto place = std::upper_bound(messages_.begin(), messages_.end(), due_ns,
                                      [](int64_t due, const Message& message) { return due < message.due_ns; });
  messages_.insert(place, Message{due_ns, connection, std::move(deliver)});
}

void SimulatedCluster::Deliver() {
  while (!messages_.empty() && messages_.front().due_ns <= clock_.NowNs()) {
    const Message message = std::move(messages_.front());
    messages_.pop_front();
    if (message.connection == 0 || connections_.contains(std::abs(message.connection))) message.deliver();
  }
}

void SimulatedCluster::StartCoordinator() {
  coordinator_ = std::make_unique<service::GroupCommit>(
      service::CoordinatorOptions(),
      service::GroupCommit::Environment{&clock_, coordinator_random_.get(),
                                        [this] { return service::OpenMemoryJobLog(&store_); }});
  Note("coordinator starts");
  TryToServe();
}

void SimulatedCluster::TryToServe() {
  const auto actions = coordinator_->TryOpen("simulation");
  if (actions.ok()) Perform(*actions);
}

bool SimulatedCluster::Do(const std::function<void(service::CoordinatorCore&)>& handle, bool tick) {
  if (coordinator() == nullptr) return false;
  std::vector<service::Work> batch;
  if (handle) batch.push_back({handle, nullptr});
  const auto actions = coordinator_->Commit(batch, tick);
  if (actions.ok()) {
    Perform(*actions);
    return true;
  }
  Note("coordinator stops serving");
  held_sessions_.clear();
  for (int w = 0; w < std::ssize(workers_); ++w) Disconnect(w);
  return false;
}

void SimulatedCluster::KillCoordinator() {
  Note("coordinator dies");
  coordinator_.reset();
  held_sessions_.clear();
  for (int w = 0; w < std::ssize(workers_); ++w) Disconnect(w);
}

void SimulatedCluster::StartWorker(int w) {
  WorkerProcess& process = workers_[w];
  process = WorkerProcess();
  process.incarnation = random_->Next();
  worker::WorkerCoreOptions options;
  options.identity.set_worker_id(absl::StrCat("w", w));
  options.identity.set_incarnation(process.incarnation);
  options.identity.set_host("host");
  options.identity.set_pid(1000 + w);
  options.identity.set_devices(devices_each_);
  options.identity.set_protocol(kProtocol);
  options.tasks_have_processes = true;
  process.core = std::make_unique<worker::WorkerCore>(
      options, [this, w](const LaunchTask& launch) { return StartTask(w, launch); });
  process.connect_at_ns = clock_.NowNs() + static_cast<int64_t>(random_->Below(200)) * kNsPerMs;
  Note(absl::StrCat("worker ", w, " starts"));
}

std::unique_ptr<worker::Task> SimulatedCluster::StartTask(int w, const LaunchTask& launch) {
  for (const auto& [key, owner] : workers_[w].processes) overlaps_ += owner != launch.owner() ? 1 : 0;
  workers_[w].processes[{launch.job_id(), launch.attempt()}] = launch.owner();
  std::shared_ptr<Gang>& gang = gangs_[{launch.job_id(), launch.attempt()}];
  if (gang == nullptr) gang = std::make_shared<Gang>();
  gang->launch = launch;
  gang->finished = launch.first_step();
  gang->ready_ns = clock_.NowNs() + 100 * kNsPerMs;
  // The worker is handling an event, so this event is handled next.
  const auto emit = [this, w, incarnation = workers_[w].incarnation](worker::Event event) {
    Later(0, 0, [this, w, incarnation, event = std::move(event)] {
      if (workers_[w].incarnation == incarnation) HandleOf(w, event);
    });
  };
  return std::make_unique<SimulatedTask>(w, gang, emit);
}

void SimulatedCluster::EndProcess(int w, const worker::TaskKey& key) {
  Later(0, static_cast<int64_t>(random_->Below(500)), [this, w, key, incarnation = workers_[w].incarnation] {
    WorkerProcess& process = workers_[w];
    if (process.incarnation != incarnation || process.core == nullptr) return;
    const std::string owner = process.processes[key];
    process.processes.erase(key);
    const std::map<worker::TaskKey, std::string> before = process.processes;
    HandleOf(w, worker::TaskHasExited{key, {}});
    for (const auto& [started, other] : process.processes) {
      if (!before.contains(started) && other != owner) ++handovers_;
    }
  });
}

void SimulatedCluster::KillWorker(int w) {
  WorkerProcess& process = workers_[w];
  if (process.core == nullptr) return;
  Note(absl::StrCat("worker ", w, " dies"));
  LeaveGangs(w, absl::StrCat("w", w));
  Disconnect(w);
  process.core.reset();
}

void SimulatedCluster::CutConnection(int w) {
  Note(absl::StrCat("connection of ", w, " is cut"));
  Disconnect(w);
}

void SimulatedCluster::DrainWorker(int w) {
  if (!worker_is_up(w)) return;
  Note(absl::StrCat("worker ", w, " drains"));
  HandleOf(w, worker::StopRequested{});
}

void SimulatedCluster::Connect(int w) {
  WorkerProcess& process = workers_[w];
  process.connection = next_connection_++;
  connections_[process.connection] = w;
  HandleOf(w, worker::Connected{});
}

// Both ends are notified of the closed connection, the coordinator a little later.
void SimulatedCluster::Disconnect(int w) {
  WorkerProcess& process = workers_[w];
  if (process.connection == 0) return;
  const int64_t connection = process.connection;
  connections_.erase(connection);
  process.connection = 0;
  process.connect_at_ns = clock_.NowNs() + static_cast<int64_t>(50 + random_->Below(400)) * kNsPerMs;
  if (process.core != nullptr) HandleOf(w, worker::Disconnected{});
  Later(0, static_cast<int64_t>(random_->Below(100)), [this, connection] {
    Do([&](service::CoordinatorCore& c) { c.OnWorkerGone(service::ConnectionId(connection)); });
  });
}

void SimulatedCluster::HandleOf(int w, worker::Event event) {
  WorkerProcess& process = workers_[w];
  if (process.core == nullptr) return;
  PerformOf(w, process.core->Handle(std::move(event), clock_.NowNs()));
}

void SimulatedCluster::PerformOf(int w, worker::Actions actions) {
  WorkerProcess& process = workers_[w];
  for (worker::Action& action : actions) {
    if (auto* send = std::get_if<worker::Send>(&action)) {
      const int64_t connection = process.connection;
      if (connection == 0) continue;
      Later(connection, static_cast<int64_t>(random_->Below(20)), [this, connection, message = send->message] {
        Note(message.SerializeAsString());
        Do([&](service::CoordinatorCore& c) { c.OnWorkerMessage(service::ConnectionId(connection), message); });
      });
    } else if (std::holds_alternative<worker::Exit>(action)) {
      process.drained = true;
    } else if (const auto* drop = std::get_if<worker::DropTask>(&action)) {
      EndProcess(w, dynamic_cast<SimulatedTask&>(*drop->task).key());
    }
  }
}

void SimulatedCluster::Perform(const service::Actions& actions) {
  for (const service::Action& action : actions) {
    if (const auto* send = std::get_if<service::SendMessage>(&action)) {
      const auto to = connections_.find(send->connection.value());
      if (to == connections_.end()) continue;
      Later(-send->connection.value(), static_cast<int64_t>(random_->Below(20)),
            [this, w = to->second, connection = send->connection.value(), message = service::WholeOf(*send)] {
              if (connections_.contains(connection)) HandleOf(w, message);
            });
    } else if (const auto* close = std::get_if<service::CloseConnection>(&action)) {
      const auto to = connections_.find(close->connection.value());
      if (to != connections_.end()) Later(0, 0, [this, w = to->second] { Disconnect(w); });
    } else if (const auto* build = std::get_if<service::StartBuild>(&action)) {
      Later(0, 200, [this, request = *build, asked = coordinator()] {
        if (coordinator() != asked) return;
        Do([&](service::CoordinatorCore& c) {
          c.OnBuilt(request.job, request.mesh, service::BuiltProgram{"digest", 200, {}, false, {}, {}, {}});
        });
      });
    } else if (const auto* load = std::get_if<service::LoadPlan>(&action)) {
      Later(0, 5, [this, digest = load->executable_digest, asked = coordinator()] {
        if (coordinator() != asked) return;
        Do([&](service::CoordinatorCore& c) { c.OnPlanLoaded(digest, service::PlannedProgram()); });
      });
    } else if (const auto* store = std::get_if<service::StoreIndex>(&action)) {
      Later(0, 50, [this, request = *store, asked = coordinator()] {
        if (coordinator() != asked) return;
        const int64_t step = request.index.step();
        const service::Checkpoint stored{step, absl::StrCat("xlad:", step), "digest", 0};
        Do([&](service::CoordinatorCore& c) { c.OnIndexStored(request, stored); });
      });
    }
  }
}

// The tasks of a killed worker end; their peers are notified that the connections closed.
void SimulatedCluster::LeaveGangs(int w, const std::string& why) {
  for (auto& [key, gang] : gangs_) {
    if (gang->over || !gang->members.contains(w)) continue;
    gang->over = true;
    for (const auto& [other, task] : gang->members) {
      if (other == w || task->told_end) continue;
      task->told_end = true;
      Later(0, 5, [this, other = other, key = key, step = gang->finished, why] {
        HandleOf(other, worker::TaskHasFailed{worker::TaskKey{key.first, key.second}, step,
                                              {absl::UnavailableError("peer is gone"), why}});
      });
    }
  }
}

void SimulatedCluster::StepGangs() {
  for (auto& [key, gang] : gangs_) {
    if (gang->over || gang->members.empty()) continue;
    const worker::TaskKey task_key{key.first, key.second};
    const std::map<int, SimulatedTask*> members = gang->members;
    gang->formed = static_cast<int>(members.size()) == gang->launch.peers_size() && clock_.NowNs() >= gang->ready_ns;
    if (!gang->formed) continue;
    const bool session = gang->launch.spec().session();
    bool can_step = !session && gang->finished < gang->launch.spec().steps();
    for (const auto& [w, task] : members) {
      if (!task->told_ready) {
        task->told_ready = true;
        HandleOf(w, worker::TaskIsReady{task_key, session ? "127.0.0.1:1" : ""});
      }
      can_step = can_step && task->lease > gang->finished && (task->stop_at < 0 || task->stop_at > gang->finished);
    }
    if (session) continue;  // The calls of a session do not pass through the coordinator.
    if (can_step) {
      StepMetrics metrics;
      metrics.set_step(gang->finished++);
      metrics.set_step_ms(10);
      metrics.set_attempt(key.second);
      metrics.add_values(static_cast<float>(metrics.step()));
      for (const auto& [w, task] : members) {
        const auto& peers = gang->launch.peers();
        const bool has_device_0 = peers[0].worker_id() == absl::StrCat("w", w);
        if (has_device_0) HandleOf(w, worker::TaskStepped{task_key, metrics});
      }
    }
    for (const auto& [w, task] : members) {
      const bool is_finished = gang->finished >= gang->launch.spec().steps();
      if ((is_finished && gang->launch.spec().keep_final_state()) || task->stop_at == gang->finished) {
        if (task->written_step != gang->finished) {
          task->written_step = gang->finished;
          HandleOf(w, worker::TaskWroteShard{task_key, gang->finished, CheckpointShard()});
        }
        // The task ends when its state is in a committed checkpoint.
        if (task->committed_step != gang->finished) continue;
      }
      if (is_finished && !task->told_end) {
        task->told_end = true;
        HandleOf(w, worker::TaskHasFinished{task_key});
      } else if (task->stop_at == gang->finished && !task->told_stopped && !task->told_end) {
        task->told_stopped = true;
        HandleOf(w, worker::TaskHasStopped{task_key, gang->finished});
      }
    }
  }
}

void SimulatedCluster::Run(int64_t ms) {
  for (int64_t t = 0; t < ms; t += 10) {
    clock_.Advance(10 * kNsPerMs);
    Deliver();
    for (int w = 0; w < std::ssize(workers_); ++w) {
      WorkerProcess& process = workers_[w];
      if (process.drained) KillWorker(w);
      process.drained = false;
      if (process.core == nullptr) continue;
      if (process.connection == 0 && coordinator() != nullptr && clock_.NowNs() >= process.connect_at_ns) Connect(w);
      if (t % 50 == 0) HandleOf(w, worker::Tick{});
    }
    StepGangs();
    if (t % 100 != 0 || coordinator_ == nullptr) continue;
    if (coordinator() != nullptr) {
      Do(nullptr, /*tick=*/true);
    } else {
      TryToServe();
    }
  }
}

std::string SimulatedCluster::Submit(const std::string& key, int64_t devices, int64_t steps, int attempts) {
  if (coordinator_ == nullptr) return "";
  SubmitJobRequest request;
  request.set_client_key(key);
  request.mutable_spec()->set_name(key);
  request.mutable_spec()->set_steps(steps);
  request.mutable_spec()->set_max_attempts(attempts);
  request.mutable_spec()->set_state_blob("initial");
  request.mutable_spec()->set_keep_final_state(steps % 2 == 0);
  MeshAxis* axis = request.mutable_spec()->add_mesh();
  axis->set_name("dp");
  axis->set_size(devices);
  std::string id;
  const bool committed = Do([&](service::CoordinatorCore& c) {
    const auto response = c.Submit(request);
    if (response.ok()) id = response->job_id();
  });
  return committed ? id : "";
}

std::string SimulatedCluster::OpenSession(const std::string& key, int64_t devices) {
  if (coordinator_ == nullptr) return "";
  OpenSessionRequest request;
  request.set_client_key(key);
  request.set_name(key);
  request.add_mesh()->set_size(devices);
  std::string id;
  const bool committed = Do([&](service::CoordinatorCore& c) {
    const auto opened = c.OpenSession(request);
    if (opened.ok() && c.sessions().Hold(service::JobId(opened->job_id())).ok()) id = opened->job_id();
  });
  if (!committed || id.empty()) return "";
  held_sessions_.push_back(id);
  return id;
}

bool SimulatedCluster::UseSession(const std::string& id) {
  absl::Status status;
  const bool committed =
      Do([&](service::CoordinatorCore& c) { status = c.sessions().Locate(service::JobId(id)).status(); });
  return committed && status.ok();
}

void SimulatedCluster::ReleaseSessions() {
  for (const std::string& id : std::exchange(held_sessions_, {})) {
    Do([&](service::CoordinatorCore& c) { c.sessions().Release(service::JobId(id)); });
  }
}

}  // namespace xlad::simulation
