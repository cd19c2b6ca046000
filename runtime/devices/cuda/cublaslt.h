// cuBLASLt, NVIDIA's library for matrix products, loaded when it is first needed: one binary runs with and without it.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "runtime/devices/cuda/cublaslt_api.h"
#include "runtime/devices/cuda/gpu.h"

namespace xlad::runtime::cuda {

// This environment variable may name the library to use as cuBLASLt. An empty value has no effect. If the value is
// kCublasLtOff, no library is used.
inline constexpr char kCublasLtVariable[] = "XLAD_CUBLASLT", kCublasLtOff[] = "off";
// cuBLASLt 12.0, as cublasLtGetVersion reports it.
inline constexpr int kOldestCublasLt = 120000;

// The functions of a library, which is never unloaded.
struct CublasLt {
#define XLAD_CUBLASLT_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  XLAD_CUBLASLT_FUNCTIONS(XLAD_CUBLASLT_MEMBER)
#undef XLAD_CUBLASLT_MEMBER
  std::string library;
  int version = 0;  // 130100 is 13.1.0.

  // "cuBLASLt 13.1.0 (libcublasLt.so.13)"
  std::string Name() const;
  // "CUBLAS_STATUS_NOT_SUPPORTED (15)"
  std::string StatusText(LtStatus status) const;
};

// Unavailable, with the reason, if the library cannot be loaded, lacks a function or is older than kOldestCublasLt.
absl::StatusOr<const CublasLt*> LoadCublasLt(const std::string& library);

// The library of this process: the one that kCublasLtVariable names, or the newest that is installed and works with
// `driver`. If the environment names another driver (kDriverVariable), the library must be named too, because an
// installed one would use NVIDIA's driver. Unavailable if no library is used. The library is loaded by the first call,
// and all calls have the same result.
absl::StatusOr<const CublasLt*> TheCublasLt(const Driver& driver);

// The library's context on a GPU. Thread-safe.
class CublasLtContext {
 public:
  // Unavailable if the library does not work on this GPU.
  static absl::StatusOr<std::shared_ptr<const CublasLtContext>> Make(std::shared_ptr<const Gpu> gpu,
                                                                     const CublasLt* library);
  ~CublasLtContext();

  const CublasLt& library() const { return library_; }
  LtHandle handle() const { return handle_; }
  // OK, or an error that names the GPU, the library and what failed.
  absl::Status Check(LtStatus status, const std::string& what) const;

 private:
  CublasLtContext(std::shared_ptr<const Gpu> gpu, const CublasLt& library) : gpu_(std::move(gpu)), library_(library) {}
  std::string ErrorText(LtStatus status, const std::string& what) const;
  const std::shared_ptr<const Gpu> gpu_;
  const CublasLt& library_;
  LtHandle handle_ = nullptr;
};

}  // namespace xlad::runtime::cuda
