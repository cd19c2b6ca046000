#include "runtime/devices/cpu/lapack_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace xlad::runtime {
namespace {

constexpr char kLibraryName[] = "libopenblas.so.0";
constexpr char kPackage[] = "libopenblas0-pthread";

// OpenBLAS reads these variables from the environment when it is loaded.
void SetEnvironment() {
  // Only the calling thread works on a matrix, so that the bits of a result do not depend on the number of cores.
  setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/1);
#if defined(__x86_64__)
  // OpenBLAS 0.3.21 does not recognize some processors with AVX-512 and uses code for AVX2, which is half as fast. A
  // value that the user has set is kept.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    setenv("OPENBLAS_CORETYPE", "SkylakeX", /*overwrite=*/0);
  }
#endif
}

absl::StatusOr<void*> Open() {
  SetEnvironment();
  void* const library = dlopen(kLibraryName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("cannot load ", kLibraryName, " (", dlerror(),
                                                      "), which linear algebra needs; install ", kPackage));
  }
  // Builds without threads do not lock their buffers, so concurrent calls from several threads can give wrong results.
  void* const parallel = dlsym(library, "openblas_get_parallel");
  if (parallel == nullptr || reinterpret_cast<int (*)()>(parallel)() == 0) {
    return absl::FailedPreconditionError(absl::StrCat("found a ", kLibraryName,
                                                      " that is built for one thread, expected one ",
                                                      "that several threads may call; install ", kPackage));
  }
  return library;
}

template <typename Function>
absl::Status Find(void* library, const std::string& name, Function* function) {
  void* const found = dlsym(library, name.c_str());
  if (found == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(kLibraryName, " has no ", name, "; install ", kPackage));
  }
  *function = reinterpret_cast<Function>(found);
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<LapackLibrary<T>> FindAll() {
  static const absl::StatusOr<void*> library = Open();
  XLAD_RETURN_IF_ERROR(library.status());
  using Real = typename LapackLibrary<T>::Real;
  const bool complex = !std::is_same_v<T, Real>;
  const std::string letter = std::is_same_v<Real, float> ? (complex ? "c" : "s") : (complex ? "z" : "d");
  const std::string orthogonal = letter + (complex ? "un" : "or"), symmetric = letter + (complex ? "he" : "sy");
  LapackLibrary<T> found;
  XLAD_RETURN_IF_ERROR(Find(*library, letter + "potrf_", &found.potrf));
  XLAD_RETURN_IF_ERROR(Find(*library, letter + "trsm_", &found.trsm));
  XLAD_RETURN_IF_ERROR(Find(*library, letter + "getrf_", &found.getrf));
  XLAD_RETURN_IF_ERROR(Find(*library, letter + "gtsv_", &found.gtsv));
  XLAD_RETURN_IF_ERROR(Find(*library, letter + "geqrf_", &found.geqrf));
  XLAD_RETURN_IF_ERROR(Find(*library, letter + "geqp3_", &found.geqp3));
  XLAD_RETURN_IF_ERROR(Find(*library, orthogonal + "gqr_", &found.orgqr));
  XLAD_RETURN_IF_ERROR(Find(*library, orthogonal + "mqr_", &found.ormqr));
  XLAD_RETURN_IF_ERROR(Find(*library, letter + "gehrd_", &found.gehrd));
  XLAD_RETURN_IF_ERROR(Find(*library, symmetric + "trd_", &found.sytrd));
  XLAD_RETURN_IF_ERROR(Find(*library, symmetric + "evd_", &found.syevd));
  XLAD_RETURN_IF_ERROR(Find(*library, letter + "gesdd_", &found.gesdd));
  XLAD_RETURN_IF_ERROR(Find(*library, letter + "gesvd_", &found.gesvd));
  XLAD_RETURN_IF_ERROR(Find(*library, letter + "geev_", &found.geev));
  XLAD_RETURN_IF_ERROR(Find(*library, letter + "gees_", &found.gees));
  return found;
}

}  // namespace

template <typename T>
absl::StatusOr<const LapackLibrary<T>*> LoadLapack() {
  static const absl::StatusOr<LapackLibrary<T>> found = FindAll<T>();
  XLAD_RETURN_IF_ERROR(found.status());
  return &*found;
}

template absl::StatusOr<const LapackLibrary<float>*> LoadLapack<float>();
template absl::StatusOr<const LapackLibrary<double>*> LoadLapack<double>();
template absl::StatusOr<const LapackLibrary<std::complex<float>>*> LoadLapack<std::complex<float>>();
template absl::StatusOr<const LapackLibrary<std::complex<double>>*> LoadLapack<std::complex<double>>();

}  // namespace xlad::runtime
