// The state of the test double of NVIDIA's driver: its settings, the memory of its GPUs, and its streams.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/devices/cuda/driver_api.h"
#include "tests/cuda_driver_double/ptx_program.h"
#include "tests/cuda_driver_double/window_memory.h"

namespace xlad::cuda_double {

using runtime::cuda::Result;

// "KEY=VALUE,...", from the environment variable XLAD_CUDA_DOUBLE or from xladCudaDoubleConfigure:
//   devices=1                  the number of GPUs
//   version=12040              the driver's version, as cuDriverGetVersion returns it
//   capability=90              the compute capability of every GPU, times 10
//   memory=17179869184         the bytes of memory that all GPUs share
//   pools=1                    1 if memory pools are supported, otherwise 0
//   cublaslt=130100            the version of the test double of cuBLASLt
//   races=1                    races between the threads of a kernel are errors (race_checker.h); slow
//   drop_barrier=3             loaded modules lack the barrier with this number, from 0 in the order of the PTX
//   fail=FUNCTION:CODE[:CALLS] the first CALLS calls (default: 0) of the function succeed, later ones return CODE
// The function may also be one of cuBLASLt (tests/cublaslt_double).
// The environment variable CUDA_VISIBLE_DEVICES selects some of the GPUs, by their numbers.
struct Settings {
  int devices = 1, version = 12040, capability = 90, pools = 1, cublaslt = 130100, races = 0, drop_barrier = -1;
  uint64_t memory = uint64_t{16} << 30;
  std::vector<int> visible;  // The numbers of the GPUs that programs can use; `devices` is the number of these.
  struct Failure {
    Result code = 0;
    int calls = 0;
  };
  std::map<std::string, Failure> failures;
};

class DriverDouble {
 public:
  static DriverDouble& Get();

  // Applies the settings, with defaults for those that the text does not name, and clears errors. If the memory size
  // changes, all allocations are lost.
  void Configure(const std::string& text);
  const Settings& settings() const { return settings_; }
  WindowMemory& memory() { return *memory_; }
  // Called at the beginning of each driver function, except those that name errors or release something. Returns the
  // error that the function must return at once: an injected error or the error of the context.
  Result Enter(const std::string& function);
  // Records an error of asynchronous work. As with a real driver, later functions return it (see Enter).
  void Break(Result error);
  Result broken() const;

 private:
  DriverDouble();
  mutable std::mutex mutex_;
  Settings settings_;
  std::unique_ptr<WindowMemory> memory_;
  Result broken_ = 0;
};

// Runs work in order, on a thread of its own.
class WorkQueue {
 public:
  WorkQueue() : thread_([this] { Run(); }) {}
  ~WorkQueue();
  // After an error in any queue, work is skipped unless `always` is set.
  void Add(std::function<Result()> work, bool always = false);
  // Waits until all work is done. Returns the error of any queue, or 0.
  Result Wait();

 private:
  struct Work {
    std::function<Result()> run;
    bool always = false;
  };
  void Run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;  // The first item may be running.
  bool ending_ = false;
  std::thread thread_;
};

// The number of times that the event was recorded, and how many of these records have been reached.
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t recorded = 0, reached = 0;
};

}  // namespace xlad::cuda_double
