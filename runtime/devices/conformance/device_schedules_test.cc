// Schedules of collectives in device memory: every algorithm, without copies to or from the host, with the bits of the
// same schedules in host memory.
#include <atomic>
#include <cmath>
#include <cstring>
#include <latch>
#include <random>

#include "base/rounding.h"
#include "base/testing/case_count.h"
#include "collectives/exec/layout.h"
#include "collectives/exec/testing/everything.h"
#include "collectives/exec/testing/test_world.h"
#include "collectives/plan/mapped.h"
#include "collectives/plan/message_type.h"
#include "runtime/devices/conformance/device_conformance_fixture.h"

namespace xlad::runtime {
namespace {

using collectives::Buffers;
using collectives::Collective;
using collectives::CollectiveKind;
using collectives::CollectivePlan;
using collectives::CollectiveSet;
using collectives::CollectiveSpec;
using collectives::Communicator;
using collectives::Reduction;
using collectives::ReductionMode;
using collectives::TestWorld;
using tensor::ElementType;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A stream whose copies to and from the host are counted.
class CountingOps final : public collectives::DeviceOps {
 public:
  explicit CountingOps(Stream* stream) : stream_(*stream) {}
  bool host_can_access() const override { return stream_.host_can_access(); }
  absl::Status CopyToDevice(void* to, absl::Span<const std::byte> from) override {
    ++host_copies;
    return stream_.CopyToDevice(to, from);
  }
  absl::Status CopyToHost(absl::Span<std::byte> to, const void* from) override {
    ++host_copies;
    return stream_.CopyToHost(to, from);
  }
  absl::Status Synchronize() override { return stream_.Synchronize(); }
  absl::Status Copy(void* to, const void* from, int64_t bytes) override { return stream_.Copy(to, from, bytes); }
  absl::Status FillZero(void* to, int64_t bytes) override { return stream_.FillZero(to, bytes); }
  absl::StatusOr<std::unique_ptr<Event>> Record() override {
    if (!records) return absl::InternalError("no event can be recorded");
    return stream_.Record();
  }
  absl::Status WaitFor(const Event& event) override { return stream_.WaitFor(event); }
  std::string memory_name() const override { return stream_.memory_name(); }
  absl::StatusOr<std::shared_ptr<std::byte>> AllocateDevice(int64_t bytes) override {
    return stream_.AllocateDevice(bytes);
  }
  bool CanReduce(const collectives::DeviceReduction& reduction) const override { return stream_.CanReduce(reduction); }
  absl::Status Reduce(const collectives::DeviceReduction& reduction, void* to, absl::Span<const void* const> sources,
                      int64_t count) override {
    ++reductions;
    return stream_.Reduce(reduction, to, sources, count);
  }

  std::string shared_memory_name() const override { return stream_.shared_memory_name() + other_version; }
  absl::StatusOr<SharedMemory> AllocateShared(int64_t bytes) override {
    if (!allocates_shared) return absl::ResourceExhaustedError("too little memory");
    XLAD_ASSIGN_OR_RETURN(SharedMemory memory, stream_.AllocateShared(bytes));
    shared.push_back(memory.address);
    return memory;
  }
  absl::StatusOr<std::shared_ptr<std::byte>> OpenShared(const std::string& handle) override {
    if (!opens_shared) return absl::InternalError("the memory cannot be mapped");
    XLAD_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> opened, stream_.OpenShared(handle));
    shared.push_back(opened);
    return opened;
  }

  int64_t host_copies = 0, reductions = 0;
  bool allocates_shared = true, opens_shared = true, records = true;
  std::vector<std::weak_ptr<std::byte>> shared;  // What was allocated or opened.
  std::string other_version;                     // Changes the name of the shared memory.

 private:
  Stream& stream_;
};

// One rank's stream, communicator and buffers.
struct RankState {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<CountingOps> ops;
  std::unique_ptr<collectives::Recorder> recorder;
  std::vector<std::unique_ptr<DeviceMemory>> memory;  // Blocks of many buffers, because every block is mapped.
  int64_t used = 0;                                   // In the last block.
  std::unique_ptr<Communicator> communicator;
  bool in_place = false;
};

constexpr int64_t kAlignment = 64, kBlockBytes = 1 << 20;

class DeviceSchedules : public DeviceConformance {
 protected:
  void SetUp() override {
    DeviceConformance::SetUp();
    if (!IsSkipped() && stream_->memory_name().empty()) GTEST_SKIP() << "the device does not run schedules";
  }

