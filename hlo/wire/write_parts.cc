// Writes shapes, metadata, string maps and program shapes to protos.
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/wire/parts.h"
#include "tensor/wire.h"

namespace xlad::hlo {
namespace {

bool TakeInt(absl::string_view* text, int64_t* value) {
  const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), *value);
  if (error != std::errc()) return false;
  text->remove_prefix(stop - text->data());
  return true;
}

// Parses a list such as "(8,128)" at the start of the text, removes it, and calls `add` with each number.
template <typename Add>
bool TakeList(absl::string_view* text, const Add& add) {
  if (text->empty() || text->front() != '(') return false;
  text->remove_prefix(1);
  while (true) {
    int64_t value = 0;
    if (!TakeInt(text, &value)) return false;
    add(value);
    if (text->empty()) return false;
    const char c = text->front();
    text->remove_prefix(1);
    if (c == ')') return true;
    if (c != ',') return false;
  }
}

// The parts of a layout's suffix that are a letter and one number, and the proto field of that number.
struct SuffixLetter {
  char letter;
  void (pb::Layout::*set)(int64_t);
};
constexpr SuffixLetter kSuffixLetters[] = {
    {'L', &pb::Layout::set_tail_padding_alignment_in_elements},
    {'E', &pb::Layout::set_element_size_in_bits},
    {'S', &pb::Layout::set_memory_space},
    {'M', &pb::Layout::set_dynamic_shape_metadata_prefix_bytes},
};

// Writes the parts of a suffix such as "T(8,128)(2,1)E(4)S(1)" up to the first one that has no field.
void WriteSuffix(absl::string_view text, pb::Layout* out) {
  while (!text.empty()) {
    const char letter = text.front();
    text.remove_prefix(1);
    if (letter == 'T') {
      do {
        pb::Tile* const tile = out->add_tiles();
        if (!TakeList(&text, [&](int64_t size) { tile->add_dimensions(size); })) return;
      } while (!text.empty() && text.front() == '(');
      continue;
    }
    bool known = false;
    for (const SuffixLetter& row : kSuffixLetters) {
      if (row.letter != letter) continue;
      known = TakeList(&text, [&](int64_t value) { (out->*row.set)(value); });
    }
    if (!known) return;
  }
}

void WriteArrayShape(const Shape& shape, pb::Shape* out) {
  tensor::TypeToWire(shape.type(), out);
  for (size_t d = 0; d < shape.dims().size(); ++d) {
    const Shape::Extent extent = shape.extents().empty() ? Shape::Extent::kFixed : shape.extents()[d];
    out->add_dimensions(extent == Shape::Extent::kUnbounded ? kUnboundedSize : shape.dims()[d]);
    out->add_is_dynamic_dimension(extent != Shape::Extent::kFixed);
  }
  pb::Layout* const layout = out->mutable_layout();
  layout->set_tail_padding_alignment_in_elements(1);
  const Layout* const given = shape.layout();
  if (given != nullptr && !given->suffix.empty()) {
    WriteSuffix(given->suffix, layout);
    if (LayoutSuffix(*layout) != given->suffix) layout->set_suffix(given->suffix);
  }
  if (given != nullptr && (!given->minor_to_major.empty() || shape.ndim() == 0)) {
    CopyInts(given->minor_to_major, layout->mutable_minor_to_major());
    return;
  }
  for (int64_t d = shape.ndim(); d-- > 0;) layout->add_minor_to_major(d);
  if (shape.ndim() > 0) out->set_no_layout(true);
}

}  // namespace

std::string LayoutSuffix(const pb::Layout& layout) {
  std::string suffix;
  if (layout.tiles_size() > 0) suffix.push_back('T');
  for (const pb::Tile& tile : layout.tiles()) absl::StrAppend(&suffix, "(", absl::StrJoin(tile.dimensions(), ","), ")");
  const auto append = [&](char letter, int64_t value, int64_t none) {
    if (value != 0 && value != none) absl::StrAppend(&suffix, absl::string_view(&letter, 1), "(", value, ")");
  };
  append('L', layout.tail_padding_alignment_in_elements(), 1);
  append('E', layout.element_size_in_bits(), 0);
  append('S', layout.memory_space(), 0);
  append('M', layout.dynamic_shape_metadata_prefix_bytes(), 0);
  return suffix;
}

void WriteShape(const Shape& shape, pb::Shape* out) {
  switch (shape.kind()) {
    case Shape::Kind::kArray:
      return WriteArrayShape(shape, out);
    case Shape::Kind::kToken:
      return out->set_element_type(kTokenType);
    case Shape::Kind::kOpaque:
      return out->set_element_type(kOpaqueType);
    case Shape::Kind::kTuple:
    case Shape::Kind::kBuffer:
      break;
  }
  out->set_element_type(shape.is_tuple() ? kTupleType : kBufferType);
  for (const Shape& element : shape.tuple()) WriteShape(element, out->add_tuple_shapes());
}

void WriteMetadata(const Metadata& m, pb::Metadata* out) {
  out->set_op_type(m.op_type);
  out->set_op_name(m.op_name);
  out->set_source_file(m.source_file);
  out->set_source_line(m.source_line);
  out->set_source_end_line(m.source_end_line);
  out->set_source_column(m.source_column);
  out->set_source_end_column(m.source_end_column);
  out->set_stack_frame_id(m.stack_frame_id);
  for (const auto& [name, value] : m.other) {
    pb::Metadata::Other* const other = out->add_other();
    other->set_name(name);
    other->set_value(value);
  }
}

void WriteStringMap(const StringMap& map, pb::FrontendAttributes* out) {
  for (const auto& [key, value] : map) {
    pb::FrontendAttributes::Entry* const entry = out->add_map();
    entry->set_key(key);
    entry->set_value(value);
  }
}

void WriteProgramShape(const Computation& computation, pb::ProgramShape* out) {
  for (const Instruction* const parameter : computation.parameters()) {
    WriteShape(parameter->shape(), out->add_parameters());
    out->add_parameter_names(parameter->name());
  }
  WriteShape(computation.ProgramResult(), out->mutable_result());
}

}  // namespace xlad::hlo
