// Programs whose steps are launched as CUDA graphs, with test doubles of the driver (tests/cuda_driver_double) and of
// cuBLASLt (tests/cublaslt_double).
#include "runtime/devices/cuda/cuda_graphs.h"

#include <cstdlib>
#include <functional>
#include <set>

#include "base/clock.h"
#include "base/file_system.h"
#include "runtime/devices/cuda/cublaslt.h"
#include "runtime/devices/cuda/cuda_device_fixture.h"
#include "runtime/devices/cuda/cuda_module.h"
#include "runtime/devices/cuda/driver.h"
#include "runtime/devices/cuda/gpu.h"
#include "runtime/step_program.h"
#include "runtime/testing/test_support.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::CountedGraphs;
using Graphs = testing::GraphCounts;

constexpr char kCountingKernels[] = "runtime/devices/cuda/testdata/counting.ptx";

// A program that can be run on several sets of memory. Allocations 0 to 3 have 64 bytes each.
class CudaGraphsTest : public CudaLibraryOpTest {
 protected:
  static constexpr int kAllocations = 4;
  using Memory = std::vector<std::unique_ptr<DeviceMemory>>;

  CudaGraphsTest() {
    executable_ = MakeExecutable(*RealFileSystem().Read(kCountingKernels));
    for (int a = 0; a < kAllocations; ++a) AddAllocation(&executable_, Allocation::TEMPORARY, 64);
  }

  absl::StatusOr<std::unique_ptr<Device>> Make() override {
    XLAD_ASSIGN_OR_RETURN(const cuda::Driver* const driver, cuda::LoadDriver(library_));
    XLAD_ASSIGN_OR_RETURN(const cuda::CublasLt* const products, cuda::LoadCublasLt(kCublasLtDouble));
    return MakeCudaDevice(driver, 0, products);
  }

  void Add(const Step& step) { *executable_.add_steps() = step; }
  void AddKernel(const std::string& name, const std::vector<int>& allocations) {
    Add(KernelOn(executable_, name, allocations));
  }
  void AddCopy(int from, int to) {
    Step step;
    step.set_name("copy");
    *step.mutable_copy()->mutable_from() = Whole(executable_, from);
    *step.mutable_copy()->mutable_to() = Whole(executable_, to);
    Add(step);
  }
  void AddLibraryOp(const LibraryOp& op, const std::vector<int>& allocations) {
    Step step;
    step.set_name("op");
    step.mutable_library()->set_op(executable_.library_ops_size());
    for (const int a : allocations) *step.mutable_library()->add_buffers() = Whole(executable_, a);
    *executable_.add_library_ops() = op;
    Add(step);
  }
  // Increments allocation 0 and sets allocation 1 to twice the value of allocation 0.
  void AddSteps() {
    AddKernel("increment", {0});
    AddCopy(0, 2);
    AddKernel("add_to", {2, 2});
    AddCopy(2, 1);
  }

