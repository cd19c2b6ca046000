#include "runtime/devices/cuda/cublaslt.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/keep_forever.h"

namespace xlad::runtime::cuda {
namespace {

// The first and last major version whose declarations are those of cublaslt_api.h.
constexpr int kFirstMajor = kOldestCublasLt / 10000, kLastMajor = 13;

std::string LibraryVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::Status FindLtFunctions(void* handle, const std::string& library, CublasLt* found) {
#define XLAD_CUBLASLT_FIND(result, name, parameters)                                                        \
  found->name = reinterpret_cast<result(*) parameters>(dlsym(handle, #name));                               \
  if (found->name == nullptr) {                                                                             \
    return absl::UnavailableError(absl::StrCat(library, " has no function ", #name, ", expected cuBLASLt ", \
                                               LibraryVersionText(kOldestCublasLt),                         \
                                               " or later; install a later version"));                      \
  }
  XLAD_CUBLASLT_FUNCTIONS(XLAD_CUBLASLT_FIND)
#undef XLAD_CUBLASLT_FIND
  return absl::OkStatus();
}

// Loads the newest library that is installed and supports the driver.
absl::StatusOr<const CublasLt*> LoadInstalled(int driver_version) {
  std::vector<std::string> attempts;
  // A library works with drivers of its own major version and with later drivers.
  for (int major = std::min(kLastMajor, driver_version / 1000); major >= kFirstMajor; --major) {
    const std::string name = absl::StrCat("libcublasLt.so.", major);
    absl::StatusOr<const CublasLt*> loaded = LoadCublasLt(name);
    if (loaded.ok()) return loaded;
    attempts.push_back(absl::StrCat(name, " (", loaded.status().message(), ")"));
  }
  return absl::UnavailableError(absl::StrCat("cuBLASLt cannot be loaded: tried ", absl::StrJoin(attempts, ", "),
                                             "; install it, or set ", kCublasLtVariable, " to its path"));
}

}  // namespace

std::string CublasLt::Name() const {
  return absl::StrCat("cuBLASLt ", LibraryVersionText(version), " (", library, ")");
}

std::string CublasLt::StatusText(LtStatus status) const {
  const char* const name = cublasLtGetStatusName(status);
  return name == nullptr ? absl::StrCat("cuBLAS status ", status) : absl::StrCat(name, " (", status, ")");
}

absl::StatusOr<const CublasLt*> LoadCublasLt(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnavailableError(absl::StrCat("cuBLASLt (", library, ") cannot be loaded: ", dlerror(), "; if ",
                                               kCublasLtVariable, " names it, check the path"));
  }
  auto found = std::make_unique<CublasLt>();
  found->library = library;
  XLAD_RETURN_IF_ERROR(FindLtFunctions(handle, library, found.get()));
  found->version = found->cublasLtGetVersion();
  if (found->version < kOldestCublasLt) {
    return absl::UnavailableError(absl::StrCat("found ", found->Name(), ", expected ",
                                               LibraryVersionText(kOldestCublasLt),
                                               " or later; install a later version"));
  }
  return KeepForever(std::move(found));
}

absl::StatusOr<const CublasLt*> TheCublasLt(const Driver& driver) {
  static const auto* const library = [&driver]() -> const absl::StatusOr<const CublasLt*>* {
    const char* const value = std::getenv(kCublasLtVariable);
    const char* const named = value != nullptr && *value != '\0' ? value : nullptr;
    const bool is_off = named != nullptr && std::strcmp(named, kCublasLtOff) == 0;
    if (named != nullptr && !is_off) return new absl::StatusOr<const CublasLt*>(LoadCublasLt(named));
    if (is_off || NamedDriver() != nullptr) {
      return new absl::StatusOr<const CublasLt*>(absl::UnavailableError(absl::StrCat(
          "cuBLASLt is not used, because ", is_off ? kCublasLtVariable : kDriverVariable, is_off ? " is " : " names ",
          is_off ? kCublasLtOff : "another driver", "; set ", kCublasLtVariable, " to the path of the library")));
    }
    return new absl::StatusOr<const CublasLt*>(LoadInstalled(driver.version));
  }();
  return *library;
}

absl::StatusOr<std::shared_ptr<const CublasLtContext>> CublasLtContext::Make(std::shared_ptr<const Gpu> gpu,
                                                                             const CublasLt* library) {
  XLAD_RETURN_IF_ERROR(gpu->Activate());
  const std::shared_ptr<CublasLtContext> context(new CublasLtContext(std::move(gpu), *library));
  const LtStatus created = library->cublasLtCreate(&context->handle_);
  if (created == kLtSuccess) return context;
  context->handle_ = nullptr;
  return absl::UnavailableError(context->ErrorText(created, "cublasLtCreate"));
}

CublasLtContext::~CublasLtContext() {
  if (handle_ == nullptr) return;
  gpu_->Activate().IgnoreError();  // The library's objects are released even after a failure of the GPU.
  library_.cublasLtDestroy(handle_);
}

std::string CublasLtContext::ErrorText(LtStatus status, const std::string& what) const {
  return absl::StrCat("cuda: ", gpu_->name(), ": ", library_.Name(), ": ", what, ": ", library_.StatusText(status));
}

absl::Status CublasLtContext::Check(LtStatus status, const std::string& what) const {
  if (status == kLtSuccess) return absl::OkStatus();
  const std::string text = ErrorText(status, what);
  if (status == kLtAllocFailed) return absl::ResourceExhaustedError(text);
  return absl::InternalError(
      absl::StrCat(text, "; to use xlad's own kernels instead, set ", kCublasLtVariable, "=", kCublasLtOff));
}

}  // namespace xlad::runtime::cuda
