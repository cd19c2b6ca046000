#include "runtime/devices/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/keep_forever.h"

namespace xlad::runtime::cuda {
namespace {

constexpr char kInstead[] = "; --device gpu_sim runs the code for GPUs on the CPU";

std::string VersionText(int version) { return absl::StrCat("CUDA ", version / 1000, ".", version % 1000 / 10); }

absl::Status FindFunctions(void* handle, const std::string& library, Driver* driver) {
#define XLAD_CUDA_FIND(name, parameters)                                                                            \
  driver->name = reinterpret_cast<Result(*) parameters>(dlsym(handle, #name));                                      \
  if (driver->name == nullptr) {                                                                                    \
    return absl::UnavailableError(absl::StrCat("the driver (", library, ") has no function ", #name,                \
                                               ", expected a driver for ", VersionText(kOldestVersion),             \
                                               " or later; install a later version of NVIDIA's driver", kInstead)); \
  }
  XLAD_CUDA_FUNCTIONS(XLAD_CUDA_FIND)
#undef XLAD_CUDA_FIND
  return absl::OkStatus();
}

// Sets Driver::no_graphs and the functions of graphs.
void FindGraphFunctions(void* handle, const std::string& library, Driver* driver) {
  const char* const setting = std::getenv(kGraphsVariable);
  if (setting != nullptr && absl::string_view(setting) == kGraphsOff) {
    driver->no_graphs = absl::StrCat(kGraphsVariable, " is ", kGraphsOff);
    return;
  }
#define XLAD_CUDA_FIND(name, parameters)                                               \
  driver->name = reinterpret_cast<Result(*) parameters>(dlsym(handle, #name));         \
  if (driver->name == nullptr) {                                                       \
    driver->no_graphs = absl::StrCat("the driver (", library, ") has no function ", #name); \
    return;                                                                            \
  }
  XLAD_CUDA_GRAPH_FUNCTIONS(XLAD_CUDA_FIND)
#undef XLAD_CUDA_FIND
}

absl::Status NoGpu(const std::string& library, const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("NVIDIA's driver (", library, ") is installed, but finds no GPU", why,
                   "; check that nvidia-smi lists one and that CUDA_VISIBLE_DEVICES does not hide it", kInstead));
}

// The version is read first, because an old driver may lack functions but reports its version without initialization.
absl::Status CheckVersion(void* handle, const std::string& library, int* version) {
  auto* const get = reinterpret_cast<Result (*)(int*)>(dlsym(handle, "cuDriverGetVersion"));
  if (get == nullptr || get(version) != kSuccess) {
    return absl::UnavailableError(
        absl::StrCat(library, " does not report its version, expected NVIDIA's driver for CUDA", kInstead));
  }
  if (*version >= kOldestVersion) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("found NVIDIA's driver (", library, ") for ", VersionText(*version),
                                             ", expected ", VersionText(kOldestVersion),
                                             " or later; install a later version of the driver", kInstead));
}

}  // namespace

std::string Driver::ErrorText(Result error) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(error, &name) != kSuccess || name == nullptr) return absl::StrCat("CUDA error ", error);
  if (cuGetErrorString(error, &text) != kSuccess || text == nullptr) text = "no description";
  return absl::StrCat(name, " (", error, "): ", text);
}

absl::StatusOr<const Driver*> LoadDriver(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnavailableError(absl::StrCat("NVIDIA's driver (", library, ") cannot be loaded: ", dlerror(),
                                               "; install the driver of the GPU, or correct ", kDriverVariable,
                                               " if it is set", kInstead));
  }
  auto driver = std::make_unique<Driver>();
  XLAD_RETURN_IF_ERROR(CheckVersion(handle, library, &driver->version));
  XLAD_RETURN_IF_ERROR(FindFunctions(handle, library, driver.get()));
  FindGraphFunctions(handle, library, driver.get());
  const Result initialized = driver->cuInit(0);
  if (initialized == kNoDevice) return NoGpu(library, "");
  if (initialized != kSuccess) {
    return absl::UnavailableError(absl::StrCat("NVIDIA's driver (", library,
                                               ") cannot be initialized: ", driver->ErrorText(initialized), kInstead));
  }
  const Result counted = driver->cuDeviceGetCount(&driver->device_count);
  if (counted != kSuccess) return NoGpu(library, absl::StrCat(" (", driver->ErrorText(counted), ")"));
  if (driver->device_count < 1) return NoGpu(library, "");
  return KeepForever(std::move(driver));
}

const char* NamedDriver() {
  const char* const named = std::getenv(kDriverVariable);
  return named != nullptr && *named != '\0' ? named : nullptr;
}

absl::StatusOr<const Driver*> TheDriver() {
  static const auto* const driver = [] {
    const char* const named = NamedDriver();
    return new absl::StatusOr<const Driver*>(LoadDriver(named != nullptr ? named : kDriverLibrary));
  }();
  return *driver;
}

}  // namespace xlad::runtime::cuda