  void Load() {
    device_ = *Make();
    loaded_ = *device_->Load(executable_);
    auto program = StepProgram::Prepare(*loaded_);
    ASSERT_TRUE(program.ok()) << program.status();
    program_ = *std::move(program);
    stream_ = *device_->MakeStream();
    launcher_ = *loaded_->MakeLauncher(0, stream_.get());
    before_ = CountedGraphs();
  }
  Memory NewMemory() {
    Memory memory;
    const std::vector<std::byte> zeros(64);
    for (int a = 0; a < kAllocations; ++a) {
      memory.push_back(*device_->Allocate(64));
      EXPECT_TRUE(stream_->CopyToDevice(memory.back()->address(), zeros).ok());
    }
    return memory;
  }
  absl::Status Run(const Memory& memory, StepTimes* times = nullptr) {
    std::vector<std::byte*> addresses;
    for (const auto& each : memory) addresses.push_back(static_cast<std::byte*>(each->address()));
    StepEnvironment environment;
    environment.stream = stream_.get();
    environment.launcher = launcher_.get();
    environment.allocations = addresses;
    environment.times = times;
    return program_->Run(environment);
  }
  int32_t At(const Memory& memory, int allocation) {
    int32_t value = -1;
    EXPECT_TRUE(stream_->CopyToHost({reinterpret_cast<std::byte*>(&value), 4}, memory[allocation]->address()).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return value;
  }
  // Runs the program of AddSteps for the `run`-th time on this memory.
  void RunSteps(const Memory& memory, int run) {
    const absl::Status status = Run(memory);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(At(memory, 0), run);
    EXPECT_EQ(At(memory, 1), 2 * run);
  }
  // The calls since Load.
  Graphs Made() const {
    Graphs now = CountedGraphs();
    now.launches -= before_.launches;
    now.updates -= before_.updates;
    now.instantiations -= before_.instantiations;
    return now;
  }

  std::string library_ = kDouble;
  Executable executable_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<LoadedExecutable> loaded_;
  std::unique_ptr<StepProgram> program_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Launcher> launcher_;
  Graphs before_;
};

TEST_F(CudaGraphsTest, TheSecondRunMakesAGraphThatLaterRunsLaunch) {
  AddSteps();
  Load();
  const Memory memory = NewMemory();
  for (int run = 1; run <= 5; ++run) {
    RunSteps(memory, run);
    EXPECT_EQ(Made().instantiations, run > 1 ? 1 : 0);
    EXPECT_EQ(Made().launches, run - 1);
  }
  EXPECT_EQ(CountedGraphs().graphs, 0);
  EXPECT_EQ(CountedGraphs().executables, 1);
  launcher_ = nullptr;
  EXPECT_EQ(CountedGraphs().executables, 0);
}

// As in training, where parameters and results exchange their memory after each step.
TEST_F(CudaGraphsTest, MemoryThatAlternates) {
  AddSteps();
  Load();
  const Memory sets[] = {NewMemory(), NewMemory()};
  for (int run = 0; run < 10; ++run) RunSteps(sets[run % 2], run / 2 + 1);
  EXPECT_EQ(Made().instantiations, 2);
  EXPECT_EQ(Made().launches, 9);
}

TEST_F(CudaGraphsTest, FurtherSetsOfMemoryUpdateTheOldestGraph) {
  AddSteps();
  for (const bool can_update : {true, false}) {
    Configure(can_update ? "" : "fail=cuGraphExecUpdate_v2:910");
    Load();
    std::vector<Memory> sets;
    for (int s = 0; s < 6; ++s) sets.push_back(NewMemory());
    std::vector<int> runs(sets.size());
    for (const int s : {0, 0, 1, 2, 3, 4, 4, 1, 5, 5, 1, 0, 3, 2, 1, 5, 0}) RunSteps(sets[s], ++runs[s]);
    EXPECT_EQ(CountedGraphs().executables, cuda::CudaGraphs::kMaxGraphs);
    if (can_update) EXPECT_EQ(Made().instantiations, cuda::CudaGraphs::kMaxGraphs);
    EXPECT_EQ(Made().updates > 2, can_update);
    EXPECT_EQ(Made().launches, 16);
    launcher_ = nullptr;
    EXPECT_EQ(CountedGraphs().executables, 0);
  }
}

TEST_F(CudaGraphsTest, MemoryThatNeverRepeats) {
  AddSteps();
  Load();
  std::vector<Memory> sets;
  for (int run = 0; run < cuda::CudaGraphs::kMaxMisses + 5; ++run) {
    sets.push_back(NewMemory());
    RunSteps(sets.back(), 1);
  }
  EXPECT_EQ(Made().launches, cuda::CudaGraphs::kMaxMisses);
  EXPECT_EQ(CountedGraphs().executables, 0);
}

// The steps of a group are those between the steps that the host must see: ops that it computes, and predicates.
TEST_F(CudaGraphsTest, TheHostDividesGroups) {
  LibraryOp op;
  SetShape(op.mutable_fft()->mutable_operand(), ElementType::kF32, {16});
  SetShape(op.mutable_fft()->mutable_result(), ElementType::kC64, {8});
  op.mutable_fft()->set_kind(FftOp::RFFT);
  op.mutable_fft()->set_dimensions(1);
  op.mutable_fft()->mutable_operand()->set_dims(0, 14);
  AddSteps();
  AddLibraryOp(op, {3, 3});
  AddSteps();
  Step loop;
  *loop.mutable_while_()->add_condition() = KernelOn(executable_, "below_ten", {0, 3});
  SetSlice(loop.mutable_while_()->mutable_predicate(), 3, 0, 1);
  *loop.mutable_while_()->add_body() = KernelOn(executable_, "increment", {0});
  *loop.mutable_while_()->add_body() = KernelOn(executable_, "add_to", {0, 1});
  Add(loop);
  Load();
  const Memory memory = NewMemory();
  ASSERT_TRUE(Run(memory).ok());
  EXPECT_EQ(At(memory, 0), 10);
  EXPECT_EQ(At(memory, 1), 4 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10);
  EXPECT_EQ(Made().instantiations, 1) << "that of the body of the loop";
  EXPECT_EQ(Made().launches, 7);
  ASSERT_TRUE(Run(memory).ok());
  EXPECT_EQ(At(memory, 0), 12);
  EXPECT_EQ(Made().instantiations, 3);
  EXPECT_EQ(Made().launches, 9);
}

TEST_F(CudaGraphsTest, MeasuredRunsLaunchEachKernel) {
  AddSteps();
  Load();
  const Memory memory = NewMemory();
  StepTimes times;
  times.clock = &RealClock();
  for (int run = 1; run <= 3; ++run) {
    ASSERT_TRUE(Run(memory, &times).ok());
    EXPECT_EQ(At(memory, 1), 2 * run);
  }
  EXPECT_EQ(times.calls, std::vector<int64_t>(4, 3));
  for (const int64_t ns : times.ns) EXPECT_GT(ns, 0);
  EXPECT_EQ(Made().launches, 0);
  for (int run = 4; run <= 6; ++run) RunSteps(memory, run);
  EXPECT_EQ(Made().launches, 2);
}

// Products by cuBLASLt.
TEST_F(CudaGraphsTest, LibraryOps) {
  const DotTypes f32 = {ElementType::kF32, ElementType::kF32, ElementType::kF32};
  AddLibraryOp(MakeDot({{4, 4}, {4, 4}, {4, 4}, {}, {1}, {0}}, f32), {0, 0, 1});
  AddLibraryOp(MakeDot({{4, 4}, {4, 4}, {4, 4}, {}, {0}, {1}}, f32), {1, 0, 2});
  Load();
  const Memory memory = NewMemory();
  const LibraryOp &first = executable_.library_ops(0), &second = executable_.library_ops(1);
  for (int run = 0; run < 5; ++run) {
    const std::vector<std::byte> input = RandomBytes(first.dot().lhs());
    ASSERT_TRUE(stream_->CopyToDevice(memory[0]->address(), input).ok());
    const absl::Status status = Run(memory);
    ASSERT_TRUE(status.ok()) << status;
    std::vector<std::byte> found(64);
    ASSERT_TRUE(stream_->CopyToHost(absl::MakeSpan(found), memory[2]->address()).ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
    const auto cpu = MakeCpuDevice();
    EXPECT_EQ(found, RunOn(cpu.get(), second, {RunOn(cpu.get(), first, {input, input}, 64), input}, 64));
  }
  EXPECT_EQ(Made().launches, 4);
}

TEST_F(CudaGraphsTest, GraphsThatCannotBeMade) {
  AddSteps();
  for (const char* const failure : {"cuStreamBeginCapture_v2:801", "cuStreamEndCapture:901",
                                    "cuGraphInstantiateWithFlags:2", "cuGraphLaunch:2"}) {
    SCOPED_TRACE(failure);
    Configure(absl::StrCat("fail=", failure));
    Load();
    const Memory memory = NewMemory();
    for (int run = 1; run <= 4; ++run) RunSteps(memory, run);
    EXPECT_EQ(Made().launches, 0);
    EXPECT_EQ(CountedGraphs().executables, 0);
    EXPECT_EQ(CountedGraphs().graphs, 0);
    launcher_ = nullptr;
  }
}

TEST_F(CudaGraphsTest, ErrorsOfSteps) {
  AddSteps();
  // While the second run is recorded, its second kernel fails. The kernels are then launched one by one, and the first
  // one fails, too.
  Configure("fail=cuLaunchKernel:701:3");
  Load();
  Memory memory = NewMemory();
  RunSteps(memory, 1);
  const absl::Status launch = Run(memory);
  EXPECT_THAT(Message(launch), AllOf(HasSubstr("increment"), HasSubstr("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)")));
  launcher_ = nullptr;
  Configure("fail=cuGraphLaunch:719:1");
  Load();
  memory = NewMemory();
  RunSteps(memory, 1);
  RunSteps(memory, 2);
  const absl::Status replay = Run(memory);
  EXPECT_THAT(Message(replay), AllOf(HasSubstr("cuGraphLaunch (a graph that ends with add_to)"),
                                     HasSubstr("CUDA_ERROR_LAUNCH_FAILED (719)")));
  EXPECT_EQ(stream_->Synchronize().code(), absl::StatusCode::kInternal) << "the stream keeps its first error";
}

TEST_F(CudaGraphsTest, WithoutGraphs) {
  AddSteps();
  setenv(cuda::kGraphsVariable, "off", /*overwrite=*/1);
  EXPECT_EQ((*cuda::LoadDriver(kDouble))->no_graphs, "XLAD_CUDA_GRAPHS is off");
  Load();
  unsetenv(cuda::kGraphsVariable);
  const Memory memory = NewMemory();
  for (int run = 1; run <= 4; ++run) RunSteps(memory, run);
  EXPECT_EQ(Made().launches, 0);
}

TEST_F(CudaGraphsTest, ADriverWithoutTheFunctions) {
  AddSteps();
  library_ = XLAD_CUDA_DRIVER_DOUBLE_WITHOUT_GRAPHS;
  EXPECT_THAT((*cuda::LoadDriver(library_))->no_graphs, HasSubstr("has no function cuStreamBeginCapture_v2"));
  device_ = *MakeCudaDevice(*cuda::LoadDriver(library_));
  loaded_ = *device_->Load(executable_);
  program_ = *StepProgram::Prepare(*loaded_);
  stream_ = *device_->MakeStream();
  launcher_ = *loaded_->MakeLauncher(0, stream_.get());
  const Memory memory = NewMemory();
  for (int run = 1; run <= 4; ++run) RunSteps(memory, run);
}

// What the driver's double checks.
class CudaDoubleGraphsTest : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    driver_ = *cuda::LoadDriver(kDouble);
    gpu_ = *cuda::Gpu::Open(driver_, 0);
    stream_ = *cuda::CudaStream::Make(gpu_, 1);
  }
  // Records one fill.
  cuda::GraphExecHandle Record(cuda::DevicePointer memory, int64_t bytes) {
    EXPECT_TRUE(stream_->BeginRecording().ok());
    EXPECT_TRUE(stream_->FillZero(reinterpret_cast<void*>(memory), bytes).ok());
    const cuda::GraphHandle graph = *stream_->EndRecording();
    cuda::GraphExecHandle exec = nullptr;
    EXPECT_EQ(driver_->cuGraphInstantiateWithFlags(&exec, graph, 0), cuda::kSuccess);
    driver_->cuGraphDestroy(graph);
    return exec;
  }

