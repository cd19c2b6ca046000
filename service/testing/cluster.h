// A cluster in one thread: a CoordinatorCore in a GroupCommit, with scripted workers, a virtual clock, a log in memory,
// and restarts at any point.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "proto/device_name.h"
#include "proto/protocol.h"
#include "service/group_commit.h"
#include "service/state/messages.h"
#include "service/testing/whole_message.h"

namespace xlad::service {

// A cluster in one thread: the coordinator, its log, and the messages that it sent. The class has more than 25 methods
// because it has one for each message of a worker and each request of a client.
class Cluster {
 public:
  explicit Cluster(const CoordinatorOptions& options = {}, int64_t lease_steps = 100) : options_(options) {
    options_.lease_steps = lease_steps;
    Restart();
  }

  void Restart() {
    random_ = SeededRandom(++seed_);
    commit_ = std::make_unique<GroupCommit>(
        options_, GroupCommit::Environment{&clock, random_.get(), [this] { return OpenMemoryJobLog(&store); }});
    Reopen();
  }
  // Reopens the log after a failed append.
  void Reopen() {
    const auto actions = commit_->TryOpen("test");
    ASSERT_TRUE(actions.ok());
    Perform(*actions);
  }

  // Handles one event and commits. Returns false if the log failed.
  bool Do(const std::function<void(CoordinatorCore&)>& handle, bool tick = false) {
    std::vector<Work> batch;
    if (handle) batch.push_back({handle, nullptr});
    const auto actions = commit_->Commit(batch, tick);
    if (actions.ok()) Perform(*actions);
    return actions.ok();
  }

  void Perform(const Actions& actions) {
    for (const Action& action : actions) {
      const auto* send = std::get_if<SendMessage>(&action);
      if (send != nullptr && keeps_sent) sent.push_back({send->connection, WholeOf(*send), send->common});
      if (const auto* build = std::get_if<StartBuild>(&action)) {
        builds.push_back(*build);
        build_kinds.push_back(DeviceName(build->targets[0]));
      }
      if (const auto* optimizing = std::get_if<StartOptimizing>(&action)) optimizings.push_back(*optimizing);
      if (const auto* load = std::get_if<LoadPlan>(&action)) loads.push_back(load->executable_digest);
      if (const auto* index = std::get_if<StoreIndex>(&action)) indexes.push_back(*index);
      if (const auto* drop = std::get_if<DropCheckpoint>(&action)) dropped.push_back(drop->uri);
      if (const auto* again = std::get_if<DropCheckpointsAgain>(&action)) dropped_again.push_back(again->uris);
      if (const auto* removal = std::get_if<RemoveOldCheckpoints>(&action)) removals.push_back(*removal);
      if (const auto* close = std::get_if<CloseConnection>(&action)) closed.push_back(close->connection);
      if (const auto* stop = std::get_if<StopBuild>(&action)) stopped_builds.push_back(stop->job.str());
      if (const auto* clean = std::get_if<CleanUp>(&action)) clean_ups.push_back(*clean);
    }
  }
  // Compacts the log as the latest clean-up requests.
  void Compact() {
    ASSERT_FALSE(clean_ups.empty());
    const std::unique_ptr<JobLog> log = OpenMemoryJobLog(&store);
    const absl::StatusOr<LogCompaction> plan = PlanCompaction(log.get(), clean_ups.back().trimmed);
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(log->Compact(*plan).ok());
  }

  JobSpec Spec(int64_t devices, int attempts = 0, const std::string& device_name = "") {
    JobSpec spec;
    spec.set_device_name(device_name);
    spec.set_name("test");
    spec.set_steps(1000);
    spec.set_max_attempts(attempts);
    spec.set_state_blob("initial");
    spec.set_keep_final_state(true);
    MeshAxis* axis = spec.add_mesh();
    axis->set_name("dp");
    axis->set_size(devices);
    return spec;
  }
  std::string Submit(int64_t devices, const std::string& key = "key", int attempts = 0,
                     const std::string& device_name = "") {
    return Submit(Spec(devices, attempts, device_name), key);
  }
  std::string Submit(const JobSpec& spec, const std::string& key = "key") {
    SubmitJobRequest request;
    request.set_client_key(key);
    *request.mutable_spec() = spec;
    absl::StatusOr<SubmitJobResponse> response;
    if (!Do([&](CoordinatorCore& c) { response = c.Submit(request); })) return "log failed";
    return response.ok() ? response->job_id() : std::string(response.status().message());
  }

