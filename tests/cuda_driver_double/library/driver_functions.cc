// The functions of NVIDIA's driver that xlad calls, on memory of the host, with the results on which xlad relies.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "tests/cuda_driver_double/driver_double_hooks.h"
#include "tests/cuda_driver_double/library/driver_objects.h"

namespace xlad::runtime::cuda {

// A function whose parameters differ from driver_api.h does not compile.
#define XLAD_DECLARE(name, parameters) extern "C" __attribute__((visibility("default"))) Result name parameters;
XLAD_CUDA_FUNCTIONS(XLAD_DECLARE)
#undef XLAD_DECLARE

struct PoolObject {};
struct ContextObject {
  int users = 0;       // The calls of cuDevicePrimaryCtxRetain without one of cuDevicePrimaryCtxRelease.
  int64_t number = 0;  // Changes when the context is destroyed.
};
struct EventObject {
  std::shared_ptr<cuda_double::EventState> state = std::make_shared<cuda_double::EventState>();
};

namespace {

using cuda_double::DriverDouble;
using cuda_double::WindowMemory;

// The primary contexts, by device. A context is destroyed with the last call of cuDevicePrimaryCtxRelease.
std::mutex context_mutex;
auto& contexts = *new std::map<DeviceId, ContextObject>();
// The current context of a thread.
struct CurrentContext {
  const ContextObject* context = nullptr;
  int64_t number = 0;
};
thread_local CurrentContext current;

PoolObject the_pool;
// The addresses that cuMemAllocAsync has returned. Memory of pools has no handles for other processes.
std::mutex pool_mutex;
auto& pool_addresses = *new std::set<DevicePointer>();

bool IsOfPool(DevicePointer address) {
  const std::lock_guard<std::mutex> lock(pool_mutex);
  return pool_addresses.contains(address);
}

cuda_double::WindowMemory& Memory() { return DriverDouble::Get().memory(); }

struct ErrorName {
  Result code;
  const char* name;
  const char* text;
};
constexpr ErrorName kErrors[] = {
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kInvalidPtx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {kUnsupportedPtxVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the PTX was compiled with an unsupported toolchain"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {kMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kGraphUpdateFailure, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
     "the graph update was not performed because it included changes which violated constraints"},
};

const ErrorName* FindError(Result code) {
  const auto* const found = std::find_if(std::begin(kErrors), std::end(kErrors),
                                         [code](const ErrorName& error) { return error.code == code; });
  return found == std::end(kErrors) ? nullptr : found;
}

std::vector<std::byte> PackArguments(const cuda_double::Function& kernel, void** arguments) {
  std::vector<std::byte> packed(static_cast<size_t>(kernel.parameter_bytes));
  for (size_t p = 0; p < kernel.parameters.size(); ++p) {
    const cuda_double::Parameter& parameter = kernel.parameters[p];
    std::memcpy(packed.data() + parameter.offset, arguments[p], static_cast<size_t>(parameter.bytes));
  }
  return packed;
}

// Replaces the barrier with this number by spaces, so that the numbers of lines stay the same.
std::string WithoutBarrier(std::string ptx, int number) {
  size_t at = ptx.find("bar.sync");
  for (int i = 0; i < number && at != std::string::npos; ++i) at = ptx.find("bar.sync", at + 1);
  for (; number >= 0 && at < ptx.size(); ++at) {
    const bool is_last = ptx[at] == ';';
    ptx[at] = ' ';
    if (is_last) break;
  }
  return ptx;
}

thread_local StreamObject::Capture* capture_of_thread = nullptr;

Result EnqueueHostCopy(StreamHandle stream, void* to, const void* from, size_t bytes) {
  if (const Result refused = RefuseCapture(stream); refused != kSuccess) return refused;
  if (to == nullptr || from == nullptr) return kInvalidValue;
  stream->queue.Add([to, from, bytes] {
    std::memcpy(to, from, bytes);
    return kSuccess;
  });
  return kSuccess;
}

}  // namespace

Result RunOperation(const Operation& operation) {
  const auto find = [&](DevicePointer at) { return Memory().Range(at, operation.bytes); };
  switch (operation.kind) {
    case Operation::Kind::kKernel: {
      const std::shared_ptr<const cuda_double::Program> program = operation.program.lock();
      if (program == nullptr) return kInvalidHandle;
      const bool checks_races = DriverDouble::Get().settings().races != 0;
      return cuda_double::RunGrid(*operation.kernel, Memory(), operation.arguments.data(),
                                  {operation.blocks, operation.threads, checks_races});
    }
    case Operation::Kind::kCopy:
      if (find(operation.to) == nullptr || find(operation.from) == nullptr) return kIllegalAddress;
      std::memcpy(find(operation.to), find(operation.from), operation.bytes);
      return kSuccess;
    case Operation::Kind::kFill:
      if (find(operation.to) == nullptr) return kIllegalAddress;
      std::memset(find(operation.to), operation.value, operation.bytes);
      return kSuccess;
    case Operation::Kind::kOther:
      return operation.other();
  }
  return kInvalidValue;
}

Result CheckOperation(const Operation& operation) {
  if (operation.kind != Operation::Kind::kKernel) {
    const bool is_copy = operation.kind == Operation::Kind::kCopy;
    if (is_copy && Memory().Range(operation.from, operation.bytes) == nullptr) return kIllegalAddress;
    const bool has_target = is_copy || operation.kind == Operation::Kind::kFill;
    return has_target && Memory().Range(operation.to, operation.bytes) == nullptr ? kIllegalAddress : kSuccess;
  }
  if (operation.program.expired()) return kInvalidHandle;
  for (const cuda_double::Parameter& parameter : operation.kernel->parameters) {
    uint64_t value = 0;
    if (parameter.bytes != sizeof(value)) continue;
    std::memcpy(&value, operation.arguments.data() + parameter.offset, sizeof(value));
    if (Memory().IsFreed(value)) return kIllegalAddress;
  }
  return kSuccess;
}

Result Enqueue(StreamHandle stream, Operation operation) {
  if (stream->capture != nullptr) {
    stream->capture->nodes.push_back(std::move(operation));
  } else {
    stream->queue.Add([operation = std::move(operation)] { return RunOperation(operation); });
  }
  return kSuccess;
}

Result RefuseCapture(StreamHandle stream) {
  if (stream->capture == nullptr) return kSuccess;
  stream->capture->is_valid = false;
  return kCaptureUnsupported;
}

Result RefuseInCapture() {
  if (capture_of_thread == nullptr) return kSuccess;
  capture_of_thread->is_valid = false;
  return kCaptureUnsupported;
}

void SetCaptureOfThread(StreamObject::Capture* capture) { capture_of_thread = capture; }

bool HasContext() {
  const std::lock_guard<std::mutex> lock(context_mutex);
  return current.context != nullptr && current.context->users > 0 && current.number == current.context->number;
}

// Enters a function that must not be called for a stream whose work is captured.
#define XLAD_ENTER_WITHOUT_CAPTURE(name, stream) \
  XLAD_ENTER_WITH_CONTEXT(name);                 \
  if (const Result refused = RefuseCapture(stream); refused != kSuccess) return refused
// Enters a function that must not be called by a thread that captures.
#define XLAD_ENTER_OUTSIDE_CAPTURE(name) \
  XLAD_ENTER_WITH_CONTEXT(name);         \
  if (const Result refused = RefuseInCapture(); refused != kSuccess) return refused

Result cuInit(unsigned) {
  XLAD_ENTER(cuInit);
  return DriverDouble::Get().settings().devices > 0 ? kSuccess : kNoDevice;
}
Result cuDriverGetVersion(int* version) {
  XLAD_ENTER(cuDriverGetVersion);
  *version = DriverDouble::Get().settings().version;
  return kSuccess;
}
Result cuGetErrorName(Result error, const char** text) {
  const ErrorName* const found = FindError(error);
  *text = found != nullptr ? found->name : nullptr;
  return found != nullptr ? kSuccess : kInvalidValue;
}
Result cuGetErrorString(Result error, const char** text) {
  const ErrorName* const found = FindError(error);
  *text = found != nullptr ? found->text : nullptr;
  return found != nullptr ? kSuccess : kInvalidValue;
}

// Devices.
Result cuDeviceGetCount(int* count) {
  XLAD_ENTER(cuDeviceGetCount);
  *count = DriverDouble::Get().settings().devices;
  return kSuccess;
}
Result cuDeviceGet(DeviceId* device, int ordinal) {
  XLAD_ENTER(cuDeviceGet);
  *device = ordinal;
  return ordinal >= 0 && ordinal < DriverDouble::Get().settings().devices ? kSuccess : kInvalidDevice;
}
Result cuDeviceGetName(char* name, int length, DeviceId) {
  XLAD_ENTER(cuDeviceGetName);
  std::snprintf(name, static_cast<size_t>(length), "test double");
  return kSuccess;
}
Result cuDeviceGetPCIBusId(char* address, int length, DeviceId device) {
  XLAD_ENTER(cuDeviceGetPCIBusId);
  const int number = DriverDouble::Get().settings().visible[static_cast<size_t>(device)];
  std::snprintf(address, static_cast<size_t>(length), "0000:%02X:00.0", static_cast<unsigned>(number + 1));
  return kSuccess;
}
Result cuDeviceGetAttribute(int* value, int attribute, DeviceId) {
  XLAD_ENTER(cuDeviceGetAttribute);
  const cuda_double::Settings& settings = DriverDouble::Get().settings();
  if (attribute == kComputeCapabilityMajor) *value = settings.capability / 10;
  if (attribute == kComputeCapabilityMinor) *value = settings.capability % 10;
  if (attribute == kMemoryPoolsSupported) *value = settings.pools;
  return kSuccess;
}
Result cuDevicePrimaryCtxRetain(ContextHandle* context, DeviceId device) {
  XLAD_ENTER(cuDevicePrimaryCtxRetain);
  const std::lock_guard<std::mutex> lock(context_mutex);
  *context = &contexts[device];
  ++(*context)->users;
  return kSuccess;
}
Result cuDevicePrimaryCtxRelease_v2(DeviceId device) {
  const std::lock_guard<std::mutex> lock(context_mutex);
  ContextObject& context = contexts[device];
  if (context.users == 0) return kInvalidContext;
  if (--context.users == 0) ++context.number;
  return kSuccess;
}
// With null, the thread has no current context afterwards. After an error of asynchronous work, the context becomes
// current nevertheless.
Result cuCtxSetCurrent(ContextHandle context) {
  const Result entered = DriverDouble::Get().Enter("cuCtxSetCurrent");
  if (entered != kSuccess && entered != DriverDouble::Get().broken()) return entered;
  const std::lock_guard<std::mutex> lock(context_mutex);
  if (context != nullptr && context->users == 0) return kInvalidContext;
  current = {context, context == nullptr ? 0 : context->number};
  return entered;
}

// Modules.
Result cuModuleLoadDataEx(ModuleHandle* module, const void* image, unsigned num_options, int* options, void** values) {
  XLAD_ENTER_OUTSIDE_CAPTURE(cuModuleLoadDataEx);
  auto loaded = std::make_unique<ModuleObject>();
  std::string error;
  const std::string ptx = WithoutBarrier(static_cast<const char*>(image), DriverDouble::Get().settings().drop_barrier);
  loaded->program = cuda_double::ParsePtx(ptx, &Memory(), &error);
  if (loaded->program != nullptr) {
    for (const auto& [name, function] : loaded->program->functions) {
      loaded->functions[name] = {function.get(), loaded->program, false};
    }
    *module = loaded.release();
    return kSuccess;
  }
  char* log = nullptr;
  size_t log_bytes = 0;
  for (unsigned o = 0; o < num_options; ++o) {
    if (options[o] == kJitErrorLogBuffer) log = static_cast<char*>(values[o]);
    if (options[o] == kJitErrorLogBufferBytes) log_bytes = reinterpret_cast<size_t>(values[o]);
  }
  if (log != nullptr) std::snprintf(log, log_bytes, "%s", error.c_str());
  return kInvalidPtx;
}
Result cuModuleUnload(ModuleHandle module) {
  if (!HasContext()) return kInvalidContext;
  for (const uint64_t address : module->program->variables) Memory().Free(address);
  delete module;
  return kSuccess;
}
Result cuModuleGetFunction(FunctionHandle* function, ModuleHandle module, const char* name) {
  XLAD_ENTER_WITH_CONTEXT(cuModuleGetFunction);
  const auto found = module->functions.find(name);
  if (found == module->functions.end() || !found->second.function->is_kernel) return kNotFound;
  *function = &found->second;
  return kSuccess;
}
Result cuLaunchKernel(XLAD_CUDA_LAUNCH_PARAMETERS) {
  XLAD_ENTER_WITH_CONTEXT(cuLaunchKernel);
  const cuda_double::Function& kernel = *function->function;
  if (grid_x < 1 || grid_y != 1 || grid_z != 1 || block_x < 1 || block_y != 1 || block_z != 1) return kInvalidValue;
  if (kernel.required_threads != 0 && kernel.required_threads != static_cast<int>(block_x)) return kInvalidValue;
  if (block_x > 1024 || kernel.shared_bytes > 48 << 10) return kLaunchOutOfResources;
  // A driver may load the code of a kernel at its first launch, which may not be possible during a capture.
  if (!function->is_loaded && stream->capture != nullptr) return RefuseCapture(stream);
  function->is_loaded = true;
  Operation launch;
  launch.kind = Operation::Kind::kKernel;
  launch.kernel = &kernel;
  launch.program = function->program;
  launch.blocks = grid_x;
  launch.threads = block_x;
  launch.arguments = PackArguments(kernel, arguments);
  return Enqueue(stream, std::move(launch));
}
Result cuLaunchHostFunc(StreamHandle stream, HostFunction function, void* argument) {
  XLAD_ENTER_WITHOUT_CAPTURE(cuLaunchHostFunc, stream);
  stream->queue.Add([function, argument] {
    function(argument);
    return kSuccess;
  });
  return kSuccess;
}

// Streams and events.
Result cuStreamCreate(StreamHandle* stream, unsigned) {
  XLAD_ENTER_WITH_CONTEXT(cuStreamCreate);
  *stream = new StreamObject;
  return kSuccess;
}
Result cuStreamDestroy_v2(StreamHandle stream) {
  if (!HasContext()) return kInvalidContext;
  delete stream;
  return kSuccess;
}
Result cuStreamSynchronize(StreamHandle stream) {
  XLAD_ENTER_WITHOUT_CAPTURE(cuStreamSynchronize, stream);
  return stream->queue.Wait();
}
Result cuStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned) {
  XLAD_ENTER_WITHOUT_CAPTURE(cuStreamWaitEvent, stream);
  const std::shared_ptr<cuda_double::EventState> state = event->state;
  const std::lock_guard<std::mutex> lock(state->mutex);
  stream->queue.Add([state, number = state->recorded] {
    std::unique_lock<std::mutex> waiting(state->mutex);
    state->changed.wait(waiting, [&] { return state->reached >= number; });
    return kSuccess;
  });
  return kSuccess;
}
Result cuEventCreate(EventHandle* event, unsigned) {
  XLAD_ENTER_WITH_CONTEXT(cuEventCreate);
  *event = new EventObject;
  return kSuccess;
}
Result cuEventDestroy_v2(EventHandle event) {
  if (!HasContext()) return kInvalidContext;
  delete event;
  return kSuccess;
}
Result cuEventRecord(EventHandle event, StreamHandle stream) {
  XLAD_ENTER_WITHOUT_CAPTURE(cuEventRecord, stream);
  const std::shared_ptr<cuda_double::EventState> state = event->state;
  const std::lock_guard<std::mutex> lock(state->mutex);
  // The event is reached after an error, too, so that waits for it end.
  stream->queue.Add(
      [state, number = ++state->recorded] {
        const std::lock_guard<std::mutex> reaching(state->mutex);
        state->reached = std::max(state->reached, number);
        state->changed.notify_all();
        return kSuccess;
      },
      /*always=*/true);
  return kSuccess;
}
Result cuEventQuery(EventHandle event) {
  XLAD_ENTER_WITH_CONTEXT(cuEventQuery);
  const std::lock_guard<std::mutex> lock(event->state->mutex);
  return event->state->reached >= event->state->recorded ? kSuccess : kNotReady;
}
Result cuEventSynchronize(EventHandle event) {
  XLAD_ENTER_OUTSIDE_CAPTURE(cuEventSynchronize);
  cuda_double::EventState& state = *event->state;
  std::unique_lock<std::mutex> lock(state.mutex);
  state.changed.wait(lock, [&, number = state.recorded] { return state.reached >= number; });
  return DriverDouble::Get().broken();
}

