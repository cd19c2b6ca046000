#include "runtime/memory_need.h"

#include "runtime/testing/task_cluster.h"

namespace xlad::runtime {
namespace {

using ::testing::HasSubstr;

TEST(MemoryNeed, ATaskThatNeedsTooMuchMemoryEndsBeforeItAllocates) {
  Executable executable = MakeExecutable();
  const int arena = AddAllocation(&executable, Allocation::TEMPORARY, int64_t{1} << 45);
  Step* const step = executable.add_steps();
  *step = KernelOn(executable, "gradient", {kX, kStep, kGradient});
  step->set_name("sort.3");
  step->set_source("train.py:31");
  *step->mutable_kernel()->add_buffers() = Whole(executable, arena);
  TaskCluster cluster({{0, 1}, {2, 3}}, executable);
  for (const auto& listener : cluster.listeners) {
    listener->WaitForEnd();
    EXPECT_EQ(listener->failure.status.code(), absl::StatusCode::kResourceExhausted);
    const std::string message(listener->failure.status.message());
    EXPECT_THAT(message, HasSubstr("out of memory: found a program that needs 70.4 TB for 2 devices of one worker"));
    EXPECT_THAT(message, HasSubstr("the largest values of a device: sort.3 (train.py:31) (temporary, 35.2 TB), "));
  }
}

// A program with a parameter of 1000 bytes and a constant of 100 bytes.
Executable ProgramWithAConstant() {
  Executable executable;
  executable.add_mesh()->set_size(kDevices);
  AddAllocation(&executable, Allocation::PARAMETER, 1000);
  AddValue(executable.add_parameters(), {250}, {250}, Whole(executable, 0));
  executable.mutable_parameters(0)->set_name("w");
  const int constant = AddAllocation(&executable, Allocation::CONSTANT, 100);
  executable.mutable_allocations(constant)->set_blob(std::string(100, '\0'));
  return executable;
}

// Returns the result of the check of the first of two workers with two devices each.
absl::Status Check(Device& device, const std::string& second_host, const AvailableMemory& available,
                   const Executable& executable = ProgramWithAConstant()) {
  WorkerEnvironment environment;
  environment.devices = {&device};
  environment.clock = &RealClock();
  AbortSignal abort;
  LaunchTask launch;
  for (int w = 0; w < 2; ++w) {
    Peer* const peer = launch.add_peers();
    peer->set_worker_id(absl::StrCat("w", w));
    peer->set_host(w == 0 ? "here" : second_host);
    peer->set_data_address(absl::StrCat("127.0.0.1:", w + 1));
    for (int d = 0; d < 2; ++d) peer->add_devices(2 * w + d);
  }
  for (int d = 0; d < 2; ++d) launch.add_devices()->set_device(d);
  const std::string bytes = executable.SerializeAsString();
  const auto loaded = ConnectedExecutable::Load({{bytes, Sha256Hex(bytes)}}, {MeshPositions(launch), launch.plans()},
                                                environment, &abort);
  if (!loaded.ok()) return loaded.status();
  return CheckHostMemory(**loaded, launch, "w0", available, "use more machines");
}

class DeviceWithMemory final : public Device {
 public:
  std::string Name() const override { return cpu_.Name(); }
  bool uses_host_memory() const override { return false; }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes, MemoryKind kind) override {
    return cpu_.Allocate(bytes, kind);
  }
  using Device::MakeStream;
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(int threads) override { return cpu_.MakeStream(threads); }
  absl::StatusOr<std::unique_ptr<LoadedExecutable>> Load(Executable executable) override {
    return cpu_.Load(std::move(executable));
  }

 private:
  TestDevice cpu_{{}};
};

TEST(MemoryNeed, DevicesOfAWorkerAndOfAMachineCountTogether) {
  TestDevice device({});
  EXPECT_EQ(Check(device, "here", {2100, 4200}), absl::OkStatus());
  const absl::Status worker = Check(device, "here", {2099, 4200}), machine = Check(device, "here", {2100, 4199});
  EXPECT_EQ(worker.message(),
            "out of memory: found a program that needs 2100 bytes for 2 devices of one worker, expected at most 2099 "
            "bytes, the memory that the worker may use; the largest values of a device: w (parameter, 1 kB); use more "
            "machines");
  EXPECT_THAT(std::string(machine.message()), HasSubstr("4200 bytes for 4 devices on one machine"));
  const absl::Status large = Check(device, "here", {1000, 4200});
  EXPECT_THAT(std::string(large.message()), HasSubstr("2.1 kB for 2 devices of one worker, expected at most 1 kB"));
  EXPECT_EQ(Check(device, "there", {2100, 2100}), absl::OkStatus()) << "the other worker has a machine of its own";
}

TEST(MemoryNeed, OnlyPinnedMemoryOfAGpuIsMemoryOfTheMachine) {
  DeviceWithMemory gpu;
  Executable program = ProgramWithAConstant();
  EXPECT_EQ(Check(gpu, "here", {0, 0}, program), absl::OkStatus());
  const int pinned = AddAllocation(&program, Allocation::PARAMETER, 40);
  program.mutable_allocations(pinned)->set_memory(MEMORY_PINNED_HOST);
  AddValue(program.add_parameters(), {10}, {10}, Whole(program, pinned));
  program.mutable_parameters(1)->set_name("v");
  EXPECT_EQ(Check(gpu, "here", {80, 160}, program), absl::OkStatus());
  EXPECT_THAT(std::string(Check(gpu, "here", {79, 160}, program).message()),
              HasSubstr("needs 80 B for 2 devices of one worker, expected at most 79 B, the memory that the worker may "
                        "use; the largest values of a device: v (parameter, 40 B); use more machines"));
}

TEST(MemoryNeed, TheErrorNamesTheValuesOfTheShardThatNeedsTheMost) {
  TestDevice device({});
  WorkerEnvironment environment;
  environment.devices = {&device};
  environment.clock = &RealClock();
  AbortSignal abort;
  std::vector<StoredExecutable> stored;
  for (const int64_t elements : {250, 500}) {
    Executable program;
    program.add_mesh()->set_size(2);
    AddAllocation(&program, Allocation::PARAMETER, 4 * elements);
    AddValue(program.add_parameters(), {elements}, {elements}, Whole(program, 0));
    const std::string bytes = program.SerializeAsString();
    stored.push_back({bytes, Sha256Hex(bytes)});
  }
  const auto loaded = ConnectedExecutable::Load(stored, {{0, 1}, {}, {0, 1}}, environment, &abort);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  LaunchTask launch;
  launch.set_shards_per_device(2);
  for (int d = 0; d < 2; ++d) launch.add_devices()->set_device(d);
  const absl::Status status = CheckHostMemory(**loaded, launch, "w0", {2999, 9000}, "use more machines");
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs 3000 bytes for 1 device of one worker"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("device: parameter 0 (parameter, 2 kB); use"));
}

}  // namespace
}  // namespace xlad::runtime
