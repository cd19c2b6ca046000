#include "cli/compile_targets.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/containers.h"
#include "base/suggest.h"
#include "cli/command.h"
#include "runtime/devices/registry/registry.h"

namespace xlad::cli {
namespace {

struct TargetRow {
  const char* name;
  const char* triple;
  const char* cpu;
};

constexpr TargetRow kRows[] = {
    {"nvptx-sm_80", "nvptx64-nvidia-cuda", "sm_80"},
    {"nvptx-sm_90", "nvptx64-nvidia-cuda", "sm_90"},
};

// The prefix of the targets that are chips of the device kind tpu_sim.
constexpr char kTpu[] = "tpu-";

const runtime::DeviceKind& TpuSim() {
  for (const runtime::DeviceKind& kind : runtime::AllDeviceKinds()) {
    if (kind.name == "tpu_sim") return kind;
  }
  XLAD_CHECK(false) << "the kind tpu_sim is missing";
  return runtime::AllDeviceKinds()[0];
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const TargetRow& row : kRows) names.push_back(row.name);
  for (const std::string& model : TpuSim().models) names.push_back(kTpu + model);
  return names;
}

}  // namespace

std::string CompileTargetNames() { return absl::StrJoin(Names(), ", "); }

absl::StatusOr<Target> FindCompileTarget(const std::string& name) {
  for (const TargetRow& row : kRows) {
    if (name != row.name) continue;
    Target target;
    target.set_triple(row.triple);
    target.set_cpu(row.cpu);
    target.set_has_dots_of_f64_and_s8(true);
    return target;
  }
  if (absl::StartsWith(name, kTpu)) {
    std::string model = name.substr(sizeof(kTpu) - 1);
    const std::vector<std::string>& models = TpuSim().models;
    if (!Contains(models, model)) {
      absl::StatusOr<std::string> read = TpuSim().read_model(model);
      if (!read.ok()) return Annotate(read.status(), "--target");
      model = *std::move(read);
    }
    return TpuSim().target(model);
  }
  const std::string nearest = NearestName(name, Names());
  return WrongUsage(absl::InvalidArgumentError(absl::StrCat(
      "--target: found \"", name, "\", expected one of ", CompileTargetNames(), " or tpu- and the path of a chip file",
      nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"),
      "; without --target, a program is compiled for this machine's CPU")));
}

}  // namespace xlad::cli