  const cuda::Driver* driver_ = nullptr;
  std::shared_ptr<const cuda::Gpu> gpu_;
  std::unique_ptr<cuda::CudaStream> stream_;
};

TEST_F(CudaDoubleGraphsTest, CallsThatACaptureForbids) {
  const cuda::DevicePointer memory = *gpu_->Allocate(64);
  std::byte on_host[64] = {};
  const std::function<bool()> calls[] = {
      [&] { return stream_->Synchronize().ok(); },
      [&] { return stream_->CopyToDevice(reinterpret_cast<void*>(memory), on_host).ok(); },
      [&] { return stream_->CopyToHost(on_host, reinterpret_cast<void*>(memory)).ok(); },
      [&] { return stream_->Record().ok(); },
      [&] { return gpu_->Allocate(64).ok(); },
      [&] { return gpu_->AllocatePinned(64).ok(); },
  };
  for (const auto& call : calls) {
    ASSERT_TRUE(stream_->BeginRecording().ok());
    EXPECT_FALSE(call());
    EXPECT_THAT(Message(stream_->EndRecording().status()), HasSubstr("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)"));
    EXPECT_TRUE(stream_->Synchronize().ok()) << "errors of a recording are not those of the stream";
  }
  gpu_->Free(memory);
}

TEST_F(CudaDoubleGraphsTest, RecordedWorkRunsWhenTheGraphIsLaunched) {
  const cuda::DevicePointer memory = *gpu_->Allocate(64);
  std::byte ones[64], found[64];
  std::memset(ones, 1, sizeof(ones));
  ASSERT_TRUE(stream_->CopyToDevice(reinterpret_cast<void*>(memory), ones).ok());
  const cuda::GraphExecHandle exec = Record(memory, 32);
  ASSERT_TRUE(stream_->CopyToHost(found, reinterpret_cast<void*>(memory)).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(std::memcmp(found, ones, sizeof(ones)), 0);
  EXPECT_EQ(driver_->cuGraphLaunch(exec, stream_->handle()), cuda::kSuccess);
  ASSERT_TRUE(stream_->CopyToHost(found, reinterpret_cast<void*>(memory)).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(std::set<std::byte>(found, found + 32), std::set<std::byte>{std::byte{0}});
  EXPECT_EQ(std::memcmp(found + 32, ones, 32), 0);
  driver_->cuGraphExecDestroy(exec);
  gpu_->Free(memory);
}

TEST_F(CudaDoubleGraphsTest, GraphsThatReferToFreedMemoryOrCode) {
  // The driver accepts the address of the end of an allocation. The start of this memory may be such an address.
  const cuda::DevicePointer memory = *gpu_->Allocate(1024), used = memory + 512, next = *gpu_->Allocate(64);
  const cuda::GraphExecHandle fill = Record(used, 64);
  auto module = *cuda::CudaModule::Load(gpu_, *RealFileSystem().Read(kCountingKernels), "m");
  const cuda::FunctionHandle increment = *module->Find("increment");
  const std::vector<void*> parameters = {reinterpret_cast<void*>(used), nullptr, nullptr};
  ASSERT_TRUE(stream_->Launch(increment, {1, 1}, parameters).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  ASSERT_TRUE(stream_->BeginRecording().ok());
  ASSERT_TRUE(stream_->Launch(increment, {1, 1}, parameters).ok());
  const cuda::GraphHandle graph = *stream_->EndRecording();
  cuda::GraphExecHandle kernel = nullptr;
  ASSERT_EQ(driver_->cuGraphInstantiateWithFlags(&kernel, graph, 0), cuda::kSuccess);
  for (const cuda::GraphExecHandle exec : {fill, kernel}) {
    EXPECT_EQ(driver_->cuGraphLaunch(exec, stream_->handle()), cuda::kSuccess);
  }
  cuda::GraphUpdateInfo info = {};
  EXPECT_EQ(driver_->cuGraphExecUpdate_v2(fill, graph, &info), cuda::kGraphUpdateFailure) << "other nodes";
  ASSERT_TRUE(stream_->Synchronize().ok());
  gpu_->Free(memory);
  gpu_->Free(*gpu_->Allocate(1 << 20));  // Waits until the memory has been freed.
  for (const cuda::GraphExecHandle exec : {fill, kernel}) {
    EXPECT_EQ(driver_->cuGraphLaunch(exec, stream_->handle()), cuda::kIllegalAddress);
  }
  module = nullptr;
  EXPECT_EQ(driver_->cuGraphLaunch(kernel, stream_->handle()), cuda::kInvalidHandle);
  driver_->cuGraphDestroy(graph);
  for (const cuda::GraphExecHandle exec : {fill, kernel}) driver_->cuGraphExecDestroy(exec);
  gpu_->Free(next);
}

TEST_F(CudaDoubleGraphsTest, TheFirstLaunchOfAKernelCannotBeCaptured) {
  const auto module =
      *cuda::CudaModule::Load(gpu_, *RealFileSystem().Read(kCountingKernels), "m");
  const cuda::DevicePointer memory = *gpu_->Allocate(64);
  ASSERT_TRUE(stream_->BeginRecording().ok());
  EXPECT_FALSE(
      stream_->Launch(*module->Find("increment"), {1, 1}, {reinterpret_cast<void*>(memory), nullptr, nullptr}).ok());
  EXPECT_FALSE(stream_->EndRecording().ok());
  gpu_->Free(memory);
}

}  // namespace
}  // namespace xlad::runtime