  // Registers a worker with two devices, which are divided among the offers. `kinds` has "KIND" or "KIND/CPU" for each
  // offer.
  void Register(int64_t connection, const std::string& id, uint64_t incarnation = 1,
                const std::vector<RunningTask>& running = {}, const std::vector<std::string>& kinds = {}) {
    WorkerMessage message;
    RegisterWorker* registration = message.mutable_register_();
    registration->set_worker_id(id);
    registration->set_incarnation(incarnation);
    const auto host = hosts.find(id);
    registration->set_host(host == hosts.end() ? "host" : host->second);
    registration->set_pid(100 + connection);
    registration->set_devices(2);
    registration->set_protocol(protocol);
    registration->set_sends_partials_in_f32(sends_partials_in_f32);
    registration->set_replaces_code(replaces_code);
    registration->set_user(user);
    for (const std::string& kind : kinds) {
      DeviceOffer* offer = registration->add_offers();
      offer->set_count(2 / static_cast<int>(kinds.size()));
      const std::pair<std::string, std::string> parts = absl::StrSplit(kind, '/');
      offer->mutable_target()->set_device_kind(parts.first);
      offer->mutable_target()->set_cpu(parts.second);
      offer->mutable_target()->set_has_dots_of_f64_and_s8(has_dots);
    }
    for (const RunningTask& task : running) *registration->add_running() = task;
    Handle(connection, message);
  }

  void Handle(int64_t connection, const WorkerMessage& message) {
    Do([&](CoordinatorCore& c) { c.OnWorkerMessage(ConnectionId(connection), message); });
  }
  void Gone(int64_t connection, const std::string& why = "") {
    Do([&](CoordinatorCore& c) { c.OnWorkerGone(ConnectionId(connection), why); });
  }
  void Built(const std::string& digest = "digest", const std::vector<std::string>& batch_axes = {}) {
    ASSERT_FALSE(builds.empty());
    const StartBuild build = builds.back();
    BuiltProgram built{digest, 12, {}, false, {build.targets[0], {}}, batch_axes, {}, false, "compiler"};
    for (size_t t = 1; t < build.targets.size(); ++t) {
      BuiltExecutable& other = built.others.emplace_back();
      *other.mutable_target() = build.targets[t];
      other.set_digest(absl::StrCat(digest, "-", t));
    }
    Do([&](CoordinatorCore& c) { c.OnBuilt(build.job, build.mesh, built); });
  }
  void Advance(int64_t ms) {
    for (int64_t t = 0; t < ms; t += 100) {
      clock.Advance(100 * kNsPerMs);
      Do(nullptr, /*tick=*/true);
    }
  }
  // Advances the clock while the workers of these connections send heartbeats.
  void RunFor(int64_t ms, const std::vector<int64_t>& connections) {
    for (int64_t t = 0; t < ms; t += 100) {
      WorkerMessage message;
      message.mutable_heartbeat();
      for (const int64_t connection : connections) Handle(connection, message);
      Advance(100);
    }
  }
  JobStatus Status(const std::string& job) { return commit_->coordinator()->jobs().Status(JobId(job)).value(); }
  size_t CountJobs() { return commit_->coordinator()->context().jobs.size(); }
  CoordinatorCore& coordinator() { return *commit_->coordinator(); }
  const Job& JobOf(const std::string& job) { return *coordinator().context().jobs.Find(JobId(job)); }

