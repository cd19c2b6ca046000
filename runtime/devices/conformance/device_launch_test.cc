// Loading and launching on every kind of device.
#include <atomic>
#include <thread>

#include "proto/device_name.h"
#include "runtime/devices/conformance/device_conformance_fixture.h"

namespace xlad::runtime {
namespace {

using ::testing::HasSubstr;
using LoadConformance = DeviceConformance;
using LaunchConformance = DeviceLaunchConformance;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_P(LoadConformance, TheTargetNamesTheDevice) {
  EXPECT_EQ(DeviceName(GetParam().target(Model())), device_->Name());
  EXPECT_EQ(GetParam().target(Model()).device_kind(), GetParam().name);
}

TEST_P(LoadConformance, AnExecutableWithoutCode) {
  Executable executable = MakeKernelExecutable();
  executable.clear_object_code();
  const auto loaded = device_->Load(executable);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->FindKernel("xlad_test_add").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*loaded)->executable().name(), "kernels");
}

TEST_P(LoadConformance, ExecutablesOfOtherKindsAreRefused) {
  Executable executable = MakeKernelExecutable();
  executable.mutable_target()->set_device_kind("abacus");
  executable.mutable_target()->clear_device_model();
  const absl::Status status = device_->Load(executable).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("found a target of kind abacus, expected " + GetParam().name));
}

TEST_P(LoadConformance, OtherVersionsOfTheKernelAbiAreRefused) {
  Executable executable = MakeKernelExecutable();
  executable.set_kernel_abi_version(XLAD_KERNEL_ABI_VERSION + 1);
  const absl::Status status = device_->Load(executable).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("ABI version"));
}

TEST_P(LoadConformance, DamagedObjectCodeIsRefused) {
  Executable executable = MakeKernelExecutable();
  const std::string good = executable.object_code();
  for (const std::string& bad : {good.substr(0, 10), good.substr(0, good.size() / 2), std::string(1000, 'x')}) {
    executable.set_object_code(bad);
    const auto loaded = device_->Load(executable);
    // Code may be linked when a symbol is first looked up.
    if (loaded.ok()) EXPECT_FALSE((*loaded)->FindKernel("xlad_test_add").ok());
  }
}

TEST_P(LoadConformance, AnEmptyLibraryOpIsRefused) {
  Executable executable = MakeKernelExecutable();
  executable.add_library_ops();
  const absl::Status status = device_->Load(executable).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("op 1"));
}

TEST_P(LaunchConformance, UnknownSymbolsAreNotFound) {
  const absl::Status status = loaded_->FindKernel("no_such_kernel").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("no_such_kernel"));
}

TEST_P(LaunchConformance, ASymbolHasOneNumber) {
  EXPECT_EQ(Kernel("xlad_test_add"), Kernel("xlad_test_add"));
  EXPECT_NE(Kernel("xlad_test_add"), Kernel("xlad_test_increment"));
}

TEST_P(LaunchConformance, AKernelWithSeveralBuffers) {
  const auto count = Upload(std::vector<int32_t>{1000});
  const auto a = Upload(Sequence(1000)), b = Upload(Sequence(1000, 5)), sum = Upload(std::vector<float>(1000));
  const std::vector<void*> buffers = {count->address(), a->address(), b->address(), sum->address()};
  ASSERT_TRUE(launcher_->RunKernel(Kernel("xlad_test_add"), buffers, nullptr, 1).ok());
  const std::vector<float> found = Download(sum->address(), 1000);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(found[i], static_cast<float>(2 * i + 5));
}

TEST_P(LaunchConformance, BuffersInsideAnAllocation) {
  const auto count = Upload(std::vector<int32_t>{4});
  const auto memory = Upload(Sequence(64));
  const std::vector<void*> buffers = {count->address(), memory->address(), Add(memory->address(), 64),
                                      Add(memory->address(), 128)};
  ASSERT_TRUE(launcher_->RunKernel(Kernel("xlad_test_add"), buffers, nullptr, 1).ok());
  EXPECT_EQ(Download(Add(memory->address(), 128), 5), (std::vector<float>{16, 18, 20, 22, 36}));
}