// Memory.
Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  XLAD_ENTER_WITH_CONTEXT(cuMemGetInfo_v2);
  *free = Memory().free_bytes();
  *total = Memory().total_bytes();
  return kSuccess;
}
Result cuMemAlloc_v2(DevicePointer* address, size_t bytes) {
  XLAD_ENTER_OUTSIDE_CAPTURE(cuMemAlloc_v2);
  if (bytes == 0) return kInvalidValue;
  *address = Memory().Allocate(bytes);
  const std::lock_guard<std::mutex> lock(pool_mutex);
  pool_addresses.erase(*address);
  return *address != 0 ? kSuccess : kOutOfMemory;
}
Result cuMemFree_v2(DevicePointer address) {
  if (!HasContext()) return kInvalidContext;
  if (const Result refused = RefuseInCapture(); refused != kSuccess) return refused;
  return Memory().Free(address) ? kSuccess : kInvalidValue;
}
Result cuMemAllocAsync(DevicePointer* address, size_t bytes, StreamHandle stream) {
  XLAD_ENTER_OUTSIDE_CAPTURE(cuMemAllocAsync);
  *address = Memory().Allocate(bytes);
  if (*address == 0) {
    stream->queue.Wait();  // Earlier work of the stream may free memory.
    *address = Memory().Allocate(bytes);
  }
  if (*address == 0) return kOutOfMemory;
  const std::lock_guard<std::mutex> lock(pool_mutex);
  pool_addresses.insert(*address);
  return kSuccess;
}
Result cuMemFreeAsync(DevicePointer address, StreamHandle stream) {
  if (!HasContext()) return kInvalidContext;
  if (Memory().Range(address, 1) == nullptr) return kInvalidValue;
  stream->queue.Add([address] { return Memory().Free(address) ? kSuccess : kInvalidValue; }, /*always=*/true);
  return kSuccess;
}
Result cuDeviceGetDefaultMemPool(PoolHandle* pool, DeviceId) {
  XLAD_ENTER(cuDeviceGetDefaultMemPool);
  *pool = &the_pool;
  return kSuccess;
}
Result cuMemPoolSetAttribute(PoolHandle, int, void*) {
  XLAD_ENTER(cuMemPoolSetAttribute);
  return kSuccess;
}
Result cuIpcGetMemHandle(IpcHandle* handle, DevicePointer address) {
  XLAD_ENTER_WITH_CONTEXT(cuIpcGetMemHandle);
  WindowMemory::Exported exported;
  if (IsOfPool(address) || !Memory().Export(address, &exported)) return kInvalidValue;
  static_assert(sizeof exported <= sizeof *handle);
  *handle = {};
  std::memcpy(handle->bytes, &exported, sizeof exported);
  return kSuccess;
}
Result cuIpcOpenMemHandle_v2(DevicePointer* address, IpcHandle handle, unsigned flags) {
  XLAD_ENTER_OUTSIDE_CAPTURE(cuIpcOpenMemHandle_v2);
  if (flags != kIpcLazyPeerAccess) return kInvalidValue;
  WindowMemory::Exported exported;
  std::memcpy(&exported, handle.bytes, sizeof exported);
  // A driver opens only memory of other processes.
  if (exported.process == getpid()) return kInvalidContext;
  *address = Memory().Open(exported);
  return *address != 0 ? kSuccess : kInvalidValue;
}
Result cuIpcCloseMemHandle(DevicePointer address) {
  if (!HasContext()) return kInvalidContext;
  return Memory().Close(address) ? kSuccess : kInvalidValue;
}
Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  XLAD_ENTER_OUTSIDE_CAPTURE(cuMemHostAlloc);
  *memory = Memory().AllocatePinned(bytes);
  return *memory != nullptr ? kSuccess : kOutOfMemory;
}
Result cuMemFreeHost(void* memory) {
  if (!HasContext()) return kInvalidContext;
  return Memory().FreePinned(memory) ? kSuccess : kInvalidValue;
}