  template <typename Message>
  void Name(const std::string& job, Message* message) {
    SetAttempt(JobOf(job).current(), message);
  }
  void Ready(int64_t connection, const std::string& job) {
    WorkerMessage message;
    Name(job, message.mutable_ready());
    Handle(connection, message);
  }
  void Beat(int64_t connection, const std::string& job, int64_t step) {
    WorkerMessage message;
    *message.mutable_heartbeat()->add_running() = Task(job, step);
    Handle(connection, message);
  }
  void Steps(int64_t connection, const std::string& job, int64_t from, int64_t to, bool quick_code = false) {
    WorkerMessage message;
    Name(job, message.mutable_steps());
    for (int64_t step = from; step < to; ++step) {
      StepMetrics* metrics = message.mutable_steps()->add_metrics();
      metrics->set_step(step);
      metrics->add_values(static_cast<float>(step));
      metrics->set_step_ms(50);
      metrics->set_quick_code(quick_code);
    }
    Handle(connection, message);
  }
  RunningTask Task(const std::string& job, int64_t step) {
    RunningTask task;
    Name(job, &task);
    task.set_step(step);
    return task;
  }
  void Fail(int64_t connection, const std::string& job, int64_t step, const absl::Status& error,
            const std::string& suspect) {
    WorkerMessage message;
    Name(job, message.mutable_failed());
    message.mutable_failed()->set_step(step);
    message.mutable_failed()->set_error(std::string(error.message()));
    message.mutable_failed()->set_error_code(static_cast<int>(error.code()));
    message.mutable_failed()->set_suspect_worker(suspect);
    Handle(connection, message);
  }
  void Shard(int64_t connection, const std::string& job, int64_t step) {
    WorkerMessage message;
    Name(job, message.mutable_shard_written());
    message.mutable_shard_written()->set_step(step);
    message.mutable_shard_written()->mutable_shard()->set_uri(absl::StrCat("shard-", connection));
    Handle(connection, message);
  }
  // Reports that the index of the latest request has been stored.
  void IndexStored() {
    ASSERT_FALSE(indexes.empty());
    const StoreIndex request = indexes.back();
    const Checkpoint stored{request.index.step(), absl::StrCat("xlad:", request.index.step()), "digest", 0};
    Do([&](CoordinatorCore& c) { c.OnIndexStored(request, stored); });
  }
  // Commits a checkpoint of the workers on connections 1 and 2.
  void CommitCheckpoint(const std::string& job, int64_t step) {
    Shard(1, job, step);
    Shard(2, job, step);
    IndexStored();
  }
  // Starts the job's attempt on the workers of these connections.
  void Start(const std::string& job, const std::vector<int64_t>& connections) {
    for (const int64_t connection : connections) Ready(connection, job);
    EXPECT_EQ(Status(job).state(), RUNNING);
  }
  // Submits and starts a job on four devices of the workers a and b.
  std::string RunningJob(int attempts = 0) { return RunningJob(Spec(4, attempts)); }
  std::string RunningJob(const JobSpec& spec) {
    Register(1, "a");
    Register(2, "b");
    const std::string job = Submit(spec);
    Built("digest", {"dp"});
    Start(job, {1, 2});
    return job;
  }
  template <typename Predicate>
  int CountSent(const Predicate& predicate) const {
    int count = 0;
    for (const SendMessage& message : sent) count += predicate(message.message);
    return count;
  }

  int32_t protocol = kProtocol;              // The protocol of workers that register.
  std::map<std::string, std::string> hosts;  // The hosts of workers that register, by worker; otherwise "host".
  std::string user;                          // The user of the tokens of workers that register.
  bool sends_partials_in_f32 = true;         // False for workers of an older version that register.
  bool has_dots = false;                     // Target.has_dots_of_f64_and_s8 of workers that register.
  bool replaces_code = false;                // Whether workers that register replace quickly compiled code.
  ManualClock clock{1};
  MemoryJobStore store;
  bool keeps_sent = true;
  std::vector<SendMessage> sent;  // Whole messages.
  std::vector<StartBuild> builds;
  std::vector<StartOptimizing> optimizings;
  std::vector<std::string> build_kinds;
  std::vector<std::string> loads;
  std::vector<StoreIndex> indexes;
  std::vector<std::string> dropped;
  std::vector<std::set<std::string>> dropped_again;
  std::vector<RemoveOldCheckpoints> removals;
  std::vector<ConnectionId> closed;
  std::vector<std::string> stopped_builds;
  std::vector<CleanUp> clean_ups;

 private:
  CoordinatorOptions options_;
  uint64_t seed_ = 0;
  std::unique_ptr<Random> random_;
  std::unique_ptr<GroupCommit> commit_;
};

}  // namespace xlad::service
