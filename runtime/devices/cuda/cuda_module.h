// A module of kernels, compiled from PTX, on a GPU.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "runtime/devices/cuda/gpu.h"

// Defines the constant text `symbol` with the contents of the file `path`, which the build writes. Used outside of
// namespaces.
#define XLAD_EMBED_PTX(symbol, path)                                                                     \
  __asm__(".section .rodata\n.globl " #symbol "\n" #symbol ":\n.incbin \"" path "\"\n.byte 0\n.text\n"); \
  extern "C" const char symbol[]

namespace xlad::runtime::cuda {

// Unloaded on destruction. Thread-safe.
class CudaModule {
 public:
  // The driver compiles the PTX for the GPU. Returns ResourceExhausted if there is not enough memory. Any other failure
  // of the driver is an InvalidArgument, with the driver's log.
  static absl::StatusOr<std::unique_ptr<CudaModule>> Load(std::shared_ptr<const Gpu> gpu, const std::string& ptx,
                                                          const std::string& name);
  ~CudaModule();
  // NotFound if the module has no such kernel.
  absl::StatusOr<FunctionHandle> Find(const std::string& kernel) const;

 private:
  CudaModule(std::shared_ptr<const Gpu> gpu, std::string name, ModuleHandle module)
      : gpu_(std::move(gpu)), name_(std::move(name)), module_(module) {}
  const std::shared_ptr<const Gpu> gpu_;
  const std::string name_;
  const ModuleHandle module_;
};

}  // namespace xlad::runtime::cuda
