// Complete sessions with four devices on one to three workers. The program's values can all be predicted.
#include "runtime/session_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <numeric>
#include <random>
#include <set>

#include "base/hash.h"
#include "base/log.h"
#include "collectives/exec/transports/tcp/data_plane.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/spec_proto.h"
#include "runtime/testing/test_support.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using collectives::AbortSignal;
using tensor::Array;
using tensor::ElementType;
using ::testing::HasSubstr;

// x: f32[7], two elements per device and one on the last; s: f32[], replicated.
//   total = all_reduce(sum of own x);  x' = x + total;  s' = s + total
// If `whole`, x is replicated and the total is four times its sum.
Executable MakeSessionExecutable(bool whole) {
  Executable e;
  e.set_name("session");
  e.add_mesh()->set_size(kDevices);
  const int64_t n = whole ? 7 : 2;
  for (const auto& [kind, bytes] : std::vector<std::pair<Allocation::Kind, int64_t>>{{Allocation::PARAMETER, 4 * n},
                                                                                     {Allocation::PARAMETER, 4},
                                                                                     {Allocation::TEMPORARY, 4},
                                                                                     {Allocation::RESULT, 4}}) {
    AddAllocation(&e, kind, bytes);
  }
  const auto add = [&](EntryValue* value, std::vector<int64_t> global, std::vector<int64_t> local, int allocation) {
    SetShape(value->mutable_global(), ElementType::kF32, global);
    SetShape(value->mutable_local(), ElementType::kF32, local);
    *value->mutable_buffer() = Whole(e, allocation);
    for (int64_t device = 0; device < (global == local ? 1 : kDevices); ++device) {
      tensor::Box box = tensor::FullBox({ElementType::kF32, global});
      if (global != local) box = {{device * 2}, {std::min<int64_t>(7, device * 2 + 2)}};
      tensor::BoxToWire(box, value->add_boxes());
    }
  };
  add(e.add_parameters(), {7}, {n}, 0);
  add(e.add_parameters(), {}, {}, 1);
  add(e.add_results(), {7}, {n}, 0);
  add(e.add_results(), {}, {}, 3);
  *e.add_steps() = KernelOn(e, whole ? "sum7" : "sum2", {0, 2});
  *e.add_steps() = AllReduceOn(&e, kDevices, 1, 2);
  *e.add_steps() = KernelOn(e, whole ? "add7" : "add2", {0, 1, 2, 3});
  return e;
}

TestKernels Kernels(std::atomic<bool>* fail) {
  TestKernels kernels;
  for (const int n : {2, 7}) {
    kernels[absl::StrCat("sum", n)] = [n, fail](absl::Span<void* const> b, int device) -> absl::Status {
      if (*fail && device == 2) return absl::InternalError("a kernel gives up");
      const float* x = static_cast<float*>(b[0]);
      *static_cast<float*>(b[1]) = 0;
      for (int i = 0; i < (n == 2 && device == 3 ? 1 : n); ++i) *static_cast<float*>(b[1]) += x[i];
      return absl::OkStatus();
    };
    kernels[absl::StrCat("add", n)] = [n](absl::Span<void* const> b, int) {
      for (int i = 0; i < n; ++i) static_cast<float*>(b[0])[i] += *static_cast<float*>(b[2]);
      *static_cast<float*>(b[3]) = *static_cast<float*>(b[1]) + *static_cast<float*>(b[2]);
      return absl::OkStatus();
    };
  }
  return kernels;
}

