// The objects to which the handles of the double's functions point, and the work of streams.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/devices/cuda/driver_api.h"
#include "tests/cuda_driver_double/driver_double.h"

namespace xlad::runtime::cuda {

struct FunctionObject {
  const cuda_double::Function* function = nullptr;
  std::shared_ptr<const cuda_double::Program> program;
  bool is_loaded = false;  // Whether the kernel has been launched.
};
struct ModuleObject {
  std::shared_ptr<const cuda_double::Program> program;
  std::map<std::string, FunctionObject> functions;
};

// Work of a stream, or a node of a graph, which can be run any number of times. Addresses are looked up when it is run.
struct Operation {
  enum class Kind { kKernel, kCopy, kFill, kOther };
  Kind kind = Kind::kOther;
  const cuda_double::Function* kernel = nullptr;
  std::weak_ptr<const cuda_double::Program> program;  // The kernel's program. Expired if its module was unloaded.
  uint32_t blocks = 1, threads = 1;
  std::vector<std::byte> arguments;
  DevicePointer to = 0, from = 0;
  size_t bytes = 0;
  unsigned char value = 0;
  std::function<Result()> other;
};
Result RunOperation(const Operation& operation);
// Checks an operation before it runs. Returns an error if its module was unloaded or if it refers to memory of the GPU
// that is not allocated.
Result CheckOperation(const Operation& operation);

struct GraphObject {
  std::vector<Operation> nodes;
};
struct GraphExecObject {
  std::shared_ptr<const std::vector<Operation>> nodes;
};

struct StreamObject {
  cuda_double::WorkQueue queue;
  struct Capture {
    std::thread::id thread;
    bool is_valid = true;
    std::vector<Operation> nodes;
  };
  std::unique_ptr<Capture> capture;  // Null if work is run.
};

// Adds work to the stream, or to its capture.
Result Enqueue(StreamHandle stream, Operation operation);
// If work of the stream is being captured: invalidates the capture and returns kCaptureUnsupported. Called by functions
// that wait for a stream or use events. Also called by those that refer to memory of the host: a real driver captures
// them, but xlad must not, because the memory is used again for something else.
Result RefuseCapture(StreamHandle stream);
// Like RefuseCapture, if the calling thread has begun a capture. Called by functions that a capture of mode
// kCaptureThreadLocal forbids.
Result RefuseInCapture();
// Sets the capture of the calling thread; null if it has none.
void SetCaptureOfThread(StreamObject::Capture* capture);
// Whether the calling thread has a current context, which has not been destroyed. Without one, functions that work on
// memory, streams, events, modules or graphs return kInvalidContext, except those that end a capture or destroy graphs.
// They do not check that a stream or memory belongs to the current context.
bool HasContext();

}  // namespace xlad::runtime::cuda

#define XLAD_ENTER(name)                                                                                   \
  if (const Result entered = ::xlad::cuda_double::DriverDouble::Get().Enter(#name); entered != kSuccess) { \
    return entered;                                                                                        \
  }
#define XLAD_ENTER_WITH_CONTEXT(name) \
  XLAD_ENTER(name);                   \
  if (!::xlad::runtime::cuda::HasContext()) return ::xlad::runtime::cuda::kInvalidContext
