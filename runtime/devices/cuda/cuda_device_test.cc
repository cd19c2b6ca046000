// Tests failures of NVIDIA's driver and the kernels of library ops, which the conformance suite does not test. The
// driver is replaced by a test double (tests/cuda_driver_double).
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <thread>

#include "absl/strings/escaping.h"
#include "base/file_descriptor.h"
#include "base/process/spawn.h"
#include "runtime/devices/cuda/cuda_device_fixture.h"
#include "runtime/devices/cuda/cuda_module.h"
#include "runtime/devices/cuda/gpu.h"

namespace xlad::runtime {
namespace {

using tensor::ElementType;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Kernel(const std::string& name, const std::string& body) {
  return ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry " + name +
         "(.param .u64 x, .param .u64 scratch, .param .u64 api)\n.reqntid 32, 1, 1\n{\n" + body + "\nret;\n}\n";
}

TEST_F(CudaDeviceTest, WithoutADriver) {
  const absl::Status status = cuda::LoadDriver("libcuda_that_is_not_installed.so.1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("libcuda_that_is_not_installed.so.1) cannot be loaded"),
                                     HasSubstr("install the driver"), HasSubstr("gpu_sim")));
}

TEST_F(CudaDeviceTest, ALibraryWithoutTheDriversFunctions) {
  EXPECT_THAT(Message(cuda::LoadDriver("libm.so.6").status()), HasSubstr("libm.so.6 does not report its version"));
}

TEST_F(CudaDeviceTest, AnEmptyVariableNamesNoDriver) {
  const char* const before = std::getenv(cuda::kDriverVariable);
  const std::string saved = before == nullptr ? "" : before;
  setenv(cuda::kDriverVariable, "", /*overwrite=*/1);
  EXPECT_EQ(cuda::NamedDriver(), nullptr);
  setenv(cuda::kDriverVariable, "libother.so", /*overwrite=*/1);
  EXPECT_STREQ(cuda::NamedDriver(), "libother.so");
  unsetenv(cuda::kDriverVariable);
  EXPECT_EQ(cuda::NamedDriver(), nullptr);
  if (before != nullptr) setenv(cuda::kDriverVariable, saved.c_str(), /*overwrite=*/1);
}

TEST_F(CudaDeviceTest, ADriverThatIsTooOld) {
  Configure("version=11040");
  const absl::Status status = cuda::LoadDriver(kDouble).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("for CUDA 11.4, expected CUDA 12.0 or later")));
}

TEST_F(CudaDeviceTest, WithoutAGpu) {
  for (const char* const settings : {"devices=0", "fail=cuInit:100"}) {
    Configure(settings);
    const absl::Status status = cuda::LoadDriver(kDouble).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << settings;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("finds no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES"))) << settings;
  }
  Configure("fail=cuInit:3");
  EXPECT_THAT(Message(cuda::LoadDriver(kDouble).status()),
              HasSubstr("cannot be initialized: CUDA_ERROR_NOT_INITIALIZED (3)"));
}

TEST_F(CudaDeviceTest, AGpuThatIsTooOld) {
  Configure("capability=75");
  const absl::Status status = Make().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("GPU 0 (test double): found compute capability 7.5, expected 8.0 or later"));
}

TEST_F(CudaDeviceTest, TheTargetIsTheNewestThatGpuAndCompilerSupport) {
  for (const auto& [capability, target] : std::map<int, std::string>{{80, "sm_80"}, {89, "sm_89"}, {120, "sm_90"}}) {
    Configure(absl::StrCat("capability=", capability));
    const auto gpu = cuda::Gpu::Open(*cuda::LoadDriver(kDouble), 0);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    EXPECT_EQ((*gpu)->code_target(), target);
  }
}

