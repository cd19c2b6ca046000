// Complete tasks: four devices on one to four workers train a small program whose values are all predictable.
#include "runtime/task_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <cmath>
#include <condition_variable>
#include <thread>

#include "base/hash.h"
#include "base/log.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/spec_proto.h"
#include "runtime/testing/committer.h"
#include "runtime/testing/test_support.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using collectives::AbortSignal;
using tensor::Array;
using tensor::ElementType;
using ::testing::HasSubstr;

constexpr int kDevices = 4;
constexpr int64_t kBatch = 8;
constexpr int64_t kBatches = 3;
constexpr int64_t kSteps = 20;

// w: f32[4], replicated, not donated: its memory is exchanged with that of its result. v: f32[7], two elements per
// device and one on the last, donated. x: f32[8], rows of a batch. step.
//   g = all_reduce(sum of own x + step);  w' = w + g;  v' = v + device + 1;  loss = w'[0]
enum Slot { kW, kV, kX, kStep, kGradient, kNewW, kLoss };

// The step from whose gradient on everything is NaN.
std::atomic<int> nan_step = INT_MAX;

TestKernels Kernels() {
  TestKernels kernels;
  kernels["gradient"] = [](absl::Span<void* const> b, int) {
    const float* x = static_cast<float*>(b[0]);
    int32_t step = 0;
    std::memcpy(&step, b[1], 4);
    for (int i = 0; i < 4; ++i) static_cast<float*>(b[2])[i] = x[0] + x[1] + static_cast<float>(step);
    if (step >= nan_step) static_cast<float*>(b[2])[0] = std::nanf("");
    return absl::OkStatus();
  };
  kernels["update"] = [](absl::Span<void* const> b, int device) {
    for (int i = 0; i < 4; ++i)
      static_cast<float*>(b[2])[i] = static_cast<float*>(b[0])[i] + static_cast<float*>(b[1])[i];
    for (int i = 0; i < 2; ++i) static_cast<float*>(b[3])[i] += static_cast<float>(device + 1);
    *static_cast<float*>(b[4]) = *static_cast<float*>(b[2]);
    return absl::OkStatus();
  };
  return kernels;
}

void AddValue(EntryValue* value, std::vector<int64_t> global, std::vector<int64_t> local, BufferSlice slice) {
  SetShape(value->mutable_global(), ElementType::kF32, global);
  SetShape(value->mutable_local(), ElementType::kF32, local);
  *value->mutable_buffer() = slice;
  const bool sharded = global != local;
  for (int64_t device = 0; device < (sharded ? kDevices : 1); ++device) {
    xlad::Box* box = value->add_boxes();
    if (global.empty()) continue;
    box->add_lo(sharded ? device * local[0] : 0);
    box->add_hi(sharded ? std::min((device + 1) * local[0], global[0]) : global[0]);
  }
}

Executable MakeExecutable() {
  Executable e;
  e.set_name("little");
  MeshAxis* axis = e.add_mesh();
  axis->set_name("dp");
  axis->set_size(kDevices);
  for (const auto& [kind, bytes] : std::vector<std::pair<Allocation::Kind, int64_t>>{{Allocation::PARAMETER, 16},
                                                                                     {Allocation::PARAMETER, 8},
                                                                                     {Allocation::PARAMETER, 8},
                                                                                     {Allocation::PARAMETER, 4},
                                                                                     {Allocation::TEMPORARY, 16},
                                                                                     {Allocation::RESULT, 16},
                                                                                     {Allocation::RESULT, 4}}) {
    AddAllocation(&e, kind, bytes);
  }
  AddValue(e.add_parameters(), {4}, {4}, Whole(e, kW));
  AddValue(e.add_parameters(), {7}, {2}, Whole(e, kV));
  e.mutable_parameters(1)->set_donated(true);
  AddValue(e.add_parameters(), {kBatch}, {2}, Whole(e, kX));
  AddValue(e.add_parameters(), {}, {}, Whole(e, kStep));
  SetShape(e.mutable_parameters(3)->mutable_global(), ElementType::kS32, {});
  SetShape(e.mutable_parameters(3)->mutable_local(), ElementType::kS32, {});
  AddValue(e.add_results(), {4}, {4}, Whole(e, kNewW));
  AddValue(e.add_results(), {7}, {2}, Whole(e, kV));
  AddValue(e.add_results(), {}, {}, Whole(e, kLoss));
  *e.add_steps() = KernelOn(e, "gradient", {kX, kStep, kGradient});
  *e.add_steps() = AllReduceOn(&e, kDevices, 4, kGradient);
  e.mutable_collectives(0)->add_because("dot.1: contracting dimension 0 of operand 0 is split over dp (model.py:12)");
  *e.add_steps() = KernelOn(e, "update", {kW, kGradient, kNewW, kV, kLoss});
  return e;
}

