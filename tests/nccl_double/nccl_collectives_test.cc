// Collectives of GPUs by NCCL, with the test doubles of NCCL and of NVIDIA's driver: results, errors and aborts.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>

#include "collectives/exec/nccl/nccl_communicator.h"
#include "collectives/exec/testing/everything.h"
#include "collectives/exec/testing/test_world.h"
#include "collectives/plan/cost.h"
#include "runtime/devices/cuda/cuda_device.h"
#include "runtime/devices/cuda/driver.h"
#include "tests/nccl_double/scalar_definition.h"

namespace xlad::nccl_double {
namespace {

using collectives::Collective;
using collectives::CollectivePlan;
using collectives::CollectiveSet;
using collectives::Communicator;
using collectives::Recorder;
using collectives::ReductionMode;
using collectives::TestWorld;
using ::testing::AllOf;
using ::testing::HasSubstr;

const bool kAreLibrariesNamed =
    setenv("XLAD_CUDA_DRIVER", XLAD_CUDA_DRIVER_DOUBLE, 1) == 0 && setenv("XLAD_NCCL", XLAD_NCCL_DOUBLE, 1) == 0;

void Configure(const char* library_path, const char* function, const char* settings) {
  void* const library = dlopen(library_path, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  reinterpret_cast<void (*)(const char*)>(dlsym(library, function))(settings);
}

void ConfigureNccl(const char* settings) { Configure(XLAD_NCCL_DOUBLE, "xladNcclDoubleConfigure", settings); }

std::atomic<int> exports_of_memory = 0;

runtime::cuda::Result CountExport(runtime::cuda::IpcHandle* handle, runtime::cuda::DevicePointer address) {
  ++exports_of_memory;
  return (*runtime::cuda::TheDriver())->cuIpcGetMemHandle(handle, address);
}

struct Rank {
  runtime::Device* device = nullptr;
  runtime::Stream* stream = nullptr;
  Communicator* communicator = nullptr;
  int rank = 0;
};

// Ranks in one process, each with a worker of its own.
class NcclCollectivesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kAreLibrariesNamed);
    Configure(XLAD_CUDA_DRIVER_DOUBLE, "xladCudaDoubleConfigure", "devices=4");
    ConfigureNccl("");
  }
  void TearDown() override { ConfigureNccl(""); }

  using Body = std::function<absl::Status(const Rank&)>;

  // Runs `body` on each rank, with its communicator. `gpu_of` has the GPU of each rank.
  static std::vector<absl::Status> RunOn(TestWorld* world, const std::vector<int>& gpu_of, const CollectiveSet& set,
                                         const Body& body) {
    std::vector<absl::Status> statuses(gpu_of.size());
    world->Run([&](int rank) { statuses[rank] = RunRank(world, gpu_of[rank], set, rank, body); });
    return statuses;
  }
  static std::vector<absl::Status> Run(int n, const CollectiveSet& set, const Body& body) {
    std::vector<std::vector<int>> placement;
    std::vector<int> gpu_of;
    for (int rank = 0; rank < n; ++rank) {
      placement.push_back({rank});
      gpu_of.push_back(rank);
    }
    TestWorld world(placement);
    return RunOn(&world, gpu_of, set, body);
  }

  static absl::Status RunRank(TestWorld* world, int gpu, const CollectiveSet& set, int rank, const Body& body) {
    XLAD_ASSIGN_OR_RETURN(const runtime::cuda::Driver* const driver, runtime::cuda::TheDriver());
    static const runtime::cuda::Driver counting = [driver] {
      runtime::cuda::Driver made = *driver;
      made.cuIpcGetMemHandle = CountExport;
      return made;
    }();
    XLAD_ASSIGN_OR_RETURN(const auto device, runtime::MakeCudaDevice(&counting, gpu));
    XLAD_ASSIGN_OR_RETURN(const auto stream, device->MakeStream());
    Recorder recorder(rank, &set, &RealClock());
    XLAD_ASSIGN_OR_RETURN(const auto communicator, world->worker_of(rank).fabric->MakeCommunicator(
                                                       {rank, &set, &recorder, 0, nullptr, stream.get()}));
    return body({device.get(), stream.get(), communicator.get(), rank});
  }
};

CollectiveSet SetOf(const std::vector<CollectiveSpec>& specs, const std::string& engine = "nccl") {
  CollectiveSet set;
  set.num_devices = specs[0].ranks;
  for (const CollectiveSpec& spec : specs) {
    CollectivePlan plan = *collectives::ChoosePlan(spec, {});
    plan.engine = engine;
    set.collectives.push_back(collectives::MakeCollective(spec, plan, spec.ranks));
  }
  return set;
}