  // Divides n ranks among workers, each of which has `each` ranks. The devices of different workers share memory as
  // those of different processes do.
  static collectives::DevicesOfWorkers OnWorkers(int n, int each) {
    collectives::DevicesOfWorkers placement;
    for (int rank = 0; rank < n; ++rank) {
      if (rank % each == 0) placement.emplace_back();
      placement.back().push_back(rank);
    }
    return placement;
  }
  static collectives::DevicesOfWorkers InOneProcess(int n) { return OnWorkers(n, n); }

  // Random bits of finite numbers, so that sums depend on their order.
  static Buffers RandomInputs(const CollectiveSpec& spec, int index, int rank) {
    std::mt19937 random(static_cast<unsigned>(index * 100 + rank));
    Buffers inputs;
    const int64_t width = tensor::ByteWidth(spec.type);
    for (const int64_t count : collectives::InputCounts(spec, rank)) {
      inputs.emplace_back(count * width);
      for (int64_t at = 0; at < count; ++at) {
        const float real = std::ldexp(static_cast<float>(random() % 2001) - 1000, static_cast<int>(random() % 9));
        uint32_t bits = random();
        if (spec.type == ElementType::kF32) bits = std::bit_cast<uint32_t>(real);
        if (spec.type == ElementType::kBF16) bits = tensor::EncodeBf16(real);
        std::memcpy(inputs.back().data() + at * width, &bits, width);
      }
    }
    return inputs;
  }
  // Before a run, outputs have these contents, which some ranks keep.
  static Buffers Outputs(const CollectiveSpec& spec, int rank) {
    Buffers outputs;
    for (const int64_t count : collectives::OutputCounts(spec, rank)) {
      outputs.emplace_back(count * tensor::ByteWidth(spec.type), std::byte{0x5a});
    }
    return outputs;
  }