JobSpec MakeSpec() {
  JobSpec spec;
  for (const auto& [name, kind] :
       std::vector<std::pair<std::string, JobSpec::Parameter::Kind>>{{"w", JobSpec::Parameter::STATE},
                                                                     {"v", JobSpec::Parameter::STATE},
                                                                     {"x", JobSpec::Parameter::DATA},
                                                                     {"step", JobSpec::Parameter::STEP}}) {
    JobSpec::Parameter* parameter = spec.add_parameters();
    parameter->set_name(name);
    parameter->set_kind(kind);
  }
  for (int64_t feeds : {0, 1, -1}) {
    JobSpec::Result* result = spec.add_results();
    result->set_kind(feeds >= 0 ? JobSpec::Result::STATE : JobSpec::Result::LOSS);
    result->set_feeds(feeds);
  }
  spec.set_steps(kSteps);
  spec.set_batch_size(kBatch);
  spec.set_batch_count(kBatches);
  spec.set_keep_final_state(true);
  return spec;
}

Array Floats(const std::vector<float>& values) {
  return Array::FromValues<float>(ElementType::kF32, {std::ssize(values)}, values);
}

std::vector<float> Rows() {
  std::vector<float> rows;
  for (int i = 0; i < kBatch * kBatches; ++i) rows.push_back(static_cast<float>((i * 7) % 13));
  return rows;
}

// The state after `steps` steps, and the loss of each step.
struct Reference {
  std::vector<float> w = {1, 2, 3, 4};
  std::vector<float> v = {0, 0, 0, 0, 0, 0, 0};
  std::vector<float> losses;
  std::vector<TaskTrace> traces;

  explicit Reference(int64_t steps) {
    const std::vector<float> rows = Rows();
    for (int64_t step = 0; step < steps; ++step) {
      float sum = 0;
      for (int64_t r = 0; r < kBatch; ++r) sum += rows[(step % kBatches) * kBatch + r];
      for (float& value : w) value += sum + kDevices * static_cast<float>(step);
      for (size_t i = 0; i < v.size(); ++i) v[i] += static_cast<float>(i / 2 + 1);
      losses.push_back(w[0]);
    }
  }
};