CollectiveSpec SpecOf(CollectiveKind kind, int n, ElementType type, Reduction reduction,
                      const std::vector<int64_t>& counts) {
  CollectiveSpec spec;
  spec.kind = kind;
  spec.type = type;
  spec.ranks = n;
  spec.counts = counts;
  spec.mode = ReductionMode::kFast;
  if (Reduces(kind)) spec.reduction = reduction;
  if (InputHasParts(kind)) {
    for (int64_t& count : spec.counts) count *= n;
  }
  if (HasRoot(kind)) spec.root = n - 1;
  if (kind == CollectiveKind::kCollectivePermute || kind == CollectiveKind::kSendRecv) {
    for (int rank = 0; rank + 1 < n; ++rank) spec.pairs.push_back({rank, (rank + 2) % n});
    if (n == 1) spec.pairs.push_back({0, 0});
  }
  return spec;
}

// Like SpecOf, but with parts of different sizes.
CollectiveSpec UnevenSpecOf(CollectiveKind kind, int n, ElementType type) {
  CollectiveSpec spec = SpecOf(kind, n, type, Reduction::kSum, {0});
  spec.sizes.resize(static_cast<size_t>(kind == CollectiveKind::kAllToAll ? n * n : n));
  for (size_t i = 0; i < spec.sizes.size(); ++i) spec.sizes[i] = static_cast<int64_t>(i * 7 % 5);
  spec.counts = {std::accumulate(spec.sizes.begin(), spec.sizes.end(), int64_t{0})};
  return spec;
}

