// Complete tasks for tests: four devices on one to three workers run a small program whose values can all be predicted.
#pragma once

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
#include "runtime/task_executor.h"
#include "runtime/testing/committer.h"
#include "runtime/testing/test_support.h"
#include "tensor/wire.h"

namespace xlad::runtime {

using collectives::AbortSignal;
using tensor::Array;
using tensor::ElementType;

constexpr int64_t kBatch = 8;
constexpr int64_t kBatches = 3;
constexpr int64_t kSteps = 20;

// The parameters are w, v, x and the step's number. w: f32[4] is replicated and not donated, so it exchanges its memory
// with its result. v: f32[7] is donated, and has two elements per device and one on the last device. x: f32[8] has the
// rows of a batch.
//   g = all_reduce(sum of own x + step);  w' = w + g;  v' = v + device + 1;  loss = w'[0]
enum Slot { kW, kV, kX, kStep, kGradient, kNewW, kLoss };

// The first step whose gradient has a NaN.
inline std::atomic<int> nan_step = INT_MAX;

inline TestKernels Kernels() {
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

inline void AddValue(EntryValue* value, std::vector<int64_t> global, std::vector<int64_t> local, BufferSlice slice) {
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

inline Executable MakeExecutable() {
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

// The same program for devices of another kind, with an additional allocation before the others.
inline Executable MakeOtherExecutable() {
  Executable e = MakeExecutable();
  e.mutable_target()->set_device_kind("other");
  Allocation* scratch = e.add_allocations();
  scratch->set_kind(Allocation::TEMPORARY);
  scratch->set_bytes(64);
  for (int a = e.allocations_size() - 1; a > 0; --a) e.mutable_allocations()->SwapElements(a, a - 1);
  const auto shift = [](BufferSlice* slice) { slice->set_allocation(slice->allocation() + 1); };
  for (EntryValue& value : *e.mutable_parameters()) shift(value.mutable_buffer());
  for (EntryValue& value : *e.mutable_results()) shift(value.mutable_buffer());
  e.clear_steps();
  *e.add_steps() = KernelOn(e, "gradient", {kX + 1, kStep + 1, kGradient + 1});
  e.clear_collectives();
  *e.add_steps() = AllReduceOn(&e, kDevices, 4, kGradient + 1);
  *e.mutable_collectives() = MakeExecutable().collectives();
  *e.add_steps() = KernelOn(e, "update", {kW + 1, kGradient + 1, kNewW + 1, kV + 1, kLoss + 1});
  return e;
}

inline JobSpec MakeSpec() {
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

inline Array Floats(const std::vector<float>& values) {
  return Array::FromValues<float>(ElementType::kF32, {std::ssize(values)}, values);
}

inline std::vector<float> Rows() {
  std::vector<float> rows;
  for (int i = 0; i < kBatch * kBatches; ++i) rows.push_back(static_cast<float>((i * 7) % 13));
  return rows;
}

// The state after `steps` steps, and the loss of each step.
struct Reference {
  std::vector<float> w = {1, 2, 3, 4};
  std::vector<float> v = {0, 0, 0, 0, 0, 0, 0};
  std::vector<float> losses;

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

// Reads after `fails` is set return the error of a disk.
class FailingReader final : public storage::RangeReader {
 public:
  explicit FailingReader(std::shared_ptr<storage::RangeReader> reader) : reader_(std::move(reader)) {}
  int64_t size() const override { return reader_->size(); }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    return fails ? absl::UnavailableError("Input/output error") : reader_->Read(offset, out);
  }
  std::atomic<bool> fails = false;

 private:
  const std::shared_ptr<storage::RangeReader> reader_;
};

// Keeps blobs in memory and assembles the written shards by step. The blobs "unopenable/B" and "unreadable/B" have the
// tensors of blob B, but an error of the disk is found when they are opened, or when a tensor is read.
class BlobsInMemory final : public TaskStore {
 public:
  absl::StatusOr<std::string> ReadBlob(const std::string& digest, AbortSignal* abort) override {
    while (IsBlocked(digest) && !abort->raised()) std::this_thread::yield();
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = blobs.find(digest);
    if (found == blobs.end()) return absl::NotFoundError(absl::StrCat("no blob ", digest));
    return found->second;
  }
  absl::StatusOr<std::shared_ptr<storage::TensorSource>> OpenTensors(const std::string& uri, AbortSignal*) override {
    tensor::NamedArrays arrays;
    const std::string blob = uri.substr(uri.find(':') + 1);
    const std::string folder = blob.substr(blob.find('/') + 1) + "/";
    if (blob.starts_with("unopenable/")) return absl::UnavailableError("Input/output error");
    for (const auto& [name, array] : tensors) {
      if (name.starts_with(folder)) arrays.emplace(name.substr(folder.size()), array);
    }
    const auto reader =
        std::make_shared<FailingReader>(storage::MakeMemoryReader(tensor::SerializeSafetensors(arrays)));
    absl::StatusOr<std::shared_ptr<storage::TensorSource>> source = storage::OpenSafetensors({reader}, {uri});
    reader->fails = blob.starts_with("unreadable/");  // The header has been read.
    return source;
  }
  absl::StatusOr<CheckpointShard> WriteShard(int64_t step, const std::string& name,
                                             const storage::SerializedShard& shard, AbortSignal* abort) override {
    ++calls;
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

  // Put, Block and IsBlocked may be called while tasks read.
  void Put(const std::string& digest, const std::string& bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    blobs[digest] = bytes;
  }
  void Block(const std::string& digest) {
    std::lock_guard<std::mutex> lock(mutex);
    blocked = digest;
  }
  bool IsBlocked(const std::string& digest) {
    std::lock_guard<std::mutex> lock(mutex);
    return digest == blocked;
  }

  std::map<std::string, std::string> blobs;
  std::string blocked;  // The blob that cannot be read until the read is aborted.
  std::map<std::string, Array> tensors;
  std::mutex mutex;
  std::map<std::pair<int64_t, std::string>, Array> written;
  int writes = 0;                     // The number of pieces of the last state that have been written.
  int failures = 0;                   // The number of upcoming writes that fail.
  std::atomic<int> calls = 0;         // The number of writes that have begun.
  std::atomic<bool> cut_off = false;  // While true, writes wait.
};

class TestListener final : public TaskListener {
 public:
  void OnReady() override {
    Note([&] { ready = true; });
  }
  void OnStep(const StepMetrics& metrics) override {
    Note([&] {
      losses.push_back(metrics.values(0));
      quick_code.push_back(metrics.quick_code());
    });
  }
  void OnShardWritten(int64_t step, const CheckpointShard& shard) override {
    // The shard is recorded first, because its commit may end the task on another thread.
    Note([&] { shards.push_back(step); });
    on_shard(step);
  }
  void OnShardFailed(int64_t, const absl::Status&, bool) override {
    Note([&] { ++shard_failures; });
  }
  void OnTrace(TaskTrace trace) override {
    Note([&] { traces.push_back(trace); });
  }
  void OnStopped(int64_t step) override {
    Note([&] { stopped_at = step; });
  }
  void OnFinished(const RunReport& of_devices) override {
    Note([&] {
      report = of_devices;
      finished = true;
    });
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
  void WaitForEnd() {
    WaitFor([&] { return finished; });
  }

  bool ready = false, finished = false;
  RunReport report;
  std::vector<TaskTrace> traces;
  int64_t stopped_at = -1, failed_at = -1;
  collectives::Failure failure;
  std::vector<float> losses;
  std::vector<bool> quick_code;  // For each step, whether it ran quickly compiled code.
  std::vector<int64_t> shards;  // The steps of the shards that were written.
  int shard_failures = 0;       // The number of writes that have failed.
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

class TaskCluster {
 public:
  // If `watched_by` is not null, it is the clock of the tasks, and their progress limit is 1000 ms. If `other` is not
  // null, devices 0 and 3 are of another kind, and `other` is their executable.
  explicit TaskCluster(const std::vector<std::vector<int>>& placement, const Executable& executable = MakeExecutable(),
                       const JobSpec& spec = MakeSpec(), const Clock* watched_by = nullptr,
                       const Executable* other = nullptr)
      : device_(Kernels()), other_device_(Kernels(), "other"), committer_(placement.size(), [this](int64_t step) {
          for (const auto& task : tasks) {
            if (task != nullptr) task->CheckpointIsCommitted(step);
          }
        }) {
    SetLogLevel(LogLevel::kWarn);
    const std::string bytes = executable.SerializeAsString();
    const std::string digest = Sha256Hex(bytes);
    store.Put(digest, bytes);
    const std::string other_bytes = other == nullptr ? "" : other->SerializeAsString();
    const std::string other_digest = Sha256Hex(other_bytes);
    store.Put(other_digest, other_bytes);
    store.tensors["state/w"] = Floats({1, 2, 3, 4});
    store.tensors["state/v"] = Floats({0, 0, 0, 0, 0, 0, 0});
    store.tensors["data/x"] = Floats(Rows());
    launch_.set_job_id("job-1");
    launch_.set_attempt(1);
    launch_.set_executable_digest(digest);
    *launch_.mutable_spec() = spec;
    launch_.mutable_spec()->set_data_blob(spec.data_blob().empty() ? "data" : spec.data_blob());
    launch_.set_state_blob(spec.state_blob().empty() ? "state" : spec.state_blob());
    if (spec.devices() > 0) launch_.set_shards_per_device(static_cast<int32_t>(kDevices / spec.devices()));
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
      for (int device : placement[w]) {
        launch.add_devices()->set_device(device);
        const bool is_other = other != nullptr && device % 3 == 0;
        if (is_other) launch.mutable_devices()->rbegin()->set_executable_digest(other_digest);
      }
      TaskEnvironment environment{
          {{&device_, &other_device_}, &RealClock(), &TcpNetwork(), data_planes_[w].get(), absl::StrCat("w", w), 0},
          &store,
          listeners[w].get()};
      if (watched_by != nullptr) {
        environment.clock = watched_by;
        environment.progress_limit_ms = 1000;
      }
      tasks.push_back(std::make_unique<TaskExecutor>(launch, environment));
    }
  }

  ~TaskCluster() { Drop(); }

  // Drops the tasks in their order. The committer is stopped first, because its thread uses the tasks.
  void Drop() {
    committer_.Stop();
    tasks.clear();
  }

  void ForAll(const std::function<void(TaskExecutor&, TestListener&)>& f) {
    for (size_t w = 0; w < tasks.size(); ++w) f(*tasks[w], *listeners[w]);
  }

  BlobsInMemory store;
  std::vector<std::unique_ptr<TestListener>> listeners;

 private:
  TestDevice device_, other_device_;
  Committer committer_;
  LaunchTask launch_;
  std::vector<std::unique_ptr<collectives::DataPlane>> data_planes_;

 public:
  std::vector<std::unique_ptr<TaskExecutor>> tasks;
};

inline void CheckState(BlobsInMemory* store, int64_t step) {
  const Reference reference(step);
  EXPECT_EQ(store->written.at({step, "w"}), Floats(reference.w));
  EXPECT_EQ(store->written.at({step, "v"}), Floats(reference.v));
}

}  // namespace xlad::runtime