// Keeps blobs in memory and assembles the written shards by step.
class MemoryStore final : public TaskStore {
 public:
  absl::StatusOr<std::string> ReadBlob(const std::string& digest, AbortSignal*) override {
    const auto found = blobs.find(digest);
    if (found == blobs.end()) return absl::NotFoundError(absl::StrCat("no blob ", digest));
    return found->second;
  }
  absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenTensors(const std::string& uri, AbortSignal*) override {
    tensor::NamedArrays arrays;
    const std::string folder = uri.substr(uri.find(':') + 1) + "/";
    for (const auto& [name, array] : tensors) {
      if (name.starts_with(folder)) arrays.emplace(name.substr(folder.size()), array);
    }
    return storage::OpenSafetensors({storage::MakeMemoryReader(tensor::SerializeSafetensors(arrays))}, {uri});
  }
  absl::StatusOr<CheckpointShard> WriteShard(int64_t step, const std::string& name,
                                             const storage::SerializedShard& shard, AbortSignal* abort) override {
    while (cut_off && !abort->raised()) std::this_thread::yield();
    std::string bytes;
    storage::ObjectHasher hasher;
    XLAD_RETURN_IF_ERROR(shard.WriteTo([&](absl::string_view piece) {
      bytes.append(piece.data(), piece.size());
      hasher.Add(piece);
      return absl::OkStatus();
    }));
    const CheckpointShard written = shard.Describe(name, hasher.Finish());
    std::lock_guard<std::mutex> lock(mutex);
    if (failures > 0) {
      --failures;
      return absl::ResourceExhaustedError("the disk is full");
    }
    for (const CheckpointPiece& piece : written.pieces()) {
      const Array& like = tensors.at("state/" + piece.tensor());
      Array& whole = this->written.try_emplace({step, piece.tensor()}, like.shape()).first->second;
      const tensor::Box box = tensor::BoxFromWire(piece.box());
      Array part({like.shape().type, box.sizes()});
      std::memcpy(part.bytes().data(), bytes.data() + piece.begin(), part.bytes().size());
      tensor::InsertBox(part, box, &whole);
      if (step == kSteps) ++writes;
    }
    return written;
  }
  bool IsCutOff() const override { return cut_off; }

  std::map<std::string, std::string> blobs;
  std::map<std::string, Array> tensors;
  std::mutex mutex;
  std::map<std::pair<int64_t, std::string>, Array> written;
  int writes = 0;    // Pieces of the last state.
  int failures = 0;  // The number of the next writes that fail.
  std::atomic<bool> cut_off = false;  // Writes wait.
};

class TestListener final : public TaskListener {
 public:
  void OnReady() override {
    Note([&] { ready = true; });
  }
  void OnStep(const StepMetrics& metrics) override {
    Note([&] { losses.push_back(metrics.values(0)); });
  }
  void OnShardWritten(int64_t step, const CheckpointShard& shard) override {
    // The shard is noted first, because its commit may end the task on another thread.
    Note([&] { shards.push_back(step); });
    on_shard(step);
  }
  void OnTrace(TaskTrace trace) override { Note([&] { traces.push_back(trace); }); }
  void OnStopped(int64_t step) override {
    Note([&] { stopped_at = step; });
  }
  void OnFinished() override {
    Note([&] { finished = true; });
  }
  void OnFailed(int64_t step, const collectives::Failure& f) override {
    Note([&] {
      failure = f;
      failed_at = step;
    });
  }