std::vector<CollectiveSpec> AllSpecs(int n) {
  std::vector<CollectiveSpec> specs;
  for (const auto kind : {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kReduce}) {
    for (const auto type :
         {ElementType::kF64, ElementType::kF32, ElementType::kF16, ElementType::kBF16, ElementType::kS8,
          ElementType::kU8, ElementType::kS32, ElementType::kU32, ElementType::kS64, ElementType::kU64}) {
      for (const auto reduction :
           {Reduction::kSum, Reduction::kProduct, Reduction::kMax, Reduction::kMin, Reduction::kAverage}) {
        specs.push_back(SpecOf(kind, n, type, reduction, {5, 0, 7}));
      }
      specs.push_back(SpecOf(kind, n, type, Reduction::kSum, {0}));
      specs.push_back(SpecOf(kind, n, type, Reduction::kSum, {1}));
      if (kind == CollectiveKind::kReduceScatter) specs.push_back(UnevenSpecOf(kind, n, type));
    }
  }
  for (const auto kind :
       {CollectiveKind::kAllGather, CollectiveKind::kAllToAll, CollectiveKind::kCollectivePermute,
        CollectiveKind::kSendRecv, CollectiveKind::kBroadcast, CollectiveKind::kGather, CollectiveKind::kScatter}) {
    for (const auto type : {ElementType::kF32, ElementType::kU16, ElementType::kPred, ElementType::kC128}) {
      for (const std::vector<int64_t>& counts : std::vector<std::vector<int64_t>>{{0}, {1}, {5, 0, 7}}) {
        specs.push_back(SpecOf(kind, n, type, Reduction::kNone, counts));
      }
      const bool has_parts = InputHasParts(kind) || OutputHasParts(kind);
      if (has_parts) specs.push_back(UnevenSpecOf(kind, n, type));
    }
  }
  // Together, these messages are larger than the buffers of a socket.
  for (const auto kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kAllToAll}) {
    specs.push_back(SpecOf(kind, n, ElementType::kS32, Reduction::kSum, {20'011}));
  }
  return specs;
}

// The place of the outputs relative to the inputs.
enum class Place { kApart, kInPlace, kSameAddress };

// Launches a collective on new device memory and compares its outputs with the definition.
absl::Status CheckResult(const CollectiveSet& set, int index, Place place, const Rank& on) {
  const Collective& collective = set.collectives[index];
  const int rank = on.rank;
  const CollectiveSpec& spec = collective.spec;
  const int64_t width = tensor::ByteWidth(spec.type);
  const std::vector<int64_t> in_counts = InputCounts(spec, rank), out_counts = OutputCounts(spec, rank);
  std::vector<std::unique_ptr<runtime::DeviceMemory>> memories;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  constexpr double kBefore = 3;
  for (size_t i = 0; i < in_counts.size(); ++i) {
    const int64_t in_bytes = in_counts[i] * width, out_bytes = out_counts[i] * width;
    int64_t in_at = 0, out_at = 0, bytes = std::max(in_bytes, out_bytes);
    if (place == Place::kApart) {
      out_at = in_bytes;
      bytes = in_bytes + out_bytes;
    } else if (place == Place::kInPlace) {
      const collectives::InPlaceOffsets offsets = InPlaceOffsetsOf(spec, rank);
      in_at = offsets.output * width;
      out_at = offsets.input * width;
    }
    XLAD_ASSIGN_OR_RETURN(memories.emplace_back(), on.device->Allocate(bytes));
    auto* const memory = static_cast<std::byte*>(memories.back()->address());
    const Bytes before = Encode(spec.type, Values(static_cast<size_t>(out_counts[i]), kBefore));
    XLAD_RETURN_IF_ERROR(on.stream->CopyToDevice(memory + out_at, before));
    XLAD_RETURN_IF_ERROR(on.stream->CopyToDevice(memory + in_at, Encode(spec.type, InputOf(spec, rank, i))));
    inputs.push_back(memory + in_at);
    outputs.push_back(memory + out_at);
  }
  XLAD_RETURN_IF_ERROR(on.communicator->Launch({index, inputs, outputs, 7, 11}));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Values before(static_cast<size_t>(out_counts[i]), kBefore);
    const Bytes expected = Encode(spec.type, OutputOf(spec, rank, i, before));
    Bytes found(expected.size());
    XLAD_RETURN_IF_ERROR(on.stream->CopyToHost(absl::MakeSpan(found), outputs[i]));
    XLAD_RETURN_IF_ERROR(on.stream->Synchronize());
    EXPECT_EQ(found, expected) << collective.ToString() << ", rank " << rank << ", operand " << i << ", place "
                               << static_cast<int>(place);
  }
  return absl::OkStatus();
}

TEST_F(NcclCollectivesTest, ResultsAreThoseOfTheDefinition) {
  for (int n = 1; n <= 4; ++n) {
    const CollectiveSet set = SetOf(AllSpecs(n));
    const auto statuses = Run(n, set, [&](const Rank& r) -> absl::Status {
      for (int i = 0; i < std::ssize(set.collectives); ++i) {
        const CollectiveSpec& spec = set.collectives[i].spec;
        XLAD_RETURN_IF_ERROR(CheckResult(set, i, Place::kApart, r));
        // A rank that receives nothing keeps its output, so the output cannot share memory with the input.
        if (spec.kind == CollectiveKind::kSendRecv) continue;
        const bool in_place = InPlaceOffsetsOf(spec, r.rank).valid && spec.counts.size() == 1;
        XLAD_RETURN_IF_ERROR(CheckResult(set, i, in_place ? Place::kInPlace : Place::kSameAddress, r));
      }
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(NcclCollectivesTest, StartedCollectivesMayBeWaitedForInAnyOrderButOnce) {
  const CollectiveSpec spec = SpecOf(CollectiveKind::kAllReduce, 2, ElementType::kF32, Reduction::kSum, {4});
  const CollectiveSet set = SetOf({spec, spec});
  const auto statuses = Run(2, set, [&](const Rank& r) -> absl::Status {
    XLAD_ASSIGN_OR_RETURN(const auto memory, r.device->Allocate(64));
    auto* const base = static_cast<std::byte*>(memory->address());
    const std::byte* const inputs[] = {base, base + 16};
    std::byte* const outputs[] = {base + 32, base + 48};
    const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8};
    XLAD_RETURN_IF_ERROR(
        r.stream->CopyToDevice(base, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()), 32)));
    XLAD_ASSIGN_OR_RETURN(const int64_t first, r.communicator->Start({0, {&inputs[0], 1}, {&outputs[0], 1}, 1, 0}));
    XLAD_ASSIGN_OR_RETURN(const int64_t second, r.communicator->Start({1, {&inputs[1], 1}, {&outputs[1], 1}, 1, 0}));
    XLAD_RETURN_IF_ERROR(r.communicator->Wait(second));
    XLAD_RETURN_IF_ERROR(r.communicator->Wait(first));
    EXPECT_THAT(std::string(r.communicator->Wait(first).message()), HasSubstr("a Start that has not been waited for"));
    std::vector<float> found(8);
    XLAD_RETURN_IF_ERROR(
        r.stream->CopyToHost(absl::MakeSpan(reinterpret_cast<std::byte*>(found.data()), 32), base + 32));
    XLAD_RETURN_IF_ERROR(r.stream->Synchronize());
    EXPECT_EQ(found, std::vector<float>({2, 4, 6, 8, 10, 12, 14, 16}));
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// If two ranks share a GPU, their collectives are staged. A plan that requires NCCL is an error that says why.
TEST_F(NcclCollectivesTest, RanksThatShareAGpuDoNotUseNccl) {
  const CollectiveSpec spec = SpecOf(CollectiveKind::kAllReduce, 2, ElementType::kF32, Reduction::kSum, {5});
  for (const std::string engine : {"", "nccl"}) {
    const CollectiveSet set = SetOf({spec}, engine);
    TestWorld world({{0}, {1}});
    ConfigureNccl("fail=ncclGetUniqueId:3");  // NCCL must not be called.
    const auto statuses =
        RunOn(&world, {0, 0}, set, [&](const Rank& r) { return CheckResult(set, 0, Place::kApart, r); });
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.ok(), engine.empty()) << status;
      if (!engine.empty()) EXPECT_THAT(std::string(status.message()), HasSubstr("devices 0 and 1 share a GPU"));
    }
  }
}

// Only the mode fast allows the order of reduction that NCCL has.
TEST_F(NcclCollectivesTest, OtherModesKeepTheirOrder) {
  CollectiveSpec spec = SpecOf(CollectiveKind::kAllReduce, 2, ElementType::kF32, Reduction::kSum, {5});
  spec.mode = ReductionMode::kRunToRun;
  const auto refused = Run(2, SetOf({spec}), [](const Rank&) { return absl::OkStatus(); });
  EXPECT_THAT(std::string(refused[0].message()), HasSubstr("which only the mode fast allows"));
  ConfigureNccl("fail=ncclAllReduce:3");  // NCCL must not be called.
  const CollectiveSet set = SetOf({spec}, "");
  for (const absl::Status& status : Run(2, set, [&](const Rank& r) { return CheckResult(set, 0, Place::kApart, r); })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Shared memory is as large as the largest collective, so it is not allocated for collectives that NCCL runs.
TEST_F(NcclCollectivesTest, NoMemoryIsSharedForCollectivesOfNccl) {
  CollectiveSpec spec = SpecOf(CollectiveKind::kAllReduce, 2, ElementType::kF32, Reduction::kSum, {5});
  for (const bool by_nccl : {true, false}) {
    spec.mode = by_nccl ? ReductionMode::kFast : ReductionMode::kRunToRun;
    CollectiveSet set;
    set.num_devices = 2;
    set.collectives.push_back(collectives::MakeCollective(spec, {.algorithm = "ring"}, 2));
    exports_of_memory = 0;
    TestWorld world({{0}, {1}});
    // GPUs of one process do not share memory, so the ranks that do are on one GPU.
    const auto statuses = RunOn(&world, {0, by_nccl ? 1 : 0}, set, [&](const Rank& r) {
      EXPECT_EQ(r.communicator->Medium(0), by_nccl ? "NCCL" : "shared device memory");
      return CheckResult(set, 0, Place::kApart, r);
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(exports_of_memory, by_nccl ? 0 : 2);
  }
}

// The failure of a function that creates a communicator or runs an operation becomes an error on all ranks, and no rank
// waits forever.
TEST_F(NcclCollectivesTest, ErrorsOfFunctionsEndAllRanks) {
  const CollectiveSet set = SetOf({SpecOf(CollectiveKind::kAllReduce, 3, ElementType::kF32, Reduction::kSum, {5})});
  for (const std::string function : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError",
                                     "ncclGroupStart", "ncclGroupEnd", "ncclAllReduce"}) {
    for (const int calls : {0, 1, 5}) {
      ConfigureNccl(absl::StrCat("fail=", function, ":3:", calls).c_str());
      const auto statuses = Run(3, set, [&](const Rank& r) -> absl::Status {
        for (int step = 0; step < 9; ++step) {
          XLAD_RETURN_IF_ERROR(CheckResult(set, 0, Place::kApart, r));
        }
        return absl::OkStatus();
      });
      // There is only one call of the first function, and one of the second on each rank.
      const bool is_late =
          (function == "ncclGetUniqueId" && calls > 0) || (function == "ncclCommInitRankConfig" && calls > 2);
      int named = 0;
      for (const absl::Status& status : statuses) {
        EXPECT_EQ(status.ok(), is_late) << function << " " << calls << " " << status;
        named += std::string(status.message()).find("internal error (3)") != std::string::npos ? 1 : 0;
      }
      if (!is_late) EXPECT_GE(named, 1) << function;
    }
  }
}

// An error that NCCL reports while an operation runs names the collective, the step and the device.
TEST_F(NcclCollectivesTest, AsynchronousErrorsNameTheOperation) {
  ConfigureNccl("stop=6:2");
  const CollectiveSet set = SetOf({SpecOf(CollectiveKind::kAllReduce, 2, ElementType::kF32, Reduction::kSum, {5})});
  const auto statuses = Run(2, set, [&](const Rank& r) -> absl::Status {
    for (int step = 0; step < 2; ++step) {
      XLAD_RETURN_IF_ERROR(CheckResult(set, 0, Place::kApart, r));
    }
    const absl::Status third = CheckResult(set, 0, Place::kApart, r);
    EXPECT_THAT(std::string(third.message()), HasSubstr("remote process exited"));
    // The peer may have reported its error before this rank starts the operation, or afterwards.
    const std::string place = absl::StrCat("step 7, device ", r.rank);
    EXPECT_THAT(std::string(third.message()), AllOf(HasSubstr("all_reduce"), HasSubstr(place)));
    const absl::Status fourth = CheckResult(set, 0, Place::kApart, r);
    EXPECT_THAT(std::string(fourth.message()),
                AllOf(HasSubstr("before "), HasSubstr(place), HasSubstr("remote process exited")));
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// If a peer never starts an operation, the ranks that wait in the operation end when the task is aborted, although NCCL
// reports nothing.
TEST_F(NcclCollectivesTest, AnAbortEndsOperationsThatWait) {
  ConfigureNccl("silent=1");
  const CollectiveSet set = SetOf({SpecOf(CollectiveKind::kAllReduce, 3, ElementType::kF32, Reduction::kSum, {5})});
  for (const bool started : {false, true}) {
    TestWorld world({{0}, {1}, {2}});
    const auto statuses = RunOn(&world, {0, 1, 2}, set, [&](const Rank& r) -> absl::Status {
      if (r.rank == 2) {
        world.worker_of(2).abort.Raise({absl::InternalError("the disk of worker 2 is full"), ""});
        return absl::OkStatus();
      }
      XLAD_ASSIGN_OR_RETURN(const auto memory, r.device->Allocate(64));
      const auto* const input = static_cast<const std::byte*>(memory->address());
      auto* const output = static_cast<std::byte*>(memory->address()) + 32;
      const collectives::CollectiveLaunch launch{0, {&input, 1}, {&output, 1}, 4, 0};
      if (!started) return r.communicator->Launch(launch);
      XLAD_ASSIGN_OR_RETURN(const int64_t number, r.communicator->Start(launch));
      return r.communicator->Wait(number);
    });
    for (int rank = 0; rank < 2; ++rank) {
      const std::string message(statuses[rank].message());
      EXPECT_THAT(message, HasSubstr("the disk of worker 2 is full"));
      EXPECT_THAT(message, HasSubstr(absl::StrCat("device ", rank)));
    }
  }
}

TEST_F(NcclCollectivesTest, LibrariesThatCannotBeUsedAreRefusedWithTheReason) {
  using collectives::nccl::LoadNccl;
  const auto reason = [](const std::string& name) { return std::string(LoadNccl(name).status().message()); };
  EXPECT_THAT(reason("libnccl_that_is_missing.so.2"), HasSubstr("cannot be loaded"));
  EXPECT_THAT(reason(XLAD_CUDA_DRIVER_DOUBLE), HasSubstr("does not report its version"));
  EXPECT_THAT(reason("off"), HasSubstr("turned off by XLAD_NCCL=off"));
  ConfigureNccl("version=21701");
  EXPECT_THAT(reason(XLAD_NCCL_DOUBLE), HasSubstr("has version 2.17.1, expected 2.18.0 or later"));
  ConfigureNccl("version=2804");
  EXPECT_THAT(reason(XLAD_NCCL_DOUBLE), HasSubstr("has version 2.8.4"));
  ConfigureNccl("fail=ncclGetVersion:1");
  EXPECT_THAT(reason(XLAD_NCCL_DOUBLE), HasSubstr("does not report its version"));
  ConfigureNccl("");
  const auto loaded = LoadNccl(XLAD_NCCL_DOUBLE);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->version, 22809);
}

}  // namespace
}  // namespace xlad::nccl_double