class MemoryStore final : public SessionStore {
 public:
  absl::StatusOr<std::string> ReadBlob(const std::string& digest, AbortSignal*) override {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = blobs.find(digest);
    if (found == blobs.end()) return absl::NotFoundError(absl::StrCat("no blob ", digest));
    return found->second;
  }
  absl::Status ReadArray(int64_t array, const tensor::Box& box, absl::Span<std::byte> out, AbortSignal*) override {
    const std::lock_guard<std::mutex> lock(mutex);
    const Array part = tensor::ExtractBox(arrays.at(array), box, box.sizes());
    std::memcpy(out.data(), part.bytes().data(), out.size());
    ++reads;
    return absl::OkStatus();
  }
  absl::Status WriteArray(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes,
                          AbortSignal*) override {
    const std::lock_guard<std::mutex> lock(mutex);
    const Array part(tensor::Shape{ElementType::kF32, box.sizes()}, {bytes.begin(), bytes.end()});
    tensor::InsertBox(part, box, &arrays.at(array));
    ++writes;
    return absl::OkStatus();
  }
  void PutBlob(const std::string& digest, const std::string& bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    blobs[digest] = bytes;
  }
  void Put(int64_t array, Array value) {
    const std::lock_guard<std::mutex> lock(mutex);
    arrays[array] = std::move(value);
  }
  Array Get(int64_t array) {
    const std::lock_guard<std::mutex> lock(mutex);
    return arrays.at(array);
  }
  std::mutex mutex;
  std::map<std::string, std::string> blobs;
  std::map<int64_t, Array> arrays;
  int reads = 0, writes = 0;
};

class TestSessionListener final : public SessionListener {
 public:
  void OnReady() override {}
  void OnDone(int64_t sequence) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_EQ(sequence, ++done_);
    changed_.notify_all();
  }
  void OnFailed(int64_t, const collectives::Failure& failure) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = failure.status;
    changed_.notify_all();
  }
  absl::Status Wait(int64_t sequence) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= sequence || !failure_.ok(); });
    return failure_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t done_ = 0;
  absl::Status failure_;
};

class World {
 public:
  explicit World(const std::vector<std::vector<int>>& placement) : device_(Kernels(&fail)) {
    SetLogLevel(LogLevel::kError);
    launch_.set_job_id("session");
    launch_.set_attempt(1);
    for (size_t w = 0; w < placement.size(); ++w) {
      data_planes_.push_back(*collectives::DataPlane::Listen(&TcpNetwork(), "127.0.0.1:0"));
      Peer* peer = launch_.add_peers();
      peer->set_worker_id(absl::StrCat("w", w));
      peer->set_data_address(data_planes_[w]->address());
      for (int device : placement[w]) peer->add_devices(device);
      listeners_.push_back(std::make_unique<TestSessionListener>());
    }
    for (size_t w = 0; w < placement.size(); ++w) {
      LaunchTask launch = launch_;
      for (int device : placement[w]) launch.add_devices()->set_device(device);
      const SessionEnvironment environment{
          {{&device_}, &RealClock(), &TcpNetwork(), data_planes_[w].get(), absl::StrCat("w", w), 0},
          &store,
          listeners_[w].get()};
      sessions_.push_back(std::make_unique<SessionExecutor>(launch, environment));
    }
  }
  ~World() { SetLogLevel(LogLevel::kInfo); }

  void Send(SessionCommand command) {
    command.set_sequence(++sequence_);
    for (const auto& session : sessions_) session->Command(command);
  }
  absl::Status WaitForAll() {
    absl::Status status;
    for (const auto& listener : listeners_) status.Update(listener->Wait(sequence_));
    return status;
  }
  // The layouts are 0: split, 1: replicated, 2: scalar. The program has an unused allocation of `unused_bytes`.
  void Load(int64_t program, bool whole, int64_t unused_bytes = 0) {
    Executable executable = MakeSessionExecutable(whole);
    AddAllocation(&executable, Allocation::TEMPORARY, unused_bytes);
    const std::string bytes = executable.SerializeAsString(), digest = Sha256Hex(bytes);
    store.PutBlob(digest, bytes);
    SessionCommand command;
    command.mutable_load()->set_program(program);
    command.mutable_load()->set_executable_digest(digest);
    for (auto* layouts :
         {command.mutable_load()->mutable_parameter_layouts(), command.mutable_load()->mutable_result_layouts()}) {
      layouts->Add(whole ? 1 : 0);
      layouts->Add(2);
    }
    const collectives::CollectiveSpec spec = *collectives::SpecFromProto(executable.collectives(0), kDevices);
    const collectives::CollectivePlan plan = *collectives::MakePlan(spec);
    *command.add_plans() = collectives::PlanToProto<CollectivePlanProto>(plan, 0);
    Send(command);
  }
  void Call(int64_t program, const std::vector<int64_t>& arguments, const std::vector<int64_t>& results,
            const std::vector<int64_t>& free = {}) {
    SessionCommand command;
    command.mutable_call()->set_program(program);
    command.mutable_call()->mutable_arguments()->Assign(arguments.begin(), arguments.end());
    command.mutable_call()->mutable_results()->Assign(results.begin(), results.end());
    command.mutable_free()->Assign(free.begin(), free.end());
    Send(command);
  }
  Array Fetch(int64_t array, int32_t layout) {
    store.Put(array, Array(tensor::Shape{ElementType::kF32, layout == 2 ? tensor::Dims{} : tensor::Dims{7}}));
    SessionCommand command;
    command.mutable_fetch()->set_array(array);
    command.mutable_fetch()->set_layout(layout);
    Send(command);
    EXPECT_TRUE(WaitForAll().ok());
    return store.Get(array);
  }

