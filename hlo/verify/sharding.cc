// Verifier rules on sharding={...}: tiles that fit the shape and name each device once.
#include "absl/strings/str_cat.h"
#include "hlo/analysis/leaves.h"
#include "hlo/infer/rules.h"
#include "hlo/verify/rules.h"

namespace xlad::hlo {
namespace {

absl::StatusOr<int64_t> TileProduct(const Dims& sizes) {
  if (const std::optional<int64_t> product = DeviceProduct(sizes)) return *product;
  return Violation("sharding-tiles", absl::StrCat("tile sizes ", Brief(sizes)),
                   absl::StrCat("1 or more each, and at most ", kMaxDevices, " tiles"));
}

absl::Status CheckDevices(const Dims& devices) {
  absl::flat_hash_set<int64_t> seen;
  for (const int64_t device : devices) {
    if (device < 0 || device >= kMaxDevices) {
      return Violation("sharding-devices", absl::StrCat("device ", device), absl::StrCat("0 to ", kMaxDevices - 1));
    }
    if (!seen.insert(device).second) {
      return Violation("sharding-devices", absl::StrCat("device ", device, " twice"), "each once");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTiled(const OpSharding& sharding, const Shape& shape) {
  XLAD_ASSIGN_OR_RETURN(const int64_t tiles, TileProduct(sharding.tile_dims));
  const auto subgroups =
      std::ssize(sharding.last_tile_dims) + (sharding.replicate_on_last_tile_dim ? 1 : 0);
  if (shape.is_array() && std::ssize(sharding.tile_dims) != shape.ndim() + subgroups) {
    return Violation("sharding-dimensions", absl::StrCat("tiles ", Brief(sharding.tile_dims), " of ", Brief(shape)),
                     absl::StrCat(shape.ndim() + subgroups, " sizes"));
  }
  if (sharding.iota_reshape_dims.empty()) {
    if (std::ssize(sharding.devices) != tiles) {
      return Violation("sharding-devices", Counted(sharding.devices.size(), "device"),
                       absl::StrCat("one for each of ", tiles, " tiles"));
    }
    return CheckDevices(sharding.devices);
  }
  XLAD_ASSIGN_OR_RETURN(const int64_t reshaped, TileProduct(sharding.iota_reshape_dims));
  if (reshaped != tiles) {
    return Violation("sharding-devices", Counted(reshaped, "device"),
                     absl::StrCat("one for each of ", tiles, " tiles"));
  }
  const auto ndim = std::ssize(sharding.iota_reshape_dims);
  if (!sharding.iota_transpose.empty() && std::ssize(sharding.iota_transpose) != ndim) {
    return Violation("sharding-transpose", Brief(sharding.iota_transpose), absl::StrCat("a permutation of ", ndim));
  }
  return ExpectDimensions("sharding-transpose", sharding.iota_transpose, ndim);
}

absl::Status CheckLeaf(const OpSharding& sharding, const Shape& shape) {
  switch (sharding.kind) {
    case OpSharding::Kind::kTiled:
      return CheckTiled(sharding, shape);
    case OpSharding::Kind::kMaximal:
      return CheckDevices(sharding.devices);
    case OpSharding::Kind::kTuple:
      return Violation("sharding-tuple", absl::StrCat("a tuple's sharding for ", Brief(shape)), "one sharding");
    default:
      return absl::OkStatus();
  }
}

}  // namespace

absl::Status VerifySharding(const Instruction& instruction) {
  if (instruction.sharding() == nullptr) return absl::OkStatus();
  const OpSharding& sharding = *instruction.sharding();
  if (sharding.kind != OpSharding::Kind::kTuple) return CheckLeaf(sharding, instruction.shape());
  std::vector<const Shape*> leaves;
  // The sharding of an outfeed describes the values that it sends, with or without its token.
  const bool outfeed = instruction.opcode() == Opcode::kOutfeed && instruction.operand_count() == 2;
  if (outfeed) AppendLeaves(instruction.operand(0)->shape(), &leaves);
  if (!outfeed || leaves.size() != sharding.tuple.size()) AppendLeaves(instruction.shape(), &leaves);
  // A value without leaves has one sharding.
  if (leaves.empty() && sharding.tuple.size() == 1) leaves.push_back(&instruction.shape());
  if (leaves.size() != sharding.tuple.size()) {
    return Violation("sharding-tuple",
                     absl::StrCat(Counted(std::ssize(sharding.tuple), "sharding"), " for ",
                                  Brief(instruction.shape())),
                     absl::StrCat(leaves.size(), ", one per array or token"));
  }
  for (size_t k = 0; k < leaves.size(); ++k) XLAD_RETURN_IF_ERROR(CheckLeaf(sharding.tuple[k], *leaves[k]));
  return absl::OkStatus();
}

}  // namespace xlad::hlo
