// Functions of the driver's test double that NVIDIA's driver does not have. Tests and the test double of cuBLASLt call
// them.
#pragma once

#include <cstdint>

#include "runtime/devices/cuda/driver_api.h"

#define XLAD_DOUBLE_EXPORT __attribute__((visibility("default")))

extern "C" {

// Graphs that exist, and the numbers of calls that have succeeded.
struct XladCudaDoubleGraphs {
  int64_t graphs = 0, executables = 0;
  int64_t instantiations = 0, updates = 0, launches = 0;
};
XLAD_DOUBLE_EXPORT void xladCudaDoubleGraphs(XladCudaDoubleGraphs* out);

// Applies the settings (driver_double.h) and clears errors.
XLAD_DOUBLE_EXPORT void xladCudaDoubleConfigure(const char* text);
// Must be called at the beginning of a function, like DriverDouble::Enter in the driver's functions. Returns the error
// that the function must return at once, or kSuccess.
XLAD_DOUBLE_EXPORT xlad::runtime::cuda::Result xladCudaDoubleEnter(const char* function);
// The error of asynchronous work, after which only the driver's functions that release something have an effect;
// kSuccess if there is none.
XLAD_DOUBLE_EXPORT xlad::runtime::cuda::Result xladCudaDoubleBroken();
// The number of matrix products (mma.sync) that the warps of kernels have computed with tensor cores.
XLAD_DOUBLE_EXPORT int64_t xladCudaDoubleMmaCount();
// The version of cuBLASLt in the settings.
XLAD_DOUBLE_EXPORT int xladCudaDoubleCublasLtVersion();
// The memory of the host that holds a range of the GPU's memory, or null if the first or last byte of the range is not
// allocated.
XLAD_DOUBLE_EXPORT void* xladCudaDoubleRange(xlad::runtime::cuda::DevicePointer address, size_t bytes);
// Enqueues work that, like a kernel, is skipped after an error, and may become a node of graphs, which run it several
// times. `drop` is called afterwards in any case.
XLAD_DOUBLE_EXPORT void xladCudaDoubleEnqueue(xlad::runtime::cuda::StreamHandle stream,
                                              xlad::runtime::cuda::Result (*work)(void*), void (*drop)(void*),
                                              void* argument);

}  // extern "C"
