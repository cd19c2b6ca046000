#include "sharding/import/manual_borders.h"

#include "absl/strings/str_cat.h"
#include "hlo/attribute_keys.h"
#include "hlo/verify/verifier.h"
#include "sharding/model/axes.h"

namespace xlad::sharding {
namespace {

absl::StatusOr<AxisList> ManualAxesOf(const hlo::Instruction& border, const Mesh& mesh) {
  const std::string* text = hlo::FindAttribute(border, hlo::kSdyManualAxesKey);
  if (text == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("found no ", hlo::kSdyManualAxesKey, ", expected the manual axes"));
  }
  XLAD_ASSIGN_OR_RETURN(const std::vector<SdyAxis> axes, ParseSdyAxes(*text));
  return ResolveAxes(mesh, axes);
}

// Checks that in every dimension the manual axes precede the others, and that the global size is the local size times
// the product of the sizes of the manual axes.
absl::Status CheckShapes(const hlo::Shape& global, const hlo::Shape& local, const AxisList& manual,
                         const TensorSharding& sharding) {
  bool fits = global.is_array() && local.is_array() && global.ndim() == local.ndim();
  for (int64_t d = 0; fits && d < global.ndim(); ++d) {
    int64_t shards = 1;
    bool has_free = false;
    for (const AxisRef& axis : sharding.dims[d].axes) {
      const bool is_manual = OverlapsAny(axis, manual);
      if (is_manual) shards *= axis.size;
      fits = fits && !(is_manual && has_free);
      has_free = has_free || !is_manual;
    }
    fits = fits && global.dim(d) % shards == 0 && global.dim(d) / shards == local.dim(d);
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("found global shape ", global.ToString(false), " and local shape ", local.ToString(false),
                   ", expected each global size to be the local size times the sizes of the dimension's manual axes, "
                   "and manual axes before other axes"));
}

class BorderSplitter {
 public:
  BorderSplitter(hlo::Instruction* border, ShardedModule* module)
      : border_(border), module_(*module), enters_(IsCustomCall(*border, hlo::kEnterManualCall)) {}

  absl::Status Run(const Annotations& annotations) {
    XLAD_ASSIGN_OR_RETURN(manual_, ManualAxesOf(*border_, module_.mesh));
    XLAD_ASSIGN_OR_RETURN(
        auto shardings, annotations.OfAttribute(*border_, enters_ ? hlo::kInShardingsKey : hlo::kOutShardingsKey));
    if (std::ssize(shardings) != border_->operand_count()) {
      return absl::InvalidArgumentError(absl::StrCat("found ", shardings.size(), " shardings, expected ",
                                                     border_->operand_count(), ", one for each operand"));
    }
    // There is a sharding for each array of the result, but the arrays may be in nested tuples, or beside tokens.
    const bool is_flat = border_->shape().is_tuple() ? std::ssize(border_->shape().tuple()) == border_->operand_count()
                                                     : border_->operand_count() == 1;
    if (!is_flat) {
      return absl::InvalidArgumentError(absl::StrCat("found shape ", border_->shape().ToString(false), " for ",
                                                     border_->operand_count(),
                                                     " operands, expected a tuple with one array for each"));
    }
    std::vector<hlo::Instruction*> parts;
    for (size_t i = 0; i < shardings.size(); ++i) {
      const hlo::Shape& result = border_->shape().is_tuple() ? border_->shape().tuple()[i] : border_->shape();
      hlo::Instruction* operand = border_->operand(i);
      if (!shardings[i].unreduced.empty()) {
        return absl::UnimplementedError(absl::StrCat(
            "found unreduced={", ToString(module_.mesh, shardings[i].unreduced), "} at the border of a manual ",
            "computation, expected complete arrays; reduce over these axes inside of it (jax.lax.psum)"));
      }
      XLAD_RETURN_IF_ERROR(
          CheckShapes(enters_ ? operand->shape() : result, enters_ ? result : operand->shape(), manual_, shardings[i]));
      parts.push_back(AddPart(operand, result, std::move(shardings[i])));
    }
    hlo::Instruction* with = border_->shape().is_tuple() ? AddTuple(parts) : parts[0];
    border_->ReplaceAllUsesWith(with);
    border_->mutable_attributes().has_side_effect = false;
    return absl::OkStatus();
  }

 private:
  hlo::Instruction* Add(std::unique_ptr<hlo::Instruction> instruction, absl::Span<hlo::Instruction* const> operands) {
    instruction->set_name(border_->name());
    instruction->mutable_metadata() = border_->metadata();
    instruction->set_place(border_->line(), border_->column());
    return border_->parent()->Add(std::move(instruction), operands);
  }

  hlo::Instruction* AddTuple(const std::vector<hlo::Instruction*>& parts) {
    return Add(std::make_unique<hlo::Instruction>(hlo::Opcode::kTuple, border_->shape()), parts);
  }

  hlo::Instruction* AddPart(hlo::Instruction* operand, const hlo::Shape& shape, TensorSharding sharding) {
    for (const AxisRef& axis : manual_) {
      const bool used = SplitsDims(sharding, axis) || OverlapsAny(axis, sharding.replicated);
      if (!used) sharding.replicated.push_back(axis);
    }
    const std::string text =
        absl::StrCat("#sdy.sharding_per_value<[<@", module_.mesh.name(), ", ", ToString(module_.mesh, sharding), ">]>");
    if (enters_) {
      operand = Add(std::make_unique<hlo::Instruction>(hlo::Opcode::kCopy, operand->shape()), {operand});
      InheritRegion(operand);
      module_.shardings[operand] = {sharding};
    }
    auto call = std::make_unique<hlo::Instruction>(hlo::Opcode::kCustomCall, shape);
    call->mutable_attributes().custom_call_target = border_->attributes().custom_call_target;
    call->mutable_frontend_attributes() = border_->frontend_attributes();
    call->mutable_frontend_attributes()[enters_ ? hlo::kInShardingsKey : hlo::kOutShardingsKey] = text;
    hlo::Instruction* added = Add(std::move(call), {operand});
    if (!enters_) module_.shardings[added] = {std::move(sharding)};
    return added;
  }

  // If the border is inside another manual computation, the axes of that computation are an attribute of the border.
  // Copies this attribute to the instruction.
  void InheritRegion(hlo::Instruction* instruction) const {
    if (const std::string* axes = hlo::FindAttribute(*border_, hlo::kManualAxesKey)) {
      instruction->mutable_frontend_attributes()[hlo::kManualAxesKey] = *axes;
    }
  }

  hlo::Instruction* border_;
  ShardedModule& module_;
  const bool enters_;
  AxisList manual_;
};

}  // namespace

absl::Status SplitManualBorder(hlo::Instruction* border, const Annotations& annotations, ShardedModule* module) {
  return AtInstruction(BorderSplitter(border, module).Run(annotations), *border);
}

}  // namespace xlad::sharding