  MemoryStore store;
  std::atomic<bool> fail = false;

 private:
  TestDevice device_;
  LaunchTask launch_;
  int64_t sequence_ = 0;
  std::vector<std::unique_ptr<collectives::DataPlane>> data_planes_;
  std::vector<std::unique_ptr<TestSessionListener>> listeners_;

 public:
  std::vector<std::unique_ptr<SessionExecutor>> sessions_;
};

Array Vector(const std::vector<float>& values) {
  return Array::FromValues<float>(ElementType::kF32, {std::ssize(values)}, values);
}
Array Scalar(float value) { return Array::FromValues<float>(ElementType::kF32, {}, {value}); }

TEST(SessionExecutor, StateStaysOnTheWorkersAndResultsAreSent) {
  for (const auto& placement : kPlacements) {
    World world(placement);
    world.Load(1, /*whole=*/false);
    world.store.Put(1, Vector({1, 2, 3, 4, 5, 6, 7}));
    world.store.Put(2, Scalar(0.5));
    std::vector<float> x = {1, 2, 3, 4, 5, 6, 7};
    float s = 0.5;
    for (int64_t i = 0; i < 10; ++i) {
      world.Call(1, {1 + 2 * i, 2 + 2 * i}, {3 + 2 * i, 4 + 2 * i}, {1 + 2 * i, 2 + 2 * i});
      float total = 0;
      for (float value : x) total += value;
      for (float& value : x) value += total;
      s += total;
    }
    EXPECT_EQ(world.Fetch(21, 0), Vector(x));
    EXPECT_EQ(world.Fetch(22, 2), Scalar(s));
    EXPECT_EQ(world.store.writes, kDevices + 1) << "each box once";
    EXPECT_EQ(world.store.reads, kDevices + static_cast<int>(placement.size())) << "only the missing arrays";
  }
}

TEST(SessionExecutor, TwoProgramsShareArrays) {
  World world(kPlacements[1]);
  world.Load(1, /*whole=*/false);
  world.Load(2, /*whole=*/true);
  world.store.Put(1, Vector({1, 1, 1, 1, 1, 1, 1}));
  world.store.Put(2, Scalar(0));
  world.Call(1, {1, 2}, {3, 4});
  EXPECT_EQ(world.Fetch(3, 0), Vector({8, 8, 8, 8, 8, 8, 8}));
  world.Call(2, {3, 4}, {5, 6});  // In another layout, the shards are read from the store.
  EXPECT_EQ(world.Fetch(6, 2), Scalar(7 + 4 * 56));
  EXPECT_EQ(world.Fetch(5, 1), Vector(std::vector<float>(7, 8 + 4 * 56)));
  EXPECT_EQ(world.Fetch(2, 2), Scalar(0)) << "an argument that is not donated is unchanged";
}

