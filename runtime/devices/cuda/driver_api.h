// The functions of NVIDIA's driver (libcuda.so.1) that xlad calls. The types are declared here, so that xlad can be
// built without CUDA. driver_api_test.cc compares the declarations with CUDA's header if CUDA is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xlad::runtime::cuda {

// CUresult.
using Result = int;
inline constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100,
                        kInvalidDevice = 101, kInvalidContext = 201, kInvalidPtx = 218, kUnsupportedPtxVersion = 222,
                        kInvalidHandle = 400, kNotFound = 500, kNotReady = 600, kIllegalAddress = 700,
                        kLaunchOutOfResources = 701, kMisalignedAddress = 716, kLaunchFailed = 719, kNotPermitted = 800,
                        kNotSupported = 801, kCaptureUnsupported = 900, kCaptureInvalidated = 901,
                        kGraphUpdateFailure = 910;

using DeviceId = int;                      // CUdevice
using DevicePointer = unsigned long long;  // NOLINT: CUdeviceptr
using ContextHandle = struct ContextObject*;
using ModuleHandle = struct ModuleObject*;
using FunctionHandle = struct FunctionObject*;
using StreamHandle = struct StreamObject*;
using EventHandle = struct EventObject*;
using PoolHandle = struct PoolObject*;
using GraphHandle = struct GraphObject*;
using GraphExecHandle = struct GraphExecObject*;
using GraphNodeHandle = struct GraphNodeObject*;
using HostFunction = void (*)(void*);

// CUdevice_attribute.
inline constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76, kMemoryPoolsSupported = 115;
inline constexpr unsigned kStreamNonBlocking = 1;                          // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kEventDisableTiming = 2;                         // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned kEventBlockingSync = 1;                          // CU_EVENT_BLOCKING_SYNC
inline constexpr unsigned kHostAllocPortable = 1;                          // CU_MEMHOSTALLOC_PORTABLE
inline constexpr int kPoolReleaseThreshold = 4;                            // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
inline constexpr int kCaptureThreadLocal = 1;                              // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
inline constexpr int kJitErrorLogBuffer = 5, kJitErrorLogBufferBytes = 6;  // CU_JIT_ERROR_LOG_BUFFER, _SIZE_BYTES

// CUgraphExecUpdateResultInfo.
struct GraphUpdateInfo {
  int result;
  GraphNodeHandle error_node, error_from_node;
};

// CUipcMemHandle.
struct IpcHandle {
  char bytes[64];
};
inline constexpr unsigned kIpcLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

#define XLAD_CUDA_LAUNCH_PARAMETERS                                                                               \
  FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
      unsigned block_z, unsigned shared_bytes, StreamHandle stream, void **arguments, void **extra

// Each function with its parameters. The names are those of the symbols in the library.
#define XLAD_CUDA_FUNCTIONS(F)                                                                                         \
  F(cuInit, (unsigned flags))                                                                                          \
  F(cuDriverGetVersion, (int* version))                                                                                \
  F(cuGetErrorName, (Result error, const char** text))                                                                 \
  F(cuGetErrorString, (Result error, const char** text))                                                               \
  F(cuDeviceGetCount, (int* count))                                                                                    \
  F(cuDeviceGet, (DeviceId * device, int ordinal))                                                                     \
  F(cuDeviceGetName, (char* name, int length, DeviceId device))                                                        \
  F(cuDeviceGetPCIBusId, (char* address, int length, DeviceId device))                                                 \
  F(cuDeviceGetAttribute, (int* value, int attribute, DeviceId device))                                                \
  F(cuDevicePrimaryCtxRetain, (ContextHandle * context, DeviceId device))                                              \
  F(cuDevicePrimaryCtxRelease_v2, (DeviceId device))                                                                   \
  F(cuCtxSetCurrent, (ContextHandle context))                                                                          \
  F(cuModuleLoadDataEx, (ModuleHandle * module, const void* image, unsigned num_options, int* options, void** values)) \
  F(cuModuleUnload, (ModuleHandle module))                                                                             \
  F(cuModuleGetFunction, (FunctionHandle * function, ModuleHandle module, const char* name))                           \
  F(cuLaunchKernel, (XLAD_CUDA_LAUNCH_PARAMETERS))                                                                     \
  F(cuLaunchHostFunc, (StreamHandle stream, HostFunction function, void* argument))                                    \
  F(cuStreamCreate, (StreamHandle * stream, unsigned flags))                                                           \
  F(cuStreamDestroy_v2, (StreamHandle stream))                                                                         \
  F(cuStreamSynchronize, (StreamHandle stream))                                                                        \
  F(cuStreamWaitEvent, (StreamHandle stream, EventHandle event, unsigned flags))                                       \
  F(cuEventCreate, (EventHandle * event, unsigned flags))                                                              \
  F(cuEventDestroy_v2, (EventHandle event))                                                                            \
  F(cuEventRecord, (EventHandle event, StreamHandle stream))                                                           \
  F(cuEventQuery, (EventHandle event))                                                                                 \
  F(cuEventSynchronize, (EventHandle event))                                                                           \
  F(cuMemGetInfo_v2, (size_t* free, size_t* total))                                                                    \
  F(cuMemAlloc_v2, (DevicePointer * address, size_t bytes))                                                            \
  F(cuMemFree_v2, (DevicePointer address))                                                                             \
  F(cuMemAllocAsync, (DevicePointer * address, size_t bytes, StreamHandle stream))                                     \
  F(cuMemFreeAsync, (DevicePointer address, StreamHandle stream))                                                      \
  F(cuDeviceGetDefaultMemPool, (PoolHandle * pool, DeviceId device))                                                   \
  F(cuMemPoolSetAttribute, (PoolHandle pool, int attribute, void* value))                                              \
  F(cuIpcGetMemHandle, (IpcHandle * handle, DevicePointer address))                                                    \
  F(cuIpcOpenMemHandle_v2, (DevicePointer * address, IpcHandle handle, unsigned flags))                                \
  F(cuIpcCloseMemHandle, (DevicePointer address))                                                                      \
  F(cuMemHostAlloc, (void** memory, size_t bytes, unsigned flags))                                                     \
  F(cuMemFreeHost, (void* memory))                                                                                     \
  F(cuMemcpyAsync, (DevicePointer to, DevicePointer from, size_t bytes, StreamHandle stream))                          \
  F(cuMemcpyHtoDAsync_v2, (DevicePointer to, const void* from, size_t bytes, StreamHandle stream))                     \
  F(cuMemcpyDtoHAsync_v2, (void* to, DevicePointer from, size_t bytes, StreamHandle stream))                           \
  F(cuMemsetD8Async, (DevicePointer to, unsigned char value, size_t bytes, StreamHandle stream))

// The functions of graphs, without which xlad launches each kernel by its own call.
#define XLAD_CUDA_GRAPH_FUNCTIONS(F)                                                               \
  F(cuStreamBeginCapture_v2, (StreamHandle stream, int mode))                                      \
  F(cuStreamEndCapture, (StreamHandle stream, GraphHandle * graph))                                \
  F(cuGraphInstantiateWithFlags, (GraphExecHandle * exec, GraphHandle graph, unsigned long long flags)) /* NOLINT */ \
  F(cuGraphExecUpdate_v2, (GraphExecHandle exec, GraphHandle graph, GraphUpdateInfo * info))       \
  F(cuGraphLaunch, (GraphExecHandle exec, StreamHandle stream))                                    \
  F(cuGraphExecDestroy, (GraphExecHandle exec))                                                    \
  F(cuGraphDestroy, (GraphHandle graph))

}  // namespace xlad::runtime::cuda
