#include "cli/compile_targets.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/suggest.h"

namespace xlad::cli {
namespace {

struct Row {
  const char* name;
  const char* triple;
  const char* cpu;
};

constexpr Row kRows[] = {
    {"nvptx-sm_80", "nvptx64-nvidia-cuda", "sm_80"},
    {"nvptx-sm_90", "nvptx64-nvidia-cuda", "sm_90"},
};

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

}  // namespace

std::string CompileTargetNames() { return absl::StrJoin(Names(), ", "); }

absl::StatusOr<Target> FindCompileTarget(const std::string& name) {
  for (const Row& row : kRows) {
    if (name != row.name) continue;
    Target target;
    target.set_triple(row.triple);
    target.set_cpu(row.cpu);
    return target;
  }
  const std::string nearest = NearestName(name, Names());
  return absl::InvalidArgumentError(
      absl::StrCat("--target: found \"", name, "\", expected one of ", CompileTargetNames(),
                   nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"),
                   "; without --target, a program is compiled for this machine's CPU"));
}

}  // namespace xlad::cli