// Tests GPUs with and without memory pools.
TEST_F(CudaDeviceTest, OutOfMemory) {
  for (const char* const pools : {"0", "1"}) {
    Configure(absl::StrCat("memory=1048576,pools=", pools));
    const auto device = Make();
    ASSERT_TRUE(device.ok()) << device.status();
    auto first = (*device)->Allocate(1 << 19);
    ASSERT_TRUE(first.ok()) << first.status();
    const absl::Status status = (*device)->Allocate((1 << 19) + 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(Message(status),
                HasSubstr("cuda: cannot allocate 524289 bytes of device memory on GPU 0 (test double): "
                          "524288 of its 1048576 bytes are free"));
    first->reset();
    EXPECT_TRUE((*device)->Allocate(1 << 20).ok()) << "freed memory can be allocated again";
  }
}

TEST_F(CudaDeviceTest, SharedMemoryIsKeptAndUsedAgain) {
  Configure("memory=16777216");
  const auto gpu = cuda::Gpu::Open(*cuda::LoadDriver(kDouble), 0);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const auto large = (*gpu)->AllocateShared(6 << 20), small = (*gpu)->AllocateShared(1);
  ASSERT_TRUE(large.ok() && small.ok()) << large.status() << small.status();
  (*gpu)->FreeShared(*large);
  (*gpu)->FreeShared(*small);
  EXPECT_THAT(Message((*gpu)->Allocate(12 << 20).status()),
              HasSubstr("; 8388608 bytes of memory that earlier programs"));
  const auto first = (*gpu)->AllocateShared(2 << 20), second = (*gpu)->AllocateShared(5 << 20);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(first->address, small->address);
  EXPECT_EQ(second->address, large->address);
}

// Drivers give handles only for memory of cuMemAlloc that has not been freed.
TEST_F(CudaDeviceTest, MemoryOfAPoolIsNotShared) {
  const cuda::Driver* const driver = *cuda::LoadDriver(kDouble);
  const auto gpu = cuda::Gpu::Open(driver, 0);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const auto address = (*gpu)->Allocate(2 << 20);
  ASSERT_TRUE(address.ok()) << address.status();
  cuda::IpcHandle handle{};
  EXPECT_EQ(driver->cuIpcGetMemHandle(&handle, *address), cuda::kInvalidValue);
  (*gpu)->Free(*address);
  const auto shared = (*gpu)->AllocateShared(2 << 20);
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ(driver->cuIpcGetMemHandle(&handle, shared->address), cuda::kSuccess);
  ASSERT_EQ(driver->cuMemFree_v2(shared->address), cuda::kSuccess);
  EXPECT_EQ(driver->cuIpcGetMemHandle(&handle, shared->address), cuda::kInvalidValue);
}

TEST_F(CudaDeviceTest, SharedMemoryOfTheSameProcessIsNotOpenedByTheDriver) {
  const cuda::Driver* const driver = *cuda::LoadDriver(kDouble);
  const auto gpu = cuda::Gpu::Open(driver, 0), other = cuda::Gpu::Open(driver, 0);
  ASSERT_TRUE(gpu.ok() && other.ok()) << gpu.status() << other.status();
  const auto shared = (*gpu)->AllocateShared(1);
  ASSERT_TRUE(shared.ok()) << shared.status();
  cuda::DevicePointer address = 0;
  EXPECT_EQ(driver->cuIpcOpenMemHandle_v2(&address, shared->handle, cuda::kIpcLazyPeerAccess), cuda::kInvalidContext);
  const auto opened = (*other)->OpenShared(shared->handle);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(*opened, shared->address);
  (*other)->CloseShared(*opened);
  EXPECT_TRUE((*other)->OpenShared(shared->handle).ok()) << "the memory is still shared";
  (*gpu)->FreeShared(*shared);
}

TEST_F(CudaDeviceTest, SharedMemoryOfAnotherGpuOfTheSameProcessIsRefused) {
  Configure("devices=2");
  const cuda::Driver* const driver = *cuda::LoadDriver(kDouble);
  const auto gpu = cuda::Gpu::Open(driver, 0), other = cuda::Gpu::Open(driver, 1);
  ASSERT_TRUE(gpu.ok() && other.ok()) << gpu.status() << other.status();
  const auto shared = (*gpu)->AllocateShared(1);
  ASSERT_TRUE(shared.ok()) << shared.status();
  const absl::Status status = (*other)->OpenShared(shared->handle).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(status), HasSubstr("GPU 1 (test double) cannot access the memory of GPU 0 (test double)"));
}