// Copies.
Result cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t bytes, StreamHandle stream) {
  XLAD_ENTER_WITH_CONTEXT(cuMemcpyAsync);
  if (to < from + bytes && from < to + bytes) return kInvalidValue;  // A real driver leaves the result undefined.
  if (Memory().Range(to, bytes) == nullptr || Memory().Range(from, bytes) == nullptr) return kInvalidValue;
  Operation copy;
  copy.kind = Operation::Kind::kCopy;
  copy.to = to;
  copy.from = from;
  copy.bytes = bytes;
  return Enqueue(stream, std::move(copy));
}
Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, StreamHandle stream) {
  XLAD_ENTER_WITH_CONTEXT(cuMemcpyHtoDAsync_v2);
  return EnqueueHostCopy(stream, Memory().Range(to, bytes), from, bytes);
}
Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, StreamHandle stream) {
  XLAD_ENTER_WITH_CONTEXT(cuMemcpyDtoHAsync_v2);
  return EnqueueHostCopy(stream, to, Memory().Range(from, bytes), bytes);
}
Result cuMemsetD8Async(DevicePointer to, unsigned char value, size_t bytes, StreamHandle stream) {
  XLAD_ENTER_WITH_CONTEXT(cuMemsetD8Async);
  if (Memory().Range(to, bytes) == nullptr) return kInvalidValue;
  Operation fill;
  fill.kind = Operation::Kind::kFill;
  fill.to = to;
  fill.value = value;
  fill.bytes = bytes;
  return Enqueue(stream, std::move(fill));
}

}  // namespace xlad::runtime::cuda

using xlad::cuda_double::DriverDouble;
using xlad::runtime::cuda::Result;

void xladCudaDoubleConfigure(const char* text) { DriverDouble::Get().Configure(text); }
Result xladCudaDoubleEnter(const char* function) { return DriverDouble::Get().Enter(function); }
Result xladCudaDoubleBroken() { return DriverDouble::Get().broken(); }
int64_t xladCudaDoubleMmaCount() { return xlad::cuda_double::MmaCount(); }
int xladCudaDoubleCublasLtVersion() { return DriverDouble::Get().settings().cublaslt; }
void* xladCudaDoubleRange(xlad::runtime::cuda::DevicePointer address, size_t bytes) {
  return DriverDouble::Get().memory().Range(address, bytes);
}
void xladCudaDoubleEnqueue(xlad::runtime::cuda::StreamHandle stream, Result (*work)(void*), void (*drop)(void*),
                           void* argument) {
  xlad::runtime::cuda::Operation operation;
  operation.other = [work, held = std::shared_ptr<void>(argument, drop)] { return work(held.get()); };
  xlad::runtime::cuda::Enqueue(stream, std::move(operation));
}
