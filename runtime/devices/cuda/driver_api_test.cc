// Compares the declarations of the driver's functions with those of CUDA's header, if it is installed.
#include "runtime/devices/cuda/driver_api.h"

#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>

#include "runtime/devices/cuda/same_function.h"

namespace xlad::runtime::cuda {
namespace {

#define XLAD_COMPARE(name, parameters)  \
  using Own_##name = Result parameters; \
  static_assert(SameFunction<Own_##name, decltype(::name)>::value, #name " differs from CUDA's declaration");
XLAD_CUDA_FUNCTIONS(XLAD_COMPARE)
XLAD_CUDA_GRAPH_FUNCTIONS(XLAD_COMPARE)
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(GraphUpdateInfo) == sizeof(CUgraphExecUpdateResultInfo));

TEST(DriverApiTest, ConstantsAreThoseOfCuda) {
  EXPECT_EQ(kSuccess, CUDA_SUCCESS);
  EXPECT_EQ(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(kNoDevice, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(kInvalidPtx, CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(kNotFound, CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(kNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(kNotPermitted, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(kCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(kCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(kGraphUpdateFailure, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(kComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(kComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(kMemoryPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  EXPECT_EQ(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(kEventBlockingSync, CU_EVENT_BLOCKING_SYNC);
  EXPECT_EQ(kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
  EXPECT_EQ(kIpcLazyPeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  EXPECT_EQ(kPoolReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
  EXPECT_EQ(kJitErrorLogBuffer, CU_JIT_ERROR_LOG_BUFFER);
  EXPECT_EQ(kJitErrorLogBufferBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
}

}  // namespace
}  // namespace xlad::runtime::cuda
#else
TEST(DriverApiTest, ConstantsAreThoseOfCuda) { GTEST_SKIP() << "cuda.h was not found when this test was compiled"; }
#endif