TEST_F(CudaDeviceTest, ADestroyedContextDoesNotBecomeCurrent) {
  Configure("devices=2");
  const cuda::Driver& driver = **cuda::LoadDriver(kDouble);
  cuda::ContextHandle context = nullptr;
  cuda::DevicePointer address = 0;
  ASSERT_EQ(driver.cuDevicePrimaryCtxRetain(&context, 1), cuda::kSuccess);
  EXPECT_EQ(driver.cuCtxSetCurrent(context), cuda::kSuccess);
  EXPECT_EQ(driver.cuMemAlloc_v2(&address, 512), cuda::kSuccess);
  EXPECT_EQ(driver.cuMemFree_v2(address), cuda::kSuccess);
  EXPECT_EQ(driver.cuCtxSetCurrent(nullptr), cuda::kSuccess);
  EXPECT_EQ(driver.cuMemAlloc_v2(&address, 512), cuda::kInvalidContext) << "no context is current";
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease_v2(1), cuda::kSuccess);
  EXPECT_EQ(driver.cuCtxSetCurrent(context), cuda::kInvalidContext) << "it is destroyed";
}

// A block that is never given back, such as one that is kept after a failure, does not outlive its GPU.
TEST_F(CudaDeviceTest, SharedMemoryEndsWithItsGpu) {
  const cuda::Driver* const driver = *cuda::LoadDriver(kDouble);
  auto gpu = cuda::Gpu::Open(driver, 0);
  const auto other = cuda::Gpu::Open(driver, 0);
  ASSERT_TRUE(gpu.ok() && other.ok()) << gpu.status() << other.status();
  const auto shared = (*gpu)->AllocateShared(1);
  ASSERT_TRUE(shared.ok()) << shared.status();
  *gpu = nullptr;
  EXPECT_FALSE((*other)->OpenShared(shared->handle).ok());
}

// Exports a block of 512 bytes to `ready`, and ends when no process has the other end of `stop` any more.
[[noreturn]] void ShareUntilStopped(const cuda::Driver& driver, int ready, int stop) {
  Configure("memory=1048576");  // A different size than the parent's.
  cuda::DevicePointer address = 0;
  cuda::IpcHandle handle{};
  cuda::ContextHandle context = nullptr;
  const bool is_shared = driver.cuDevicePrimaryCtxRetain(&context, 0) == cuda::kSuccess &&
                         driver.cuCtxSetCurrent(context) == cuda::kSuccess &&
                         driver.cuMemAlloc_v2(&address, 512) == cuda::kSuccess &&
                         driver.cuIpcGetMemHandle(&handle, address) == cuda::kSuccess &&
                         WriteAll(ready, absl::string_view(handle.bytes, sizeof handle.bytes));
  char end = 0;
  _exit(is_shared && read(stop, &end, 1) == 0 ? 0 : 1);
}

