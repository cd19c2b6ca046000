#include "compiler/serialize.h"

#include "absl/strings/str_cat.h"

namespace xlad::compiler {

absl::StatusOr<std::string> SerializeExecutable(const Executable& executable, int64_t max_bytes) {
  const int64_t bytes = executable.ByteSizeLong();
  if (bytes <= max_bytes) return executable.SerializeAsString();
  int64_t constants = 0, steps = 0;
  for (const Allocation& allocation : executable.allocations()) constants += std::ssize(allocation.blob());
  for (const Step& step : executable.steps()) steps += step.ByteSizeLong();
  return absl::ResourceExhaustedError(absl::StrCat(
      "executable ", executable.name(), ": found ", bytes, " bytes (constants ", constants, ", object code ",
      executable.object_code().size(), ", steps ", steps, "), expected at most ", max_bytes,
      ", the most that a serialized executable can have; make large constants parameters of the program"));
}

}  // namespace xlad::compiler