  // The outputs of all ranks, by collective and rank, of the same schedules on host memory.
  static std::vector<std::vector<Buffers>> OnHost(const CollectiveSet& set) {
    TestWorld world(InOneProcess(set.num_devices));
    std::vector<std::vector<Buffers>> results(set.collectives.size(), std::vector<Buffers>(set.num_devices));
    const auto statuses = world.RunCommunicators({&set}, [&](int rank, Communicator& communicator) -> absl::Status {
      for (int index = 0; index < std::ssize(set.collectives); ++index) {
        const CollectiveSpec& spec = set.collectives[index].spec;
        const Buffers inputs = RandomInputs(spec, index, rank);
        Buffers& outputs = results[index][rank] = Outputs(spec, rank);
        std::vector<const std::byte*> from;
        std::vector<std::byte*> to;
        for (const auto& input : inputs) from.push_back(input.data());
        for (auto& output : outputs) to.push_back(output.data());
        XLAD_RETURN_IF_ERROR(communicator.Launch({index, from, to, 1, 0}));
      }
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
    return results;
  }

  absl::StatusOr<RankState> FormRank(TestWorld* world, const CollectiveSet& set, int rank, Device* device = nullptr) {
    RankState state;
    XLAD_ASSIGN_OR_RETURN(state.stream, (device != nullptr ? device : device_.get())->MakeStream());
    state.ops = std::make_unique<CountingOps>(state.stream.get());
    state.recorder = std::make_unique<collectives::Recorder>(rank, &set, &RealClock());
    XLAD_ASSIGN_OR_RETURN(state.communicator, world->worker_of(rank).fabric->MakeCommunicator(
                                                  {rank, &set, state.recorder.get(), 0, nullptr, state.ops.get()}));
    return state;
  }

  absl::StatusOr<std::byte*> UploadTo(RankState* state, const std::vector<std::byte>& bytes) {
    const int64_t needed = RoundUp(std::ssize(bytes), kAlignment);
    if (state->memory.empty() || state->used + needed > state->memory.back()->bytes()) {
      XLAD_ASSIGN_OR_RETURN(state->memory.emplace_back(), device_->Allocate(std::max(needed, kBlockBytes)));
      state->used = 0;
    }
    std::byte* const address = Add(state->memory.back()->address(), state->used);
    state->used += needed;
    XLAD_RETURN_IF_ERROR(state->stream->CopyToDevice(address, bytes));
    return address;
  }

  // Runs one collective and copies its outputs to `results`, which have their contents after Synchronize. If
  // `state->in_place` is set and the sizes are equal, the outputs are the inputs.
  absl::Status RunOne(const CollectiveSet& set, int index, int rank, RankState* state, Buffers* results) {
    const CollectiveSpec& spec = set.collectives[index].spec;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (const auto& values : RandomInputs(spec, index, rank)) {
      XLAD_ASSIGN_OR_RETURN(inputs.emplace_back(), UploadTo(state, values));
    }
    *results = Outputs(spec, rank);
    for (size_t i = 0; i < results->size(); ++i) {
      const bool shares = state->in_place && collectives::WritesOutputs(spec, rank) &&
                          collectives::InputCounts(spec, rank)[i] == collectives::OutputCounts(spec, rank)[i];
      outputs.push_back(const_cast<std::byte*>(inputs[i]));
      if (shares) continue;
      XLAD_ASSIGN_OR_RETURN(outputs.back(), UploadTo(state, (*results)[i]));
    }
    EXPECT_EQ(state->communicator->Medium(index), medium_) << set.collectives[index].ToString();
    XLAD_RETURN_IF_ERROR(state->communicator->Launch({index, inputs, outputs, /*step=*/1, /*iteration=*/0}));
    for (size_t i = 0; i < results->size(); ++i) {
      XLAD_RETURN_IF_ERROR(state->stream->CopyToHost(absl::MakeSpan((*results)[i]), outputs[i]));
    }
    return absl::OkStatus();
  }

  // Checks all outputs, and that no collective copied anything to or from the host.
  void CompareWithHost(const CollectiveSet& set, bool in_place = false) {
    CompareWithHost(set, InOneProcess(set.num_devices), in_place);
  }
  void CompareWithHost(const CollectiveSet& set, const collectives::DevicesOfWorkers& placement, bool in_place) {
    const int n = set.num_devices;
    const auto expected = OnHost(set);
    std::vector<std::vector<Buffers>> found(set.collectives.size(), std::vector<Buffers>(n));
    std::vector<absl::Status> statuses(n);
    std::atomic<int64_t> reductions = 0;
    TestWorld world(placement, slots_);
    world.Run([&](int rank) {
      statuses[rank] = [&]() -> absl::Status {
        XLAD_ASSIGN_OR_RETURN(RankState state, FormRank(&world, set, rank));
        state.in_place = in_place;
        for (int index = 0; index < std::ssize(set.collectives); ++index) {
          XLAD_RETURN_IF_ERROR(RunOne(set, index, rank, &state, &found[index][rank]));
        }
        XLAD_RETURN_IF_ERROR(state.stream->Synchronize());
        EXPECT_EQ(state.ops->host_copies, 0);
        reductions += state.ops->reductions;
        return absl::OkStatus();
      }();
      if (!statuses[rank].ok()) world.worker_of(rank).abort.Raise({statuses[rank], ""});
    });
    for (const absl::Status& status : statuses) ASSERT_TRUE(status.ok()) << status;
    EXPECT_GT(reductions, 0);
    for (size_t index = 0; index < set.collectives.size(); ++index) {
      const Collective& collective = set.collectives[index];
      for (int rank = 0; rank < n; ++rank) {
        EXPECT_TRUE(found[index][rank] == expected[index][rank])
            << collective.ToString() << " " << collective.plan.ToString() << ", rank " << rank;
      }
    }
  }

  // Collectives of all kinds over n ranks, with every algorithm that needs no windows. By default, each algorithm and
  // type has one of three sizes. Which one it is depends on the type and on n.
  static CollectiveSet Everything(int n, const std::vector<ElementType>& types, ReductionMode mode) {
    CollectiveSet set;
    set.num_devices = n;
    for (int kind = 1; kind <= collectives::kNumCollectiveKinds; ++kind) {
      for (size_t t = 0; t < types.size(); ++t) {
        int64_t turn = static_cast<int64_t>(t) + n;
        for (const std::vector<int64_t>& counts : {std::vector<int64_t>{13}, {5, 0, 7}, {301}}) {
          AddAlgorithms(SpecOf(static_cast<CollectiveKind>(kind), n, types[t], counts, mode), turn++, &set);
        }
      }
    }
    return set;
  }

  static CollectiveSpec SpecOf(CollectiveKind kind, int n, ElementType type, const std::vector<int64_t>& counts,
                               ReductionMode mode) {
    CollectiveSpec spec;
    spec.kind = kind;
    spec.type = type;
    spec.ranks = n;
    spec.counts = kind == CollectiveKind::kBarrier ? std::vector<int64_t>() : counts;
    spec.mode = mode;
    if (Reduces(kind)) spec.reduction = Reduction::kSum;
    for (int64_t& count : spec.counts) count *= InputHasParts(kind) ? n : 1;
    const bool has_pairs = kind == CollectiveKind::kCollectivePermute || kind == CollectiveKind::kSendRecv;
    for (int rank = 0; has_pairs && rank + 1 < n; ++rank) spec.pairs.push_back({rank, (rank + 2) % n});
    return spec;
  }

  static void AddAlgorithms(const CollectiveSpec& spec, int64_t turn, CollectiveSet* set) {
    if (!ValidateSpec(spec).ok()) return;
    for (const collectives::Algorithm& algorithm : collectives::Algorithms()) {
      if (!Applies(algorithm, spec) || algorithm.needs_windows || !TriesCase(turn++, 3)) continue;
      const bool splits = !spec.counts.empty() && spec.counts[0] % 13 == 0;
      const CollectivePlan plan{std::string(algorithm.name), splits ? 3 : 1, splits ? 2 : 1};
      if (MessageType(plan, spec) != spec.type) continue;  // These run in host memory.
      set->collectives.push_back(collectives::MakeCollective(spec, plan, spec.ranks));
    }
  }

  // An interpreter runs the code for the kind cuda, so its tests have fewer types.
  std::vector<ElementType> Types() const {
    if (GetParam().name == "cuda") return {ElementType::kF32};
    return {ElementType::kF32, ElementType::kBF16, ElementType::kS32};
  }

  std::string medium_ = "device memory";
  int slots_ = 4;
};

TEST_P(DeviceSchedules, EveryAlgorithmHasTheBitsOfTheHost) {
  for (int n = 2; n <= 8; ++n) CompareWithHost(Everything(n, Types(), ReductionMode::kRunToRun));
}

TEST_P(DeviceSchedules, FastAndCanonicalReductionsHaveTheBitsOfTheHost) {
  std::vector<int> counts = {3, 4, 5};
  if (AllCases()) counts.push_back(7);
  for (const int n : counts) {
    CompareWithHost(Everything(n, Types(), ReductionMode::kFast));
    CompareWithHost(Everything(n, Types(), ReductionMode::kCanonical));
  }
}

// By default, Everything chooses a different size for each of these numbers of ranks.
TEST_P(DeviceSchedules, RunInPlace) {
  for (const int n : {2, 3, 7}) CompareWithHost(Everything(n, {ElementType::kF32}, ReductionMode::kRunToRun), true);
}

// One all-reduce of 300 floats over n ranks.
CollectiveSet OneSum(int n, ElementType type = ElementType::kF32, const std::string& algorithm = "ring") {
  CollectiveSet set;
  set.num_devices = n;
  const CollectiveSpec spec{CollectiveKind::kAllReduce, Reduction::kSum, type, {300}, n, {}};
  set.collectives.push_back(collectives::MakeCollective(spec, {.algorithm = algorithm}, n));
  return set;
}

TEST_P(DeviceSchedules, EveryAlgorithmHasTheBitsOfTheHostInSharedMemory) {
  medium_ = "shared device memory";
  for (int n = 2; n <= 4; ++n) {
    CompareWithHost(Everything(n, Types(), ReductionMode::kRunToRun), OnWorkers(n, 1), /*in_place=*/n == 3);
  }
  slots_ = collectives::kMinDeviceSlots;
  CompareWithHost(Everything(4, {ElementType::kF32}, ReductionMode::kCanonical), OnWorkers(4, 2), /*in_place=*/false);
}

TEST_P(DeviceSchedules, AnAbortEndsTheWaitForARank) {
  const CollectiveSet set = OneSum(4);
  for (const int each : {4, 2, 1}) {
    medium_ = each == 4 ? "device memory" : "shared device memory";
    TestWorld world(OnWorkers(4, each));
    std::vector<absl::Status> statuses(4);
    std::latch formed(4);  // Without it, the failure could reach ranks that still form their communicators.
    world.Run([&](int rank) {
      auto state = FormRank(&world, set, rank);
      formed.arrive_and_wait();
      ASSERT_TRUE(state.ok()) << state.status();
      if (rank == 2) {  // This rank fails before the collective.
        statuses[rank] = absl::InternalError("rank 2 has failed");
        world.worker_of(rank).abort.Raise({statuses[rank], ""});
        return;
      }
      Buffers results;
      statuses[rank] = RunOne(set, 0, rank, &*state, &results);
      state->stream->Synchronize().IgnoreError();
    });
    for (const absl::Status& status : statuses) EXPECT_THAT(status.message(), HasSubstr("rank 2 has failed")) << each;
  }
}

// The receiver does not answer the message, so the sender waits for the signal.
TEST_P(DeviceSchedules, AReceiverThatCannotRecordAnEventEndsTheWaitOfTheSender) {
  medium_ = "shared device memory";
  CollectiveSet set;
  set.num_devices = 2;
  set.collectives.push_back(collectives::MakeCollective(
      SpecOf(CollectiveKind::kBroadcast, 2, ElementType::kF32, {300}, ReductionMode::kRunToRun),
      {.algorithm = "direct"}, 2));
  TestWorld world(OnWorkers(2, 1));
  std::vector<absl::Status> statuses(2);
  std::latch formed(2);
  world.Run([&](int rank) {
    auto state = FormRank(&world, set, rank);
    formed.arrive_and_wait();
    ASSERT_TRUE(state.ok()) << state.status();
    state->ops->records = rank != 1;
    Buffers results;
    statuses[rank] = RunOne(set, 0, rank, &*state, &results);
    state->stream->Synchronize().IgnoreError();
  });
  for (const absl::Status& status : statuses) EXPECT_THAT(status.message(), HasSubstr("no event can be recorded"));
}

TEST_P(DeviceSchedules, RanksThatDisagreeAreNamed) {
  const CollectiveSet set = OneSum(2);
  for (const int each : {2, 1}) {
    TestWorld world(OnWorkers(2, each));
    std::vector<absl::Status> statuses(2);
    std::latch formed(2);
    world.Run([&](int rank) {
      auto state = FormRank(&world, set, rank);
      formed.arrive_and_wait();
      ASSERT_TRUE(state.ok()) << state.status();
      const auto buffer = UploadTo(&*state, std::vector<std::byte>(1200));
      ASSERT_TRUE(buffer.ok());
      const std::vector<const std::byte*> input = {*buffer};
      const std::vector<std::byte*> output = {*buffer};
      statuses[rank] = state->communicator->Launch({0, input, output, /*step=*/7 + rank, 0});
    });
    // One rank finds the difference. The other one finds it too, or ends with the error of the first.
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr("ranks disagree: here "), HasSubstr("step 7"), HasSubstr("step 8")));
    }
  }
}