TEST_F(CudaDeviceTest, SharedMemoryOfAnotherProcessIsOpenedByTheDriver) {
  const cuda::Driver* const driver = *cuda::LoadDriver(kDouble);
  Pipe ready = *Pipe::Make(), stop = *Pipe::Make();
  const pid_t child = fork();  // Before this process has streams, because their threads do not survive a fork.
  ASSERT_GE(child, 0);
  if (child == 0) {
    stop.write_end.Close();
    ShareUntilStopped(*driver, ready.write_end.get(), stop.read_end.get());
  }
  ready.write_end.Close();
  cuda::IpcHandle handle{};
  ASSERT_EQ(read(ready.read_end.get(), handle.bytes, sizeof handle.bytes), ssize_t{sizeof handle.bytes});
  {
    const auto device = *Make();
    const auto stream = *device->MakeStream();
    const std::string text = absl::BytesToHexString(absl::string_view(handle.bytes, sizeof handle.bytes));
    for (int round = 0; round < 2; ++round) {
      auto first = *stream->OpenShared(text);
      const auto second = *stream->OpenShared(text);
      EXPECT_EQ(first, second);
      first = nullptr;
      // The memory is still open.
      const std::vector<std::byte> sent(512, std::byte{7});
      std::vector<std::byte> found(512);
      EXPECT_TRUE(stream->CopyToDevice(second.get(), sent).ok());
      EXPECT_TRUE(stream->CopyToHost(absl::MakeSpan(found), second.get()).ok());
      EXPECT_TRUE(stream->Synchronize().ok());
      EXPECT_EQ(found, sent);
    }
    const auto opened = *stream->OpenShared(text);
    std::vector<std::byte> more(513);
    const absl::Status copied = stream->CopyToHost(absl::MakeSpan(more), opened.get());
    EXPECT_FALSE(copied.ok() && stream->Synchronize().ok()) << "the block has 512 bytes";
  }
  stop.write_end.Close();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CudaDeviceTest, PtxThatDoesNotLoad) {
  const auto device = *Make();
  const absl::Status status = device->Load(MakeExecutable(Kernel("k", "add.q7 %r1, %r2, %r3;"))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("the driver cannot load the PTX of 'job'"), HasSubstr("CUDA_ERROR_INVALID_PTX (218)"),
                    HasSubstr("the log of the driver: line 7: "), HasSubstr("add.q7")));
  Configure("fail=cuModuleLoadDataEx:222");
  EXPECT_THAT(Message(device->Load(MakeExecutable(Kernel("k", ""))).status()),
              HasSubstr("install a later version of NVIDIA's driver"));
}

TEST_F(CudaDeviceTest, KernelsThatAModuleDoesNotHave) {
  const auto gpu = cuda::Gpu::Open(*cuda::LoadDriver(kDouble), 0);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const auto module = cuda::CudaModule::Load(*gpu, Kernel("k", ""), "job");
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE((*module)->Find("k").ok());
  const absl::Status status = (*module)->Find("gone").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Message(status), absl::StrCat("cuda: ", (*gpu)->name(), ": the code of 'job' has no kernel 'gone'"));
}

TEST_F(CudaDeviceTest, PtxWithoutTheSizeOfBlocks) {
  const auto device = *Make();
  const std::string ptx = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 x) { ret; }";
  EXPECT_THAT(Message(device->Load(MakeExecutable(ptx)).status()), HasSubstr("PTX of kernel 'k': expected .reqntid"));
}

TEST_F(CudaDeviceTest, LaunchesThatTheDriverRefuses) {
  const auto device = *Make();
  const auto loaded = *device->Load(MakeExecutable(Kernel("k", "")));
  const int kernel = *loaded->FindKernel("k");
  const auto stream = *device->MakeStream();
  const auto launcher = *loaded->MakeLauncher(0, stream.get());
  const auto memory = *device->Allocate(4);
  const std::vector<void*> buffers = {memory->address()};
  EXPECT_TRUE(launcher->RunKernel(kernel, buffers, nullptr, 1).ok());
  EXPECT_THAT(Message(launcher->RunKernel(kernel, {}, nullptr, 1)), HasSubstr("found 0 buffers, expected 1"));
  EXPECT_THAT(Message(launcher->RunKernel(kernel, buffers, nullptr, int64_t{1} << 31)),
              HasSubstr("tiles, expected 1 to"));
  ASSERT_TRUE(stream->Synchronize().ok());
  Configure("fail=cuLaunchKernel:701");
  const absl::Status status = launcher->RunKernel(kernel, buffers, nullptr, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("launch (the last kernel or library op: k)"),
                                     HasSubstr("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)")));
  EXPECT_EQ(stream->Synchronize(), status) << "the stream keeps its first error";
}

