// Functions of the test double of the driver, for tests.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace xlad::runtime::testing {

template <typename F>
F FunctionOfDriverDouble(const char* name) {
  void* const library = dlopen(XLAD_CUDA_DRIVER_DOUBLE, RTLD_NOW);
  void* const function = library == nullptr ? nullptr : dlsym(library, name);
  EXPECT_NE(function, nullptr) << dlerror();
  return reinterpret_cast<F>(function);
}

// Sets the properties of the driver's test double and the failures of its functions.
inline void ConfigureDriverDouble(const std::string& settings) {
  FunctionOfDriverDouble<void (*)(const char*)>("xladCudaDoubleConfigure")(settings.c_str());
}

// The graphs that exist, and the numbers of calls that have succeeded (tests/cuda_driver_double/driver_double_hooks.h).
struct GraphCounts {
  int64_t graphs = 0, executables = 0;
  int64_t instantiations = 0, updates = 0, launches = 0;
};
inline GraphCounts CountedGraphs() {
  GraphCounts counts;
  FunctionOfDriverDouble<void (*)(GraphCounts*)>("xladCudaDoubleGraphs")(&counts);
  return counts;
}

// The number of products of tensor cores that kernels have executed, one for each warp.
inline int64_t MmaCount() { return FunctionOfDriverDouble<int64_t (*)()>("xladCudaDoubleMmaCount")(); }

}  // namespace xlad::runtime::testing