  template <typename Until>
  void WaitFor(const Until& until) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return until() || failed_at >= 0; });
  }
  void WaitForEnd() { WaitFor([&] { return finished; }); }

  bool ready = false, finished = false;
  int64_t stopped_at = -1, failed_at = -1;
  collectives::Failure failure;
  std::vector<float> losses;
  std::vector<int64_t> shards;  // The steps of the shards that were written.
  std::function<void(int64_t)> on_shard;

 private:
  template <typename Change>
  void Note(const Change& change) {
    std::lock_guard<std::mutex> lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

class Cluster {
 public:
  explicit Cluster(const std::vector<std::vector<int>>& placement, const Executable& executable = MakeExecutable(),
                   const JobSpec& spec = MakeSpec(), const Clock* watched_by = nullptr)
      : device_(Kernels()), committer_(placement.size(), [this](int64_t step) {
          for (const auto& task : tasks) {
            if (task != nullptr) task->CheckpointIsCommitted(step);
          }
        }) {
    SetLogLevel(LogLevel::kWarn);
    const std::string bytes = executable.SerializeAsString();
    const std::string digest = Sha256Hex(bytes);
    store.blobs[digest] = bytes;
    store.tensors["state/w"] = Floats({1, 2, 3, 4});
    store.tensors["state/v"] = Floats({0, 0, 0, 0, 0, 0, 0});
    store.tensors["data/x"] = Floats(Rows());
    launch_.set_job_id("job-1");
    launch_.set_attempt(1);
    launch_.set_executable_digest(digest);
    *launch_.mutable_spec() = spec;
    launch_.mutable_spec()->set_data_blob("data");
    launch_.set_state_blob("state");
    for (const xlad::CollectiveSpec& proto : executable.collectives()) {
      const collectives::CollectiveSpec collective = *collectives::SpecFromProto(proto, kDevices);
      const collectives::CollectivePlan plan = *collectives::MakePlan(collective);
      *launch_.add_plans() =
          collectives::PlanToProto<CollectivePlanProto>(plan, *collectives::ScheduleHash(plan, collective));
    }
    for (size_t w = 0; w < placement.size(); ++w) {
      data_planes_.push_back(*collectives::DataPlane::Listen(&TcpNetwork(), "127.0.0.1:0"));
      Peer* peer = launch_.add_peers();
      peer->set_worker_id(absl::StrCat("w", w));
      peer->set_host("here");
      peer->set_pid(static_cast<int64_t>(w) + 1);
      peer->set_data_address(data_planes_[w]->address());
      for (int device : placement[w]) peer->add_devices(device);
      listeners.push_back(std::make_unique<TestListener>());
      listeners.back()->on_shard = [this](int64_t step) { committer_.OnShard(step); };
    }
    for (size_t w = 0; w < placement.size(); ++w) {
      LaunchTask launch = launch_;
      for (int device : placement[w]) launch.add_devices()->set_device(device);
      TaskEnvironment environment{
          {{&device_}, &RealClock(), &TcpNetwork(), data_planes_[w].get(), absl::StrCat("w", w), 0},
          &store,
          listeners[w].get()};
      if (watched_by != nullptr) {
        environment.clock = watched_by;
        environment.progress_limit_ms = 1000;
      }
      tasks.push_back(std::make_unique<TaskExecutor>(launch, environment));
    }
  }

  ~Cluster() {
    committer_.Stop();
    tasks.clear();
  }

  void ForAll(const std::function<void(TaskExecutor&, TestListener&)>& f) {
    for (size_t w = 0; w < tasks.size(); ++w) f(*tasks[w], *listeners[w]);
  }

  MemoryStore store;
  std::vector<std::unique_ptr<TestListener>> listeners;

 private:
  TestDevice device_;
  Committer committer_;
  LaunchTask launch_;
  std::vector<std::unique_ptr<collectives::DataPlane>> data_planes_;

 public:
  std::vector<std::unique_ptr<TaskExecutor>> tasks;
};

const std::vector<std::vector<std::vector<int>>> kPlacements = {{{0, 1, 2, 3}}, {{0, 1}, {2, 3}}, {{3}, {1, 0}, {2}}};

void CheckState(MemoryStore* store, int64_t step) {
  const Reference reference(step);
  EXPECT_EQ(store->written.at({step, "w"}), Floats(reference.w));
  EXPECT_EQ(store->written.at({step, "v"}), Floats(reference.v));
}

TEST(TaskExecutor, TrainsToTheEnd) {
  for (const auto& placement : kPlacements) {
    Cluster cluster(placement);
    cluster.ForAll([](TaskExecutor& task, TestListener& listener) {
      listener.WaitFor([&] { return listener.ready; });
      EXPECT_EQ(listener.failed_at, -1) << listener.failure.status;
      EXPECT_EQ(task.begun_steps(), 0) << "no step before the lease";
      task.Lease(kSteps);
    });
    cluster.ForAll([](TaskExecutor& task, TestListener& listener) {
      listener.WaitForEnd();
      EXPECT_TRUE(listener.finished) << listener.failure.status;
      EXPECT_EQ(task.finished_steps(), kSteps);
    });
    std::vector<float> losses;
    cluster.ForAll([&](TaskExecutor&, TestListener& listener) {
      losses.insert(losses.end(), listener.losses.begin(), listener.losses.end());
    });
    EXPECT_EQ(losses, Reference(kSteps).losses) << "from the worker with device 0 alone";
    CheckState(&cluster.store, kSteps);
    EXPECT_EQ(cluster.store.writes, 1 + kDevices) << "each box of the state once";
  }
}

TEST(TaskExecutor, RecordsStepsAndWhatIsReceivedAfterItWasSent) {
  for (const auto& placement : kPlacements) {
    Cluster cluster(placement);
    cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
    std::multiset<std::pair<int, int64_t>> steps;
    std::map<uint64_t, int64_t> sent, received;
    cluster.ForAll([&](TaskExecutor&, TestListener& listener) {
      listener.WaitForEnd();
      for (const TaskTrace& trace : listener.traces) {
        const TracedStep& step = trace.steps(0);
        steps.emplace(step.device(), step.step());
        for (int m = 0; m < step.message_key_size(); ++m) {
          auto& times = step.message_sent(m) ? sent : received;
          EXPECT_TRUE(times.emplace(step.message_key(m), step.begin_ns() + step.message_ns(m)).second);
        }
      }
    });
    for (int64_t i = 0, step = 0; i < kSteps * kDevices; step = ++i / kDevices) {
      EXPECT_EQ(steps.count({i % kDevices, step}), IsTraced(step) ? 1u : 0u) << step;
    }
    ASSERT_EQ(sent.size(), received.size());
    for (const auto& [key, ns] : sent) EXPECT_GE(received.at(key), ns);
  }
}

TEST(TaskExecutor, StopsWithItsStateAndContinues) {
  for (const auto& placement : kPlacements) {
    Cluster cluster(placement);
    cluster.ForAll([](TaskExecutor& task, TestListener&) {
      EXPECT_TRUE(task.StopAt(7));
      task.Lease(1000);
    });
    cluster.ForAll([](TaskExecutor& task, TestListener& listener) {
      listener.WaitFor([&] { return listener.stopped_at == 7; });
      EXPECT_EQ(task.finished_steps(), 7) << listener.failure.status;
      EXPECT_FALSE(task.StopAt(6));
    });
    CheckState(&cluster.store, 7);
    cluster.ForAll([](TaskExecutor& task, TestListener&) { EXPECT_TRUE(task.StopAt(kSteps)); });
    cluster.ForAll([](TaskExecutor&, TestListener& listener) { listener.WaitForEnd(); });
    CheckState(&cluster.store, kSteps);
  }
}

TEST(TaskExecutor, ATaskAtRestLeavesWithoutAFailureAnywhere) {
  Cluster cluster({{0, 1}, {2, 3}});
  cluster.ForAll([](TaskExecutor& task, TestListener&) {
    task.StopAt(3);
    task.Lease(1000);
  });
  cluster.ForAll(
      [](TaskExecutor&, TestListener& listener) { listener.WaitFor([&] { return listener.stopped_at == 3; }); });
  cluster.tasks[0].reset();
  cluster.tasks[1].reset();
  EXPECT_EQ(cluster.listeners[0]->failed_at, -1) << cluster.listeners[0]->failure.status;
  EXPECT_EQ(cluster.listeners[1]->failed_at, -1) << cluster.listeners[1]->failure.status;
}

TEST(TaskExecutor, AnAbortReachesEveryWorkerWithItsReason) {
  for (const auto& placement : kPlacements) {
    Cluster cluster(placement);
    cluster.ForAll([](TaskExecutor& task, TestListener& listener) {
      listener.WaitFor([&] { return listener.ready; });
      task.Lease(5);
    });
    cluster.tasks[0]->Abort({absl::CancelledError("cancelled by its owner"), "w7"});
    cluster.ForAll([](TaskExecutor&, TestListener& listener) {
      listener.WaitForEnd();
      EXPECT_THAT(std::string(listener.failure.status.message()), HasSubstr("cancelled by its owner"));
      EXPECT_EQ(listener.failure.suspect_worker, "w7");
    });
  }
}

TEST(TaskExecutor, APeerThatDoesNotComeIsAnErrorThatSaysWhoWaitsWhereAndWhy) {
  ManualClock clock;
  Cluster cluster({{0, 1}, {2, 3}}, MakeExecutable(), MakeSpec(), &clock);
  cluster.tasks[0]->Lease(6);
  cluster.tasks[1]->Lease(5);
  while (cluster.tasks[0]->begun_steps() < 6 || cluster.tasks[1]->finished_steps() < 5) std::this_thread::yield();
  TestListener& listener = *cluster.listeners[0];
  std::atomic<bool> ended = false;
  std::thread time([&] {
    while (!ended) {
      clock.Advance(kNsPerMs);
      std::this_thread::yield();
    }
  });
  listener.WaitForEnd();
  ended = true;
  time.join();
  EXPECT_EQ(listener.failure.status.code(), absl::StatusCode::kDeadlineExceeded);
  for (const char* words : {"no progress for more than 1000 ms", "device 0: all-reduce.1, step 5, rank 0 of 4",
                            "because dot.1: contracting dimension 0", "(model.py:12)"}) {
    EXPECT_THAT(std::string(listener.failure.status.message()), HasSubstr(words));
  }
}

TEST(TaskExecutor, DroppingWhileLoadingOrConnectingEnds) {
  // The other worker never connects, so that its peers wait for it.
  Cluster cluster({{0, 1, 2}, {3}});
  cluster.tasks[1].reset();
  cluster.tasks[0].reset();
}

TEST(TaskExecutor, SavesCheckpointsWhileItTrains) {
  for (const auto& placement : kPlacements) {
    JobSpec spec = MakeSpec();
    spec.mutable_checkpoint()->set_every_steps(4);
    Cluster cluster(placement, MakeExecutable(), spec);
    cluster.ForAll([](TaskExecutor& task, TestListener&) { EXPECT_TRUE(task.CheckpointAt(3)); });
    cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
    cluster.ForAll([](TaskExecutor&, TestListener& listener) {
      listener.WaitForEnd();
      EXPECT_TRUE(listener.finished) << listener.failure.status;
      std::vector<int64_t> expected = {3};
      for (int64_t step = 4; step < kSteps; step += 4) expected.push_back(step);
      expected.push_back(kSteps);
      EXPECT_EQ(listener.shards, expected);
    });
    for (int64_t step = 4; step < kSteps; step += 4) CheckState(&cluster.store, step);
    CheckState(&cluster.store, 3);
    CheckState(&cluster.store, kSteps);
  }
}

TEST(TaskExecutor, StepsDoNotWaitForACoordinatorThatCannotBeReached) {
  for (const auto& placement : kPlacements) {
    JobSpec spec = MakeSpec();
    spec.mutable_checkpoint()->set_every_steps(4);
    Cluster cluster(placement, MakeExecutable(), spec);
    cluster.store.cut_off = true;
    cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
    cluster.ForAll([](TaskExecutor& task, TestListener&) {
      while (task.finished_steps() < kSteps) std::this_thread::yield();
    });
    cluster.store.cut_off = false;
    cluster.ForAll([](TaskExecutor&, TestListener& listener) {
      listener.WaitForEnd();
      EXPECT_TRUE(listener.finished) << listener.failure.status;
      EXPECT_EQ(listener.shards, (std::vector<int64_t>{4, kSteps})) << "the others were skipped";
    });
    CheckState(&cluster.store, 4);
    CheckState(&cluster.store, kSteps);
  }
}

TEST(TaskExecutor, ALossThatIsNotFiniteStopsWithItsNameAndTheFirstTensor) {
  for (const bool stops : {false, true}) {
    JobSpec spec = MakeSpec();
    spec.set_stop_when_not_finite(stops);
    spec.mutable_results(2)->set_name("loss");
    nan_step = 5;
    Cluster cluster({{0, 1}, {2, 3}}, MakeExecutable(), spec);
    cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
    cluster.ForAll([](TaskExecutor&, TestListener& listener) { listener.WaitForEnd(); });
    nan_step = INT_MAX;
    const TestListener& listener = *cluster.listeners[0];
    EXPECT_EQ(listener.finished, !stops);
    if (!stops) continue;
    EXPECT_EQ(listener.failure.status.code(), absl::StatusCode::kOutOfRange);
    for (const char* words : {"step 5: found loss = nan", "that is not finite: w (on device 0)"}) {
      EXPECT_THAT(std::string(listener.failure.status.message()), HasSubstr(words));
    }
    EXPECT_EQ(listener.losses.size(), 5);
  }
}

TEST(TaskExecutor, AFullDiskCostsACheckpointButNotTheLastState) {
  JobSpec spec = MakeSpec();
  spec.mutable_checkpoint()->set_every_steps(4);
  Cluster cluster({{0, 1, 2, 3}}, MakeExecutable(), spec);
  cluster.store.failures = 1;
  cluster.tasks[0]->Lease(kSteps - 1);
  TestListener& listener = *cluster.listeners[0];
  while (cluster.tasks[0]->finished_steps() < kSteps - 1) std::this_thread::yield();
  {
    std::lock_guard<std::mutex> lock(cluster.store.mutex);
    cluster.store.failures = 1;  // The last state is tried again.
  }
  cluster.tasks[0]->Lease(kSteps);
  listener.WaitForEnd();
  EXPECT_TRUE(listener.finished) << listener.failure.status;
  EXPECT_FALSE(cluster.store.written.contains({4, "w"}));
  CheckState(&cluster.store, kSteps);
}

TEST(TaskExecutor, ATaskThatKeepsItsLastStateCanBeDropped) {
  Cluster cluster({{0, 1}, {2, 3}});
  cluster.store.failures = 1 << 20;
  cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
  for (auto& task : cluster.tasks) {
    while (task->finished_steps() < kSteps) std::this_thread::yield();
  }
  cluster.tasks[0].reset();
  cluster.tasks[1].reset();
  for (const auto& listener : cluster.listeners) EXPECT_FALSE(listener->finished) << "its state is not stored";
}

std::string FailureOf(const Executable& executable, const JobSpec& spec) {
  Cluster cluster({{0, 1}, {2, 3}}, executable, spec);
  cluster.ForAll([](TaskExecutor& task, TestListener&) { task.Lease(kSteps); });
  cluster.ForAll([](TaskExecutor&, TestListener& listener) { listener.WaitForEnd(); });
  return std::string(cluster.listeners[0]->failure.status.message());
}

TEST(TaskExecutor, ErrorsNameWhatIsInconsistent) {
  Executable executable = MakeExecutable();
  executable.mutable_steps(0)->mutable_kernel()->set_symbol("missing");
  EXPECT_THAT(FailureOf(executable, MakeSpec()), HasSubstr("no kernel missing"));
  executable = MakeExecutable();
  executable.mutable_parameters(1)->mutable_boxes(2)->set_hi(0, 9);
  EXPECT_THAT(FailureOf(executable, MakeSpec()),
              HasSubstr("parameter 1 (\"v\"): found box [4:9], expected one inside f32[7]"));
  executable = MakeExecutable();
  executable.mutable_parameters(1)->mutable_boxes()->RemoveLast();
  EXPECT_THAT(FailureOf(executable, MakeSpec()), HasSubstr("found 3 boxes, expected 1 or 4"));
  JobSpec spec = MakeSpec();
  spec.mutable_results(0)->set_kind(JobSpec::Result::METRIC);
  EXPECT_THAT(FailureOf(MakeExecutable(), spec), HasSubstr("result 0 (\"\"): found f32[4] for a loss or metric"));
  spec = MakeSpec();
  spec.mutable_parameters(0)->set_kind(JobSpec::Parameter::STEP);
  EXPECT_THAT(FailureOf(MakeExecutable(), spec), HasSubstr("that it feeds parameter 0"));
}

}  // namespace
}  // namespace xlad::runtime