// The failure of a kernel is reported when the host waits for the stream or its events, and nothing hangs.
TEST_F(CudaDeviceTest, KernelsThatFail) {
  const auto device = *Make();
  const auto loaded = *device->Load(MakeExecutable(Kernel("bad", "mov.u64 %rd1, 8; st.global.u64 [%rd1], %rd1;")));
  const auto stream = *device->MakeStream();
  const auto launcher = *loaded->MakeLauncher(0, stream.get());
  const auto memory = *device->Allocate(4);
  ASSERT_TRUE(launcher->RunKernel(*loaded->FindKernel("bad"), std::vector<void*>{memory->address()}, nullptr, 1).ok());
  const auto event = stream->Record();
  const absl::Status status = stream->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("(the last kernel or library op: bad)"), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)")));
  if (event.ok()) {
    EXPECT_FALSE((*event)->Wait().ok());
    EXPECT_TRUE((*event)->IsDone());
  }
  std::vector<float> found(1);
  EXPECT_FALSE(stream->CopyToHost({reinterpret_cast<std::byte*>(found.data()), 4}, memory->address()).ok());
  EXPECT_EQ(stream->Synchronize(), status) << "the error is reported again";
}

// A caller that could record no event frees memory after Synchronize, so the work before the error must have ended.
TEST_F(CudaDeviceTest, SynchronizeWaitsAfterAnErrorToo) {
  const auto device = *Make();
  const auto loaded = *device->Load(MakeExecutable(Kernel("slow",
                                                          "mov.u32 %r1, 0;\n"
                                                          "$again: add.s32 %r1, %r1, 1;\n"
                                                          "setp.lt.s32 %p1, %r1, 20000;\n"
                                                          "@%p1 bra $again;")));
  const auto stream = *device->MakeStream();
  const auto launcher = *loaded->MakeLauncher(0, stream.get());
  const auto memory = *device->Allocate(4);
  ASSERT_TRUE(launcher->RunKernel(*loaded->FindKernel("slow"), std::vector<void*>{memory->address()}, nullptr, 1).ok());
  const auto event = stream->Record();
  ASSERT_TRUE(event.ok()) << event.status();
  Configure("fail=cuEventRecord:1");
  const absl::Status status = stream->Record().status();
  EXPECT_THAT(Message(status), HasSubstr("cuEventRecord"));
  // The other thread has no current context before this call.
  std::thread([&] { EXPECT_EQ(stream->Synchronize(), status); }).join();
  EXPECT_TRUE((*event)->IsDone());
}

TEST_F(CudaLibraryOpTest, Dots) {
  const DotDims cases[] = {
      {{2, 3}, {3, 2}, {2, 2}, {}, {1}, {0}},
      {{20, 37}, {37, 18}, {20, 18}, {}, {1}, {0}},
      {{70, 9}, {9, 65}, {70, 65}, {}, {1}, {0}},        // Uses the kernel with the large tile.
      {{9, 70}, {65, 9}, {70, 65}, {}, {0}, {1}},        // Both operands are transposed.
      {{3, 5, 4}, {3, 4, 6}, {3, 5, 6}, {0}, {2}, {1}},  // A batch of products.
      {{5, 3, 4, 2}, {4, 6, 2}, {5, 3, 6}, {}, {2, 3}, {0, 2}},
      {{4, 3, 5, 2}, {5, 6, 3, 2}, {4, 2, 6, 2}, {}, {1, 2}, {2, 0}},
      {{17}, {17}, {}, {}, {0}, {0}},
      {{3, 0}, {0, 2}, {3, 2}, {}, {1}, {0}},
  };
  const DotTypes types[] = {
      {ElementType::kF32, ElementType::kF32, ElementType::kF32},
      {ElementType::kBF16, ElementType::kBF16, ElementType::kF32},
      {ElementType::kBF16, ElementType::kBF16, ElementType::kBF16},
      {ElementType::kF16, ElementType::kF16, ElementType::kF16},
  };
  for (const DotDims& dims : cases) {
    for (const DotTypes& t : types) {
      const LibraryOp op = MakeDot(dims, t);
      Compare(op, op.dot());
    }
  }
}