TEST_P(DeviceSchedules, OtherCollectivesAreStagedAndSayWhy) {
  const auto other = MakeDevice();
  const auto media = [&](const CollectiveSet& collectives, Device* of_rank_1) {
    TestWorld world(InOneProcess(2));
    std::vector<std::string> found(2);
    world.Run([&](int rank) {
      const auto state = FormRank(&world, collectives, rank, rank == 1 ? of_rank_1 : device_.get());
      found[rank] = state.ok() ? std::string(state->communicator->Medium(0)) : state.status().ToString();
    });
    return found;
  };
  const auto staged = [](absl::string_view why) {
    return std::vector<std::string>(2, absl::StrCat("host memory (staged: ", why, ")"));
  };
  const CollectiveSet set = OneSum(2);
  const std::vector<std::string> in_device_memory(2, "device memory");
  EXPECT_EQ(media(set, device_.get()), in_device_memory);
  EXPECT_EQ(media(OneSum(2, ElementType::kS4), device_.get()), staged("there is no kernel for this reduction of s4"));
  EXPECT_EQ(media(OneSum(2, ElementType::kF32, collectives::kMappedOneShot), device_.get()),
            staged("the plan requires mapped memory"));
  // The devices of a GPU have one memory. Every simulated device has its own, which it can share.
  const std::vector<std::string> shared(2, "shared device memory");
  EXPECT_EQ(media(set, other.get()), GetParam().name == "cuda" ? in_device_memory : shared);
}

