#include "collectives/exec/nccl/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/keep_forever.h"

namespace xlad::collectives::nccl {
namespace {

absl::Status LoadError(const std::string& name, const std::string& what) {
  return absl::UnavailableError(absl::StrCat("NCCL (", name, ") ", what, "; install NCCL ", VersionText(kOldestVersion),
                                             " or later, or set ", kNcclVariable, " to the path of its library"));
}

absl::Status FindNcclFunctions(void* handle, Library* library) {
#define XLAD_NCCL_FIND(result, function, parameters)                                           \
  library->function = reinterpret_cast<result(*) parameters>(dlsym(handle, #function));        \
  if (library->function == nullptr) {                                                          \
    return LoadError(library->name, absl::StrCat("has no function ", #function, ", expected ", \
                                                 VersionText(kOldestVersion), " or later"));   \
  }
  XLAD_NCCL_FUNCTIONS(XLAD_NCCL_FIND)
#undef XLAD_NCCL_FIND
  return absl::OkStatus();
}

// The version is read first, because an old library may lack functions.
absl::Status CheckNcclVersion(void* handle, Library* library) {
  auto* const get = reinterpret_cast<Result (*)(int*)>(dlsym(handle, "ncclGetVersion"));
  if (get == nullptr || get(&library->version) != kSuccess) {
    return LoadError(library->name, "does not report its version");
  }
  if (library->version >= kOldestVersion) return absl::OkStatus();
  return LoadError(library->name, absl::StrCat("has version ", VersionText(library->version), ", expected ",
                                               VersionText(kOldestVersion), " or later"));
}

}  // namespace

std::string VersionText(int version) {
  // Up to NCCL 2.8, the number was 1000 * major + 100 * minor + patch.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
  return absl::StrCat(major, ".", minor, ".", version % 100);
}

absl::Status Library::Check(Result result, const std::string& what, CommHandle communicator) const {
  if (result == kSuccess || result == kInProgress) return absl::OkStatus();
  std::string text = absl::StrCat("NCCL: ", what, ": ", ncclGetErrorString(result), " (", result, ")");
  const char* const last = ncclGetLastError(communicator);
  if (last != nullptr && *last != '\0') absl::StrAppend(&text, ": ", last);
  switch (result) {
    case kSystemError:
    case kRemoteError:
      return absl::UnavailableError(text);
    case kInvalidArgument:
    case kInvalidUsage:
      return absl::InvalidArgumentError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::StatusOr<const Library*> LoadNccl(const std::string& name) {
  if (name == kOff) return absl::UnavailableError(absl::StrCat("NCCL is turned off by ", kNcclVariable, "=", kOff));
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return LoadError(name, absl::StrCat("cannot be loaded: ", dlerror()));
  auto library = std::make_unique<Library>();
  library->name = name;
  XLAD_RETURN_IF_ERROR(CheckNcclVersion(handle, library.get()));
  XLAD_RETURN_IF_ERROR(FindNcclFunctions(handle, library.get()));
  return KeepForever(std::move(library));
}

absl::StatusOr<const Library*> TheNccl() {
  static const auto* const library = [] {
    const char* const named = std::getenv(kNcclVariable);
    return new absl::StatusOr<const Library*>(LoadNccl(named != nullptr && *named != '\0' ? named : kNcclLibrary));
  }();
  return *library;
}

}  // namespace xlad::collectives::nccl