ConvolutionOp::WindowDimension Window(int64_t size, int64_t stride, int64_t padding, int64_t dilation, int64_t base) {
  ConvolutionOp::WindowDimension window;
  window.set_size(size);
  window.set_stride(stride);
  window.set_padding_low(padding);
  window.set_padding_high(padding);
  window.set_window_dilation(dilation);
  window.set_base_dilation(base);
  return window;
}

TEST_F(CudaLibraryOpTest, Convolutions) {
  struct Case {
    int64_t groups;
    std::vector<ConvolutionOp::WindowDimension> window;
    bool reversal = false;
  };
  const Case cases[] = {
      {1, {Window(3, 1, 1, 1, 1), Window(3, 1, 1, 1, 1)}},
      {1, {Window(3, 2, 1, 1, 1), Window(2, 3, 0, 1, 1)}},
      {2, {Window(3, 1, 0, 2, 1), Window(3, 1, 2, 1, 1)}},
      {1, {Window(3, 1, 2, 1, 2), Window(3, 1, 2, 1, 2)}, true},  // The gradient of the input.
      {1, {Window(3, 2, 1, 1, 1)}},
      {1, {Window(2, 1, 0, 1, 1), Window(3, 1, 1, 1, 1), Window(1, 1, 0, 1, 1)}},
  };
  for (const Case& c : cases) {
    LibraryOp op;
    ConvolutionOp& convolution = *op.mutable_convolution();
    convolution.set_feature_group_count(c.groups);
    std::vector<int64_t> lhs = {2}, rhs, result = {2};
    for (size_t d = 0; d < c.window.size(); ++d) {
      ConvolutionOp::WindowDimension window = c.window[d];
      window.set_reversal(c.reversal);
      const int64_t size = 7 + static_cast<int64_t>(d), base = (size - 1) * window.base_dilation() + 1;
      const int64_t reach = (window.size() - 1) * window.window_dilation() + 1;
      lhs.push_back(size);
      rhs.push_back(window.size());
      result.push_back((base + 2 * window.padding_low() - reach) / window.stride() + 1);
      *convolution.add_window() = window;
      convolution.add_input_spatial(static_cast<int64_t>(d) + 1);
      convolution.add_kernel_spatial(static_cast<int64_t>(d));
      convolution.add_output_spatial(static_cast<int64_t>(d) + 1);
    }
    const auto n = static_cast<int64_t>(c.window.size());
    lhs.push_back(4), rhs.push_back(4 / c.groups), rhs.push_back(6), result.push_back(6);
    convolution.set_input_feature(n + 1);
    convolution.set_kernel_input_feature(n);
    convolution.set_kernel_output_feature(n + 1);
    convolution.set_output_feature(n + 1);
    for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
      SetShape(convolution.mutable_lhs(), type, lhs);
      SetShape(convolution.mutable_rhs(), type, rhs);
      SetShape(convolution.mutable_result(), type, result);
      Compare(op, convolution);
    }
  }
}

// There is no kernel for this op, so the host computes it on copies.
TEST_F(CudaLibraryOpTest, OpsWithoutAKernelRunOnTheHost) {
  LibraryOp op;
  FftOp& fft = *op.mutable_fft();
  SetShape(fft.mutable_operand(), ElementType::kF32, {3, 16});
  SetShape(fft.mutable_result(), ElementType::kC64, {3, 9});
  fft.set_kind(FftOp::RFFT);
  fft.set_dimensions(1);
  const std::vector<std::vector<std::byte>> inputs = {RandomBytes(fft.operand())};
  const auto expected = RunOn(MakeCpuDevice().get(), op, inputs, 3 * 9 * 8);
  const auto device = *Make();
  EXPECT_EQ(RunOn(device.get(), op, inputs, 3 * 9 * 8), expected);
}

}  // namespace
}  // namespace xlad::runtime
