#include "runtime/devices/tpu_sim/tpu_sim_device.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/file_system.h"
#include "base/suggest.h"
#include "machine/built_in_chips.h"
#include "machine/chip.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/opaque/opaque_device.h"
#include "runtime/devices/tpu_sim/systolic_products.h"

namespace xlad::runtime {
namespace {

constexpr char kName[] = "tpu_sim";
constexpr char kDefaultChip[] = "v5e";

// The built-in chips, the default first.
std::vector<std::string> Models() {
  std::vector<std::string> models = {kDefaultChip};
  for (const std::string& name : machine::BuiltInChipNames()) {
    if (name != kDefaultChip) models.push_back(name);
  }
  return models;
}

bool IsPath(const std::string& model) { return absl::StrContains(model, '/') || absl::EndsWith(model, ".toml"); }

// Returns the text of the chip file of a model, NotFound for an unknown chip, or an error of the file system.
absl::StatusOr<std::string> ChipText(const std::string& model) {
  if (IsPath(model)) return RealFileSystem().Read(model);
  for (const machine::ChipFile& file : machine::ChipFiles()) {
    if (file.name == model) return file.text;
  }
  const std::vector<std::string> models = Models();
  const std::string nearest = NearestName(model, models);
  return absl::NotFoundError(absl::StrCat("found chip \"", model, "\" of kind ", kName, ", expected one of ",
                                          absl::StrJoin(models, ", "), " or the path of a chip file, such as ./my.toml",
                                          nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
}

absl::StatusOr<machine::Chip> ChipOf(const std::string& model) {
  XLAD_ASSIGN_OR_RETURN(const std::string text, ChipText(model));
  return machine::ParseChip(text, model);
}

// Makes the path of a chip file absolute, so that every process of this machine finds it.
absl::StatusOr<std::string> ReadModel(const std::string& model) {
  XLAD_RETURN_IF_ERROR(ChipOf(model).status());
  std::error_code failed;
  const std::filesystem::path path = std::filesystem::absolute(model, failed);
  if (failed) return absl::InternalError(absl::StrCat(model, ": ", failed.message()));
  return path.lexically_normal().string();
}

Target TargetOf(const std::string& model) {
  Target target = HostTarget(kName);
  target.set_device_model(model);
  // If the model has no file, `make` returns an error, so that no program is compiled for an empty chip file.
  if (absl::StatusOr<std::string> text = ChipText(model); text.ok()) target.set_chip(*std::move(text));
  return target;
}

// ResourceExhausted if the executable's buffers on a device are larger than the memory of a chip.
absl::Status CheckFits(const Executable& executable, const machine::Chip& chip) {
  double bytes = 0;
  for (const Allocation& allocation : executable.allocations()) {
    if (allocation.memory() == MEMORY_DEVICE) bytes += static_cast<double>(allocation.bytes());
  }
  if (bytes <= chip.hbm_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("executable '%s': found %.0f bytes of parameters, results and temporaries per device, expected "
                      "at most %.0f, the HBM of chip %s; split the program over more devices or choose a chip with "
                      "more memory",
                      executable.name(), bytes, chip.hbm_bytes, chip.name));
}

absl::StatusOr<std::unique_ptr<Device>> MakeTpuSimDevice(const std::string& model) {
  XLAD_ASSIGN_OR_RETURN(const machine::Chip chip, ChipOf(model));
  const auto load = [chip](Executable executable) -> absl::StatusOr<std::unique_ptr<LoadedExecutable>> {
    XLAD_RETURN_IF_ERROR(CheckFits(executable, chip));
    return LoadWithSystolicProducts(std::move(executable));
  };
  return MakeOpaqueDevice(absl::StrCat(kName, ":", model), load);
}

}  // namespace

DeviceKind TpuSimDeviceKind() {
  return {kName,
          "a simulated TPU: bf16 products with sums in f32 on this machine's CPU, with times from a performance model",
          Models(),
          {MEMORY_DEVICE, MEMORY_PINNED_HOST},
          [] { return absl::OkStatus(); },
          TargetOf,
          MakeTpuSimDevice,
          ReadModel};
}

}  // namespace xlad::runtime
