// NVIDIA's driver, loaded when it is first needed: one binary runs with and without it.
#pragma once

#include <string>

#include "base/status.h"
#include "runtime/devices/cuda/driver_api.h"

namespace xlad::runtime::cuda {

inline constexpr char kDriverLibrary[] = "libcuda.so.1";
// The environment variable that names another library with the driver's functions, unless it is empty.
inline constexpr char kDriverVariable[] = "XLAD_CUDA_DRIVER";
// If this environment variable is "off", graphs are not used.
inline constexpr char kGraphsVariable[] = "XLAD_CUDA_GRAPHS", kGraphsOff[] = "off";
// CUDA 12.0. Its drivers have all functions that xlad calls, and compile PTX 7.8.
inline constexpr int kOldestVersion = 12000;

// The functions of a driver that has been initialized and has found at least one GPU. The driver is never unloaded.
struct Driver {
#define XLAD_CUDA_MEMBER(name, parameters) Result(*name) parameters = nullptr;
  XLAD_CUDA_FUNCTIONS(XLAD_CUDA_MEMBER)
  XLAD_CUDA_GRAPH_FUNCTIONS(XLAD_CUDA_MEMBER)
#undef XLAD_CUDA_MEMBER
  // Why graphs are not used. If it is empty, graphs are used, and their functions are not null.
  std::string no_graphs;
  int version = 0;  // The newest CUDA that the driver supports; 12040 is CUDA 12.4.
  int device_count = 0;

  // "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"
  std::string ErrorText(Result error) const;
};

// Unavailable, with the reason, if the library cannot be loaded or lacks a function, if the driver is older than
// kOldestVersion or cannot be initialized, or if it finds no GPU.
absl::StatusOr<const Driver*> LoadDriver(const std::string& library);

// The library that kDriverVariable names, or null.
const char* NamedDriver();

// The driver of this process: the library that kDriverVariable names, or kDriverLibrary. It is loaded by the first
// call, and all calls have the same result.
absl::StatusOr<const Driver*> TheDriver();

}  // namespace xlad::runtime::cuda