TEST_P(LaunchConformance, KernelsUseScratchMemory) {
  const auto count = Upload(std::vector<int32_t>{100});
  const auto x = Upload(Sequence(100));
  const auto scratch = *device_->Allocate(400);
  const std::vector<void*> buffers = {count->address(), x->address()};
  ASSERT_TRUE(launcher_->RunKernel(Kernel("xlad_test_increment"), buffers, scratch->address(), 1).ok());
  EXPECT_EQ(Download(x->address(), 100), Sequence(100, 1));
}

TEST_P(LaunchConformance, KernelsReadPinnedHostMemory) {
  if (!HasMemory(MEMORY_PINNED_HOST)) GTEST_SKIP() << GetParam().name << " has no pinned host memory";
  const auto count = Upload(std::vector<int32_t>{100}, MEMORY_PINNED_HOST);
  const auto x = Upload(Sequence(100), MEMORY_PINNED_HOST);
  const auto scratch = *device_->Allocate(400);
  const std::vector<void*> buffers = {count->address(), x->address()};
  ASSERT_TRUE(launcher_->RunKernel(Kernel("xlad_test_increment"), buffers, scratch->address(), 1).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(static_cast<const float*>(x->address())[99], 100);
}

TEST_P(LaunchConformance, LaunchersHavePartitionIds) {
  const auto count = Upload(std::vector<int32_t>{1});
  const auto x = Upload(std::vector<float>(1));
  const std::vector<void*> buffers = {count->address(), x->address()};
  for (const int32_t partition : {0, 1, 7, 65535}) {
    const auto launcher = *loaded_->MakeLauncher(partition, stream_.get());
    ASSERT_TRUE(launcher->RunKernel(Kernel("xlad_test_partition"), buffers, nullptr, 1).ok());
    EXPECT_EQ(Download(x->address(), 1)[0], static_cast<float>(partition));
  }
}

TEST_P(LaunchConformance, KernelsAndCopiesRunInOrder) {
  const auto count = Upload(std::vector<int32_t>{100});
  const auto a = Upload(Sequence(100)), b = Upload(std::vector<float>(100));
  const auto scratch = *device_->Allocate(400);
  const int increment = Kernel("xlad_test_increment");
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(launcher_->RunKernel(increment, std::vector<void*>{count->address(), a->address()},
                                     scratch->address(), 1)
                    .ok());
    ASSERT_TRUE(stream_->Copy(b->address(), a->address(), 400).ok());
    ASSERT_TRUE(stream_->Copy(a->address(), b->address(), 400).ok());
  }
  EXPECT_EQ(Download(b->address(), 100), Sequence(100, 100));
}

