#include "tests/simulation/storm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "tests/simulation/storm_workers.h"

namespace xlad::simulation {
namespace {

constexpr char kLogPath[] = "/data/jobs.sqlite";
constexpr int64_t kTickMs = 100;
constexpr int64_t kBuildMs = 200;
constexpr int64_t kReopenMs = 300;
constexpr int64_t kPatienceMs = 2000;   // A client repeats a request that has not been answered for this long.
constexpr int64_t kMaxSilentMs = 3000;  // A waiting job must say why within this time.
constexpr int64_t kMetricsPerRead = 50;

}  // namespace

// A client that submits one job until that is acknowledged, and then follows its metrics.
struct Storm::Client {
  std::string key;
  SubmitJobRequest request;
  std::string job_id;            // Empty until it is acknowledged.
  int64_t next_step = 0;         // The first step whose metrics it has not seen.
  int64_t silent_since_ns = -1;  // Since when the job waits without a reason; -1: it does not.
  int tries = 0;
};

Storm::Storm(const StormOptions& options)
    : options_(options),
      random_(SeededRandom(options.seed)),
      coordinator_random_(SeededRandom(options.seed + 1)),
      disk_(options.seed + 2),
      sqlite_(&disk_),
      model_(&indexes_),
      workers_(std::make_unique<StormWorkers>(this, options.workers, options.devices_each)) {}

Storm::~Storm() = default;

void Storm::Note(const std::string& what) {
  result_.trace_hash = Hash64(absl::StrCat(clock_.NowNs(), " ", what), result_.trace_hash);
}

void Storm::After(int64_t delay_ms, std::function<void()> event) {
  events_.emplace(clock_.NowNs() + delay_ms * kNsPerMs, std::move(event));
}

std::string Storm::KeyOf(const std::string& job_id) const {
  const auto found = model_.jobs().find(job_id);
  return found == model_.jobs().end() ? "" : found->second.key;
}

// --- The coordinator's process.

void Storm::StartCoordinator() {
  if (commit_ != nullptr) return;
  ++process_;
  commit_ = std::make_unique<service::GroupCommit>(
      service::CoordinatorOptions(),
      service::GroupCommit::Environment{&clock_, coordinator_random_.get(),
                                        [this]() -> absl::StatusOr<std::shared_ptr<service::JobLog>> {
                                          XLAD_ASSIGN_OR_RETURN(auto log, service::OpenSqliteJobLog(kLogPath));
                                          return Observe(std::move(log), &model_);
                                        }});
  Note("coordinator starts");
  busy_until_ns_ = 0;
  next_open_ns_ = 0;
  ScheduleTurn(/*tick=*/true);
}

// The power fails, or the process is killed: only what the disk has is left.
void Storm::Die(const std::string& how) {
  if (commit_ == nullptr) return;
  Note("coordinator dies " + how);
  ++result_.crashes;
  commit_.reset();
  inbox_.clear();
  turn_is_due_ = tick_is_due_ = false;
  disk_.Restart();
  workers_->OnCoordinatorGone();
  After(Between(50, 4000), [this] { StartCoordinator(); });
}

void Storm::Post(std::function<void(Core&)> event) {
  if (commit_ == nullptr) return;
  inbox_.push_back({std::move(event), nullptr});
  ScheduleTurn(/*tick=*/false);
}

void Storm::ScheduleTurn(bool tick) {
  tick_is_due_ = tick_is_due_ || tick;
  if (turn_is_due_ || commit_ == nullptr) return;
  turn_is_due_ = true;
  const int64_t wait_ms = std::max<int64_t>(0, (busy_until_ns_ - clock_.NowNs()) / kNsPerMs);
  After(wait_ms, [this, process = process_] {
    if (process == process_ && commit_ != nullptr) Turn();
  });
}

void Storm::Tick() {
  ScheduleTurn(/*tick=*/true);
  After(kTickMs, [this] { Tick(); });
}

void Storm::TryToServe() {
  if (clock_.NowNs() < next_open_ns_) return;
  next_open_ns_ = clock_.NowNs() + kReopenMs * kNsPerMs;
  const auto actions = commit_->TryOpen("simulation");
  if (disk_.has_crashed()) return Die("while it recovers");
  if (actions.ok()) Perform(*actions, actions->size());
}

// Handles all that has arrived, as the engine's thread does.
void Storm::Turn() {
  turn_is_due_ = false;
  if (clock_.NowNs() < busy_until_ns_) return ScheduleTurn(/*tick=*/false);
  const bool tick = std::exchange(tick_is_due_, false);
  std::vector<service::Work> batch = std::exchange(inbox_, {});
  if (!commit_->is_open()) {
    for (const service::Work& work : batch) {
      if (work.answer) work.answer(absl::UnavailableError("it does not serve"));
    }
    if (tick) TryToServe();
    return;
  }
  if (!calm_) BreakDisk();
  const int64_t operations = disk_.operations();
  const auto actions = commit_->Commit(batch, tick);
  if (disk_.has_crashed()) return Die("while it commits");
  if (!actions.ok()) {
    Note("coordinator stops serving");
    return workers_->OnCoordinatorGone();
  }
  const bool wrote = disk_.operations() > operations;
  if (!calm_ && wrote && random_->Below(150) == 0) {  // Between commit and acknowledgement, after some of the actions.
    Perform(*actions, random_->Below(actions->size() + 1));
    return Die("after a commit");
  }
  const bool slow = !calm_ && wrote && random_->Below(100) == 0;
  busy_until_ns_ = clock_.NowNs() + (slow ? Between(50, 5000) : 0) * kNsPerMs;
  Perform(*actions, actions->size());
  for (const service::Work& work : batch) {
    if (work.answer) work.answer(absl::OkStatus());
  }
}

// A fault of the disk soon, or its loss of power, now and then.
void Storm::BreakDisk() {
  const uint64_t fate = random_->Below(400);
  const int64_t at = disk_.operations() + Between(1, 8);
  if (fate == 0) disk_.CrashAt(at - 1);
  constexpr DiskFault kFaults[] = {DiskFault::kNoSpace, DiskFault::kIoError, DiskFault::kTornWrite,
                                   DiskFault::kLostSync, DiskFault::kAmbiguousSync};
  if (fate >= 1 && fate <= 2) {
    ++result_.disk_faults;
    disk_.FailAt(at, kFaults[random_->Below(std::size(kFaults))], Between(1, 12));
  }
}

void Storm::Perform(const service::Actions& actions, size_t count) {
  for (size_t i = 0; i < count; ++i) PerformOne(actions[i]);
}

void Storm::PerformOne(const service::Action& action) {
  const auto later = [this](int64_t ms, std::function<void(Core&)> event) {
    After(ms, [this, process = process_, event = std::move(event)] {
      if (process == process_ && is_serving()) Post(event);
    });
  };
  if (const auto* send = std::get_if<service::SendMessage>(&action)) {
    workers_->Deliver(send->connection.value(), send->message);
  } else if (const auto* close = std::get_if<service::CloseConnection>(&action)) {
    workers_->Close(close->connection.value());
  } else if (const auto* build = std::get_if<service::StartBuild>(&action)) {
    later(Between(1, kBuildMs), [build = *build](Core& c) {
      service::BuiltProgram built;
      built.executable_digest = absl::StrCat("executable of ", build.job.str());
      built.plan.target = build.target;
      c.OnBuilt(build.job, build.mesh, built);
    });
  } else if (const auto* load = std::get_if<service::LoadPlan>(&action)) {
    later(5, [digest = load->executable_digest](Core& c) { c.OnPlanLoaded(digest, service::PlannedProgram()); });
  } else if (const auto* store = std::get_if<service::StoreIndex>(&action)) {
    later(Between(1, 100), [this, request = *store, stored = workers_->StoreIndex(store->index)](Core& c) {
      c.OnIndexStored(request, stored);
    });
  }
}

// --- Faults.

void Storm::Misfortune() {
  if (calm_) return;
  switch (random_->Below(10)) {
    case 0:
      Die("killed");
      break;
    case 1:  // Stopped, as by SIGSTOP or a slow machine.
      Note("coordinator is stopped");
      busy_until_ns_ = clock_.NowNs() + Between(500, 15'000) * kNsPerMs;
      break;
    default:
      workers_->Misfortune();
  }
  After(Between(100, 2500), [this] { Misfortune(); });
}

void Storm::Repair() {
  Note("calm");
  calm_ = true;
  disk_.FailAt(INT64_MAX, DiskFault::kNone, 0);
  disk_.CrashAt(INT64_MAX);
  workers_->Repair();
}

// --- Clients.

void Storm::Submit(Client* client) {
  if (!client->job_id.empty()) return;
  const int attempt = ++client->tries;
  After(kPatienceMs, [this, client] { Submit(client); });
  if (commit_ == nullptr) return;
  const auto response = std::make_shared<absl::StatusOr<SubmitJobResponse>>();
  inbox_.push_back({[client, response](Core& c) { *response = c.Submit(client->request); },
                    [this, client, response](const absl::Status& status) {
                      if (!status.ok() || !response->ok()) return;
                      model_.Acknowledge(client->key, (*response)->job_id());
                      if (random_->Below(4) == 0) return;  // The answer is lost on its way.
                      client->job_id = (*response)->job_id();
                    }});
  ScheduleTurn(/*tick=*/false);
  Note(absl::StrCat(client->key, " is submitted for the ", attempt, "th time"));
}

// What a client sees of its job: every step's metrics once, in order, without a gap.
void Storm::Watch(Client* client) {
  if (client->job_id.empty() || !is_serving()) return;
  const auto rows = commit_->log()->ReadMetrics(service::JobId(client->job_id), client->next_step, kMetricsPerRead);
  if (!rows.ok()) return;
  for (const StepMetrics& row : *rows) {
    if (row.step() != client->next_step) {
      result_.violations.push_back(
          absl::StrCat("a watch of ", client->key, " skips from step ", client->next_step, " to ", row.step()));
    }
    client->next_step = row.step() + 1;
  }
}

// Looks at every job as its client does.
void Storm::CheckJobs() {
  if (is_serving() && busy_until_ns_ <= clock_.NowNs()) {
    for (const auto& client : clients_) {
      Watch(client.get());
      if (client->job_id.empty()) continue;
      const auto status = commit_->coordinator()->jobs().Status(service::JobId(client->job_id));
      if (!status.ok())
        result_.violations.push_back(absl::StrCat(client->key, " is not listed: ", status.status().ToString()));
      if (!status.ok()) continue;
      const bool is_silent = status->state() == PENDING && status->reason().empty();
      if (!is_silent) client->silent_since_ns = -1;
      if (is_silent && client->silent_since_ns < 0) client->silent_since_ns = clock_.NowNs();
      if (is_silent && clock_.NowNs() - client->silent_since_ns > kMaxSilentMs * kNsPerMs) {
        result_.violations.push_back(absl::StrCat(client->key, " waits and does not say for what"));
        client->silent_since_ns = clock_.NowNs();
      }
    }
  }
  After(500, [this] { CheckJobs(); });
}

bool Storm::AllEnded() const {
  return is_serving() && std::all_of(clients_.begin(), clients_.end(), [&](const auto& client) {
           const auto found = model_.jobs().find(client->job_id);
           return found != model_.jobs().end() && found->second.ended;
         });
}

// The job has succeeded, and all of its metrics were seen.
void Storm::CheckEnd(Client* client) {
  for (int64_t before = -1; before != client->next_step;) {  // To the end of what is recorded.
    before = client->next_step;
    Watch(client);
  }
  const auto found = model_.jobs().find(client->job_id);
  if (found == model_.jobs().end() || found->second.end_state != SUCCEEDED) {
    const auto status = is_serving() ? commit_->coordinator()->jobs().Status(service::JobId(client->job_id))
                                     : absl::StatusOr<JobStatus>(absl::UnavailableError("no coordinator"));
    result_.violations.push_back(absl::StrCat(client->key, " (", client->job_id, ") did not succeed: ",
                                              status.ok()
                                                  ? absl::StrCat(JobState_Name(status->state()), ": ", status->reason())
                                                  : status.status().ToString()));
  } else if (client->next_step != client->request.spec().steps()) {
    result_.violations.push_back(absl::StrCat(client->key, ": its watch ends before step ", client->next_step, " of ",
                                              client->request.spec().steps()));
  }
}

StormResult Storm::Run() {
  StartCoordinator();
  workers_->Start();
  for (int j = 0; j < options_.jobs; ++j) {
    auto client = std::make_unique<Client>();
    client->key = absl::StrCat("job", j);
    client->request.set_client_key(client->key);
    JobSpec* spec = client->request.mutable_spec();
    spec->set_name(client->key);
    spec->set_steps(Between(0, 150));
    spec->set_keep_final_state(true);
    spec->mutable_checkpoint()->set_every_steps(Between(0, 30));
    spec->mutable_checkpoint()->set_every_ms(random_->Below(2) == 0 ? 0 : Between(200, 3000));
    spec->add_mesh()->set_name("dp");
    spec->mutable_mesh(0)->set_size(Between(1, options_.devices_each * (options_.workers - 1)));
    After(Between(0, options_.storm_ms), [this, client = client.get()] { Submit(client); });
    clients_.push_back(std::move(client));
  }
  Tick();
  CheckJobs();
  After(Between(100, 2500), [this] { Misfortune(); });
  After(options_.storm_ms, [this] { Repair(); });
  while (clock_.NowNs() < options_.limit_ms * kNsPerMs && !(calm_ && AllEnded())) {
    const auto event = events_.begin();
    clock_.Advance(std::max<int64_t>(0, event->first - clock_.NowNs()));
    const std::function<void()> handle = std::move(event->second);
    events_.erase(event);
    handle();
  }
  for (const auto& client : clients_) CheckEnd(client.get());
  result_.violations.insert(result_.violations.end(), model_.violations().begin(), model_.violations().end());
  result_.attempts = model_.attempts();
  result_.checkpoints = model_.checkpoints();
  result_.virtual_ms = clock_.NowNs() / kNsPerMs;
  return result_;
}

}  // namespace xlad::simulation