// Rank 1 cannot share memory. Ranks 0 and 2 could share memory, but all ranks of a group run a collective in one way.
TEST_P(DeviceSchedules, AllRanksAreStagedIfOneCannotShareMemory) {
  const CollectiveSet set = OneSum(3);
  for (const bool allocates : {true, false}) {
    TestWorld world(OnWorkers(3, 1));
    std::vector<std::string> media(3);
    world.Run([&](int rank) {
      const std::unique_ptr<Stream> stream = MakeStream();
      CountingOps ops(stream.get());
      ops.allocates_shared = rank != 1 || allocates;
      ops.opens_shared = rank != 1;
      collectives::Recorder recorder(rank, &set, &RealClock());
      const auto formed = world.worker_of(rank).fabric->MakeCommunicator({rank, &set, &recorder, 0, nullptr, &ops});
      ASSERT_TRUE(formed.ok()) << formed.status();
      media[rank] = (*formed)->Medium(0);
    });
    const std::string why = allocates ? "device 1 cannot open the memory of device 0: the memory cannot be mapped"
                                      : "device 1: too little memory";
    EXPECT_EQ(media, std::vector<std::string>(3, absl::StrCat("host memory (staged: ", why, ")")));
  }
}

TEST_P(DeviceSchedules, SharedMemoryThatNoCollectiveUsesIsFreed) {
  CollectiveSet set = OneSum(4);
  set.collectives.push_back(collectives::MakeCollective(OneSum(2).collectives[0].spec, {.algorithm = "ring"}, 4));
  TestWorld world(OnWorkers(4, 2));
  world.Run([&](int rank) {
    const std::unique_ptr<Stream> stream = MakeStream();
    CountingOps ops(stream.get());
    ops.opens_shared = rank != 1;
    collectives::Recorder recorder(rank, &set, &RealClock());
    const auto formed = world.worker_of(rank).fabric->MakeCommunicator({rank, &set, &recorder, 0, nullptr, &ops});
    ASSERT_TRUE(formed.ok()) << formed.status();
    EXPECT_THAT((*formed)->Medium(0), HasSubstr("device 1 cannot open the memory of device 2"));
    EXPECT_EQ((*formed)->Medium(1), "device memory");
    EXPECT_FALSE(ops.shared.empty());
    for (const auto& memory : ops.shared) EXPECT_TRUE(memory.expired());
  });
}

// No rank waits for the memory of another one.
TEST_P(DeviceSchedules, RanksWhoseSharedMemoryHasOtherNamesAreStaged) {
  const CollectiveSet set = OneSum(2);
  TestWorld world(OnWorkers(2, 1));
  world.Run([&](int rank) {
    const std::unique_ptr<Stream> stream = MakeStream();
    CountingOps ops(stream.get());
    ops.allocates_shared = false;
    if (rank == 1) ops.other_version = " of another version";
    collectives::Recorder recorder(rank, &set, &RealClock());
    const auto formed = world.worker_of(rank).fabric->MakeCommunicator({rank, &set, &recorder, 0, nullptr, &ops});
    ASSERT_TRUE(formed.ok()) << formed.status();
    EXPECT_EQ((*formed)->Medium(0), "host memory (staged: the devices of the group do not share one memory)");
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceSchedules, ::testing::ValuesIn(AllKinds()), KindName);

}  // namespace
}  // namespace xlad::runtime