TEST_P(LaunchConformance, AllTilesAreComputedOnAnyNumberOfThreads) {
  const std::vector<int32_t> size = {10000};
  std::vector<float> expected(10000);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>(i / 16);
  for (const int threads : {1, 2, 3, 7}) {
    const auto stream = *device_->MakeStream(threads);
    const auto launcher = *loaded_->MakeLauncher(0, stream.get());
    const auto count = Upload(size);
    const auto x = Upload(std::vector<float>(10000, -1));
    const std::vector<void*> buffers = {count->address(), x->address()};
    ASSERT_TRUE(launcher->RunKernel(Kernel("xlad_test_tiles"), buffers, nullptr, 625).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(Download(x->address(), 10000), expected) << threads << " threads";
  }
}

TEST_P(LaunchConformance, KernelsRunTilesOfOtherKernels) {
  if (!HasCallbacks()) GTEST_SKIP() << "kernels of this kind return no error codes and cannot call functions";
  const auto stream = *device_->MakeStream(3);
  const auto launcher = *loaded_->MakeLauncher(0, stream.get());
  const auto count = Upload(std::vector<int32_t>{640});
  const auto x = Upload(std::vector<float>(640, -1));
  const std::vector<void*> buffers = {count->address(), x->address()};
  ASSERT_TRUE(launcher->RunKernel(Kernel("xlad_test_call_tiles"), buffers, nullptr, 1).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  const std::vector<float> values = Download(x->address(), 640);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(i / 16));
}

TEST_P(LaunchConformance, ATileThatFailsIsReported) {
  if (!HasCallbacks()) GTEST_SKIP() << "kernels of this kind return no error codes and cannot call functions";
  const auto stream = *device_->MakeStream(2);
  const auto launcher = *loaded_->MakeLauncher(0, stream.get());
  const auto count = Upload(std::vector<int32_t>{1});
  const std::vector<void*> buffers = {count->address()};
  (void)launcher->RunKernel(Kernel("xlad_test_fail_tile"), buffers, nullptr, 20);
  EXPECT_EQ(stream->Synchronize().code(), absl::StatusCode::kInternal);
}

TEST_P(LaunchConformance, NumbersOfTilesAreAtLeastOne) {
  const auto count = Upload(std::vector<int32_t>{1});
  const std::vector<void*> buffers = {count->address(), count->address()};
  EXPECT_EQ(launcher_->RunKernel(Kernel("xlad_test_tiles"), buffers, nullptr, 0).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(LaunchConformance, UnknownKernelNumbersAreInvalid) {
  for (const int kernel : {-1, 99, INT32_MAX}) {
    const auto stream = MakeStream();
    const auto launcher = *loaded_->MakeLauncher(0, stream.get());
    absl::Status status = launcher->RunKernel(kernel, {}, nullptr, 1);
    if (status.ok()) status = stream->Synchronize();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << kernel;
  }
}

TEST_P(LaunchConformance, TheErrorOfAKernelIsReportedAtTheLatestBySynchronize) {
  if (!HasCallbacks()) GTEST_SKIP() << "kernels of this kind return no error codes and cannot call functions";
  const auto count = Upload(std::vector<int32_t>{1});
  const std::vector<void*> buffers = {count->address()};
  (void)launcher_->RunKernel(Kernel("xlad_test_fail"), buffers, nullptr, 1);
  const absl::Status status = stream_->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status), HasSubstr("failed with code 7"));
  EXPECT_EQ(stream_->Synchronize(), status) << "it is reported again";
  EXPECT_TRUE(MakeStream()->Synchronize().ok()) << "other streams are not affected";
}

// The fill takes longer than the calls, so that a device that works later fails after the event has been recorded.
TEST_P(LaunchConformance, AnEventHasTheErrorOfTheWorkBeforeIt) {
  if (!HasCallbacks()) GTEST_SKIP() << "kernels of this kind return no error codes and cannot call functions";
  constexpr int64_t kBytes = 64 << 20;
  const auto large = *device_->Allocate(kBytes);
  const auto count = Upload(std::vector<int32_t>{1});
  const std::vector<void*> buffers = {count->address()};
  const int kernel = Kernel("xlad_test_fail");
  ASSERT_TRUE(stream_->FillZero(large->address(), kBytes).ok());
  (void)launcher_->RunKernel(kernel, buffers, nullptr, 1);
  const auto event = stream_->Record();
  const absl::Status status = event.ok() ? (*event)->Wait() : event.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(stream_->Synchronize(), status);
}

TEST_P(LaunchConformance, StreamsOfOtherKindsAreRefused) {
  for (const DeviceKind& other : AllDeviceKinds()) {
    if (other.name == GetParam().name || !other.available().ok()) continue;
    const auto device = *other.make(other.models.empty() ? "" : other.models[0]);
    const auto stream = *device->MakeStream();
    EXPECT_EQ(loaded_->MakeLauncher(0, stream.get()).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(LaunchConformance, LibraryOps) {
  const auto lhs = Upload(std::vector<float>{1, 2, 3, 4, 5, 6});
  const auto rhs = Upload(std::vector<float>{1, 0, 0, 1, 1, 1});
  const auto result = Upload(std::vector<float>(4));
  ASSERT_TRUE(
      launcher_->RunLibraryOp(0, std::vector<void*>{lhs->address(), rhs->address(), result->address()}).ok());
  EXPECT_EQ(Download(result->address(), 4), (std::vector<float>{4, 5, 10, 11}));
}

TEST_P(LaunchConformance, KernelsCallLibraryOps) {
  if (!HasCallbacks()) GTEST_SKIP() << "kernels of this kind return no error codes and cannot call functions";
  const auto count = Upload(std::vector<int32_t>{4});
  const auto lhs = Upload(std::vector<float>{1, 2, 3, 4, 5, 6});
  const auto rhs = Upload(std::vector<float>{1, 0, 0, 1, 1, 1});
  const auto result = Upload(std::vector<float>(4));
  const std::vector<void*> buffers = {count->address(), lhs->address(), rhs->address(), result->address()};
  ASSERT_TRUE(launcher_->RunKernel(Kernel("xlad_test_call_dot"), buffers, nullptr, 1).ok());
  EXPECT_EQ(Download(result->address(), 4), (std::vector<float>{4, 5, 10, 11}));
}

TEST_P(LaunchConformance, KernelsThatCallUnknownLibraryOpsFail) {
  if (!HasCallbacks()) GTEST_SKIP() << "kernels of this kind return no error codes and cannot call functions";
  const auto count = Upload(std::vector<int32_t>{1});
  (void)launcher_->RunKernel(Kernel("xlad_test_call_unknown_op"), std::vector<void*>{count->address()}, nullptr, 1);
  EXPECT_THAT(Message(stream_->Synchronize()), HasSubstr("library op 99"));
}

TEST_P(LaunchConformance, LibraryOpsCheckTheirNumberAndBuffers) {
  for (const int op : {-1, 1, 99}) {
    const auto stream = MakeStream();
    const auto launcher = *loaded_->MakeLauncher(0, stream.get());
    absl::Status status = launcher->RunLibraryOp(op, {});
    if (status.ok()) status = stream->Synchronize();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << op;
  }
  const auto lhs = Upload(Sequence(6));
  absl::Status status = launcher_->RunLibraryOp(0, std::vector<void*>{lhs->address(), lhs->address()});
  if (status.ok()) status = stream_->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("found 2 buffers, expected 3"));
}

TEST_P(LaunchConformance, FreedBuffersAreRefused) {
  if (!ChecksAddresses()) GTEST_SKIP() << "this kind does not check addresses";
  const auto count = Upload(std::vector<int32_t>{1});
  const std::vector<void*> buffers = {count->address(), FreedAddress()};
  EXPECT_EQ(launcher_->RunKernel(Kernel("xlad_test_partition"), buffers, nullptr, 1).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(LaunchConformance, ThreadsLaunchConcurrently) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto stream = MakeStream();
      const auto launcher = *loaded_->MakeLauncher(t, stream.get());
      const auto count = *device_->Allocate(4), x = *device_->Allocate(4000);
      for (int round = 0; round < 100; ++round) {
        const auto kernel = loaded_->FindKernel("xlad_test_partition");
        if (!kernel.ok()) {
          ++wrong;
          return;
        }
        std::vector<float> found(1000);
        wrong += !stream->CopyToDevice(count->address(), BytesOf(std::vector<int32_t>{1000})).ok();
        wrong += !stream->FillZero(x->address(), 4000).ok();
        wrong += !launcher->RunKernel(*kernel, std::vector<void*>{count->address(), x->address()}, nullptr, 1).ok();
        wrong += !stream->CopyToHost(MutableBytesOf(found), x->address()).ok();
        wrong += !stream->Synchronize().ok() || found != std::vector<float>(1000, static_cast<float>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(LaunchConformance, ThreadsLoadConcurrently) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  const Executable executable = MakeKernelExecutable();
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        const auto loaded = device_->Load(executable);
        wrong += !loaded.ok() || !(*loaded)->FindKernel("xlad_test_add").ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Load, LoadConformance, ::testing::ValuesIn(AllKinds()), KindName);
INSTANTIATE_TEST_SUITE_P(Launch, LaunchConformance, ::testing::ValuesIn(AllKinds()), KindName);

}  // namespace
}  // namespace xlad::runtime
