#include "sharding/import/named_annotations.h"

#include "absl/strings/str_cat.h"
#include "hlo/text/named_sharding.h"

namespace xlad::sharding {
namespace {

std::vector<SdyAxis> AxesOf(const std::vector<hlo::NamedSharding::Axis>& axes) {
  std::vector<SdyAxis> result;
  for (const hlo::NamedSharding::Axis& axis : axes) result.push_back({axis.name, axis.pre_size, axis.size});
  return result;
}

}  // namespace

absl::StatusOr<SdySharding> FromNamed(const hlo::OpSharding& sharding, int64_t ndim) {
  const std::string text = absl::StrCat(sharding.named, "}");  // The parser expects the brace of sharding={...}.
  hlo::Lexer lexer(text);
  hlo::NamedSharding named;
  if (!hlo::ParseNamedSharding(lexer, &named)) {
    return absl::InvalidArgumentError(absl::StrCat("found sharding={", sharding.named, "}, expected axes of a mesh"));
  }
  if (!named.manual.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "found sharding={", sharding.named, "}, expected manual computations as Shardy writes them (xla.sdy.*)"));
  }
  SdySharding result;
  result.inline_mesh.emplace();
  for (const auto& [name, size] : named.mesh) result.inline_mesh->axes.push_back({name, size});
  result.inline_mesh->device_ids = named.device_ids;
  if (!HasValidDevices(*result.inline_mesh)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found sharding={", sharding.named, "}, expected each device of the mesh once in device_ids"));
  }
  if (!named.iota_transpose.empty()) {
    return absl::UnimplementedError(absl::StrCat("found sharding={", sharding.named,
                                                 "}, expected a mesh of devices in order: make the mesh "
                                                 "of jax.devices() without reordering them"));
  }
  for (const hlo::NamedSharding::Dimension& dim : named.dims) result.dims.push_back({AxesOf(dim.axes), dim.open, 0});
  result.dims.resize(std::max(std::ssize(result.dims), ndim));  // "replicated" has no dimensions.
  result.replicated = AxesOf(named.replicated);
  result.unreduced = AxesOf(named.unreduced);
  if (named.unreduced_op == "max") result.unreduced_reduction = hlo::Opcode::kMaximum;
  if (named.unreduced_op == "min") result.unreduced_reduction = hlo::Opcode::kMinimum;
  return result;
}

}  // namespace xlad::sharding
