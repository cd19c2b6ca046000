#include "base/status.h"

#include <cstdio>
#include <cstdlib>

#include "base/file_error.h"

namespace xlad {

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  const absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  return IsFileError(status) ? MarkFileError(annotated) : annotated;
}

namespace internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  stream_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", stream_.str().c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace internal
}  // namespace xlad