// Results stay in the memory of their programs until the next call of the program. Clients must get the same values as
// if all results were copied to the host.
TEST(SessionExecutor, RandomCallsKeepEveryArray) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (int trial = 0; trial < 12; ++trial) {
    World world(kPlacements[static_cast<size_t>(trial) % kPlacements.size()]);
    world.Load(1, /*whole=*/false);
    world.Load(2, /*whole=*/false);
    std::map<int64_t, std::vector<double>> x;  // The contents of each array.
    std::map<int64_t, double> s;
    std::set<int64_t> fresh;  // Arrays that have been uploaded and not used yet, so that no worker has them.
    int64_t next = 1;
    const auto pick = [&](const auto& map) {
      return std::next(map.begin(), static_cast<int>(below(map.size())))->first;
    };
    for (int i = 0; i < 25; ++i) {
      ASSERT_TRUE(world.WaitForAll().ok());
      if (x.empty() || s.empty() || below(5) == 0) {
        fresh.insert({next, next + 1});
        x[next] = std::vector<double>(7, static_cast<double>(below(5)));
        world.store.Put(next, Vector(std::vector<float>(7, static_cast<float>(x[next][0]))));
        ++next;
        s[next] = 1;
        world.store.Put(next++, Scalar(1));
      }
      const int64_t of_x = pick(x), of_s = pick(s);
      std::vector<int64_t> free;
      std::vector<double> new_x = x[of_x];
      const double total = std::accumulate(new_x.begin(), new_x.end(), 0.0), new_s = s[of_s] + total;
      for (double& value : new_x) value += total;
      if (below(3) != 0) free.push_back(of_x);
      if (below(3) != 0) free.push_back(of_s);
      if (below(4) == 0 && pick(x) != of_x) free.push_back(pick(x));
      for (const int64_t array : free) x.erase(array), s.erase(array);
      world.Call(1 + static_cast<int64_t>(below(2)), {of_x, of_s}, {next, next + 1}, free);
      x[next++] = std::move(new_x);
      s[next++] = new_s;
      const int64_t seen = pick(x);
      if (below(3) != 0 || fresh.contains(seen)) continue;
      const Array found = world.Fetch(seen, 0);
      for (size_t e = 0; e < 7; ++e) EXPECT_FLOAT_EQ(found.values<float>()[e], static_cast<float>(x[seen][e]));
    }
    for (const auto& [array, value] : s) {
      if (fresh.contains(array)) continue;
      EXPECT_FLOAT_EQ(world.Fetch(array, 2).values<float>()[0], static_cast<float>(value));
    }
  }
}

TEST(SessionExecutor, AProgramThatNeedsTooMuchMemoryIsRefused) {
  World world({{0, 1, 2, 3}});
  world.Load(1, /*whole=*/false, int64_t{1} << 45);
  const absl::Status refused = world.WaitForAll();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  const std::string message(refused.message());
  EXPECT_THAT(message, HasSubstr("needs 141 TB for 4 devices of one worker, expected at most"));
  EXPECT_THAT(message, ::testing::EndsWith("; use smaller arrays or more machines"));
}

TEST(SessionExecutor, AFailureEndsTheSessionOnAllWorkers) {
  World world(kPlacements[1]);
  world.Load(1, false);
  world.store.Put(1, Vector({1, 2, 3, 4, 5, 6, 7}));
  world.store.Put(2, Scalar(0));
  ASSERT_TRUE(world.WaitForAll().ok());
  world.fail = true;
  world.Call(1, {1, 2}, {3, 4});
  EXPECT_THAT(std::string(world.WaitForAll().message()), HasSubstr("a kernel gives up"));
}

TEST(SessionExecutor, UnknownExecutablesAndProgramsAreErrors) {
  World unknown(kPlacements[0]);
  SessionCommand command;
  command.mutable_load()->set_program(1);
  command.mutable_load()->set_executable_digest("none");
  unknown.Send(command);
  EXPECT_THAT(std::string(unknown.WaitForAll().message()), HasSubstr("no blob none"));
  World uncalled(kPlacements[0]);
  uncalled.Call(3, {1, 2}, {3, 4});
  EXPECT_THAT(std::string(uncalled.WaitForAll().message()), HasSubstr("a call of program 3"));
}

TEST(SessionExecutor, CanBeDroppedAtAnyTime) {
  for (int commands = 0; commands < 6; ++commands) {
    World world(kPlacements[2]);
    world.store.Put(1, Vector({1, 2, 3, 4, 5, 6, 7}));
    world.store.Put(2, Scalar(0));
    if (commands > 0) world.Load(1, false);
    for (int64_t i = 1; i < commands; ++i) world.Call(1, {1, 2}, {1 + 2 * i, 2 + 2 * i});
    world.sessions_.clear();
  }
}

}  // namespace
}  // namespace xlad::runtime
