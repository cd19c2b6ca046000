// Collectives on device memory: every algorithm on every kind of device and on groups of several kinds, within a
// process and between processes.
#include "base/testing/case_count.h"
#include "collectives/exec/staged_communicator.h"
#include "collectives/exec/testing/everything.h"
#include "collectives/exec/testing/test_world.h"
#include "runtime/devices/conformance/device_conformance_fixture.h"

namespace xlad::runtime {
namespace {

using collectives::CollectiveSet;
using collectives::DevicesOfWorkers;
using collectives::TestWorld;

// The parameter lists the kinds of the devices, which are assigned to the ranks in turn. The first rank of a group of n
// gets kind n (modulo the number of kinds), so that small groups use different kinds as well.
class DeviceCollectives : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  void SetUp() override {
    for (const DeviceKind& kind : AllDeviceKinds()) {
      const bool is_wanted = std::find(GetParam().begin(), GetParam().end(), kind.name) != GetParam().end();
      if (!is_wanted) continue;
      if (!kind.available().ok()) GTEST_SKIP() << kind.name << ": " << kind.available();
      devices_.push_back(*kind.make(kind.models.empty() ? "" : kind.models[0]));
    }
  }

  Device& DeviceOf(int rank) const { return *devices_[(num_ranks_ + rank) % devices_.size()]; }

  // Runs all collectives of the set on buffers of this rank's device and checks every element of their results.
  absl::Status RunOnDevice(const CollectiveSet& set, int rank, std::unique_ptr<collectives::Communicator> formed) {
    XLAD_ASSIGN_OR_RETURN(const auto stream, DeviceOf(rank).MakeStream());
    collectives::StagedCommunicator communicator(stream.get(), &set, rank, std::move(formed));
    for (int index = 0; index < std::ssize(set.collectives); ++index) {
      XLAD_RETURN_IF_ERROR(RunOne(set, index, rank, stream.get(), &communicator));
    }
    return absl::OkStatus();
  }

  absl::Status RunOne(const CollectiveSet& set, int index, int rank, Stream* stream,
                      collectives::Communicator* communicator) {
    const collectives::Collective& collective = set.collectives[index];
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    const auto allocate = [&](int64_t bytes) -> absl::StatusOr<std::byte*> {
      XLAD_ASSIGN_OR_RETURN(memory.emplace_back(), DeviceOf(rank).Allocate(bytes));
      return static_cast<std::byte*>(memory.back()->address());
    };
    for (const auto& values : collectives::MakeInputs(collective.spec, index, rank)) {
      XLAD_ASSIGN_OR_RETURN(std::byte* const address, allocate(std::ssize(values)));
      XLAD_RETURN_IF_ERROR(stream->CopyToDevice(address, values));
      inputs.push_back(address);
    }
    collectives::Buffers results;
    for (const int64_t count : collective.spec.output_counts()) {
      results.emplace_back(count * tensor::ByteWidth(collective.spec.type));
      XLAD_ASSIGN_OR_RETURN(outputs.emplace_back(), allocate(std::ssize(results.back())));
    }
    XLAD_RETURN_IF_ERROR(communicator->Launch({index, inputs, outputs, /*step=*/1, /*iteration=*/0}));
    for (size_t r = 0; r < results.size(); ++r) {
      XLAD_RETURN_IF_ERROR(stream->CopyToHost(absl::MakeSpan(results[r]), outputs[r]));
    }
    XLAD_RETURN_IF_ERROR(stream->Synchronize());
    collectives::CheckOne(collective, index, rank, results);
    return absl::OkStatus();
  }

  void RunEverything(TestWorld* world) {
    num_ranks_ = world->num_devices();
    const CollectiveSet set =
        collectives::EverythingOver(world->num_devices(), {tensor::ElementType::kF32}, {{13}, {5, 0, 7}, {301}});
    std::vector<absl::Status> statuses(world->num_devices());
    world->Run([&](int rank) {
      collectives::Recorder recorder(rank, &set, &RealClock());
      auto formed = world->Form(rank, &set, &recorder);
      statuses[rank] = formed.ok() ? RunOnDevice(set, rank, *std::move(formed)) : formed.status();
      if (!statuses[rank].ok()) world->worker_of(rank).abort.Raise({statuses[rank], ""});
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }

  std::vector<std::unique_ptr<Device>> devices_;
  int num_ranks_ = 0;
};

DevicesOfWorkers OneWorker(int n) {
  DevicesOfWorkers placement(1);
  for (int rank = 0; rank < n; ++rank) placement[0].push_back(rank);
  return placement;
}

DevicesOfWorkers TwoWorkers(int n) {
  DevicesOfWorkers placement(2);
  for (int rank = 0; rank < n; ++rank) placement[rank < n / 2 ? 0 : 1].push_back(rank);
  return placement;
}

// 2 to 8 ranks, or by default a few of these numbers. Each test has a power of two among them, because some algorithms
// refuse other numbers, and a number that is not.
std::vector<int> RankCounts(const std::vector<int>& few) {
  return AllCases() ? std::vector<int>{2, 3, 4, 5, 6, 7, 8} : few;
}

TEST_P(DeviceCollectives, EveryAlgorithmInOneProcess) {
  for (const int n : RankCounts({2, 5, 6})) {
    TestWorld world(OneWorker(n));
    RunEverything(&world);
  }
}

TEST_P(DeviceCollectives, EveryAlgorithmOverSharedMemory) {
  for (const int n : RankCounts({3, 8})) {
    TestWorld world(TwoWorkers(n));
    RunEverything(&world);
  }
}

TEST_P(DeviceCollectives, EveryAlgorithmOverTcp) {
  for (const int n : RankCounts({4, 7})) {
    TestWorld world(TwoWorkers(n), /*slots=*/4, /*ring_bytes=*/0);
    RunEverything(&world);
  }
}

TEST_P(DeviceCollectives, OnMappedMemory) {
  for (const int n : RankCounts({3, 4})) {
    TestWorld world(n % 2 == 0 ? OneWorker(n) : TwoWorkers(n));
    world.UseMappedMemory();
    RunEverything(&world);
  }
}

// Each kind alone, and all kinds that are available on this machine together.
std::vector<std::vector<std::string>> Groups() {
  std::vector<std::vector<std::string>> groups;
  std::vector<std::string> available;
  for (const DeviceKind& kind : AllKinds()) {
    groups.push_back({kind.name});
    if (kind.available().ok()) available.push_back(kind.name);
  }
  groups.push_back(available);
  return groups;
}

std::string GroupName(const ::testing::TestParamInfo<std::vector<std::string>>& info) {
  std::string name;
  for (const std::string& kind : info.param) absl::StrAppend(&name, name.empty() ? "" : "_and_", kind);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Groups, DeviceCollectives, ::testing::ValuesIn(Groups()), GroupName);

}  // namespace
}  // namespace xlad::runtime
