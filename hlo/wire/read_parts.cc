// Reads shapes, metadata and string maps from protos.
#include "absl/strings/escaping.h"
#include "hlo/text/parse.h"
#include "hlo/wire/parts.h"

namespace xlad::hlo {
namespace {

std::string Quote(absl::string_view value) { return absl::StrCat("\"", absl::CEscape(value), "\""); }

absl::Status ReadLayout(const pb::Shape& in, Shape* shape) {
  if (!in.has_layout() || in.no_layout()) return absl::OkStatus();
  Layout layout;
  layout.minor_to_major = ToDims(in.layout().minor_to_major());
  layout.suffix = in.layout().suffix().empty() ? LayoutSuffix(in.layout()) : in.layout().suffix();
  XLAD_RETURN_IF_ERROR(CheckLayoutSuffix(layout.suffix));
  std::vector<bool> seen(shape->ndim(), false);
  bool permutation = std::ssize(layout.minor_to_major) == shape->ndim();
  for (const int64_t d : layout.minor_to_major) {
    permutation = permutation && d >= 0 && d < shape->ndim() && !seen[d];
    if (permutation) seen[d] = true;
  }
  if (!permutation) {
    return absl::InvalidArgumentError(absl::StrCat("found a layout of ", shape->ToString(),
                                                   " that does not list each of its dimensions once, ",
                                                   "expected a permutation"));
  }
  if (shape->ndim() > 0 || !layout.suffix.empty()) SetLayout(std::move(layout), shape);
  return absl::OkStatus();
}

absl::Status ReadArrayShape(const pb::Shape& in, Shape* shape) {
  const auto type = static_cast<ElementType>(in.element_type());
  if (tensor::BitWidth(type) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("found element type number ", in.element_type(), ", expected a type of hlo.proto"));
  }
  Dims dims = ToDims(in.dimensions());
  std::vector<Shape::Extent> extents;
  for (const bool dynamic : in.is_dynamic_dimension()) {
    extents.push_back(dynamic ? Shape::Extent::kBounded : Shape::Extent::kFixed);
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] != kUnboundedSize || d >= extents.size() || extents[d] == Shape::Extent::kFixed) continue;
    dims[d] = 0;
    extents[d] = Shape::Extent::kUnbounded;
  }
  XLAD_RETURN_IF_ERROR(tensor::CheckedElements(type, dims).status());
  *shape = Shape(type, std::move(dims));
  if (!extents.empty() && in.is_dynamic_dimension_size() != in.dimensions_size()) {
    return absl::InvalidArgumentError(absl::StrCat("found ", in.is_dynamic_dimension_size(), " dynamic marks for ",
                                                   shape->ToString(), ", expected one per dimension"));
  }
  shape->set_extents(std::move(extents));
  return ReadLayout(in, shape);
}

}  // namespace

absl::Status ReadShape(const pb::Shape& in, Shape* shape) {
  switch (in.element_type()) {
    case kTokenType:
      *shape = Shape::Marker(Shape::Kind::kToken);
      return absl::OkStatus();
    case kOpaqueType:
      *shape = Shape::Marker(Shape::Kind::kOpaque);
      return absl::OkStatus();
    case kBufferType:
      *shape = Shape::Marker(Shape::Kind::kBuffer);
      break;
    case kTupleType:
      *shape = Shape();
      break;
    default:
      return ReadArrayShape(in, shape);
  }
  shape->tuple().resize(in.tuple_shapes_size());
  for (int i = 0; i < in.tuple_shapes_size(); ++i) {
    XLAD_RETURN_IF_ERROR(ReadShape(in.tuple_shapes(i), &shape->tuple()[i]));
  }
  return absl::OkStatus();
}

void ReadMetadata(pb::Metadata* taken, Metadata* m) {
  const pb::Metadata& in = *taken;
  if (!in.op_type().empty()) m->op_type = std::move(*taken->mutable_op_type());
  if (!in.op_name().empty()) m->op_name = std::move(*taken->mutable_op_name());
  if (!in.source_file().empty()) m->source_file = std::move(*taken->mutable_source_file());
  m->source_line = in.source_line();
  m->source_end_line = in.source_end_line();
  m->source_column = in.source_column();
  m->source_end_column = in.source_end_column();
  m->stack_frame_id = in.stack_frame_id();
  for (const pb::Metadata::Other& other : in.other()) m->other.emplace_back(other.name(), other.value());
  if (in.other_size() > 0) return;
  const auto add = [m](absl::string_view name, const std::string& value) {
    if (!value.empty()) m->other.emplace_back(std::string(name), value);
  };
  if (in.size_of_generated_code_in_bytes() != 0) {
    add("size_of_generated_code_in_bytes", absl::StrCat(in.size_of_generated_code_in_bytes()));
  }
  if (in.size_of_memory_working_set_in_bytes() != 0) {
    add("size_of_memory_working_set_in_bytes", absl::StrCat(in.size_of_memory_working_set_in_bytes()));
  }
  add("deduplicated_name", in.deduplicated_name().empty() ? "" : Quote(in.deduplicated_name()));
  add("scheduling_name", in.scheduling_name().empty() ? "" : Quote(in.scheduling_name()));
}

StringMap ReadStringMap(const pb::FrontendAttributes& in) {
  StringMap map;
  for (const pb::FrontendAttributes::Entry& entry : in.map()) map[entry.key()] = entry.value();
  return map;
}

}  // namespace xlad::hlo
