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

// The need of two workers with two devices each. The first one checks it.
absl::Status Check(const Device& device, const std::string& second_host, const AvailableMemory& available) {
  WorkerEnvironment environment;
  environment.devices = {const_cast<Device*>(&device)};
  environment.clock = &RealClock();
  AbortSignal abort;
  Executable executable;
  executable.add_mesh()->set_size(kDevices);
  AddAllocation(&executable, Allocation::PARAMETER, 1000);
  AddValue(executable.add_parameters(), {250}, {250}, Whole(executable, 0));
  executable.mutable_parameters(0)->set_name("w");
  const int constant = AddAllocation(&executable, Allocation::CONSTANT, 100);
  executable.mutable_allocations(constant)->set_blob(std::string(100, '\0'));
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
  return CheckHostMemory(**loaded, launch, "w0", available);
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
  const TestDevice device({});
  EXPECT_EQ(Check(device, "here", {2100, 4200}), absl::OkStatus());
  const absl::Status worker = Check(device, "here", {2099, 4200}), machine = Check(device, "here", {2100, 4199});
  EXPECT_EQ(worker.message(),
            "out of memory: found a program that needs 2.1 kB for 2 devices of one worker, expected at most 2.1 kB, "
            "the memory that the worker may use; the largest values of a device: w (parameter, 1 kB); use a smaller "
            "batch or more machines, or submit the job with a limit per device (--memory-limit)");
  EXPECT_THAT(std::string(machine.message()), HasSubstr("4.2 kB for 4 devices on one machine"));
  EXPECT_EQ(Check(device, "there", {2100, 2100}), absl::OkStatus()) << "the other worker has a machine of its own";
  EXPECT_EQ(Check(DeviceWithMemory(), "here", {0, 0}), absl::OkStatus()) << "a GPU's memory is not the machine's";
}

}  // namespace
}  // namespace xlad::runtime
