// HLO text: prints the values of attributes.
#include <algorithm>
#include <charconv>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/text/lexer.h"
#include "hlo/text/print.h"

namespace xlad::hlo {
namespace {

// Appends a key of window={...} with the text that `get` appends for each dimension: "size=2x2".
template <typename Get>
void AppendWindowKey(absl::string_view key, const Window& window, const Get& get, std::string* out) {
  if (out->back() != '{') out->push_back(' ');
  absl::StrAppend(out, key, "=",
                  absl::StrJoin(window, "x", [&](std::string* o, const WindowDimension& d) { get(d, o); }));
}

struct PrintedWindowKey {
  absl::string_view name;
  int64_t WindowDimension::* member;
  bool always;
};

void AppendField(absl::string_view name, const std::string& value, std::string* out) {
  if (value.empty()) return;
  absl::StrAppend(out, out->back() == '{' ? "" : " ", name, "=");
  AppendQuoted(value, out);
}

void AppendField(absl::string_view name, int64_t value, std::string* out) {
  if (value != 0) absl::StrAppend(out, out->back() == '{' ? "" : " ", name, "=", value);
}

// The labels of dimensions, such as "b01f": a letter or a number for each dimension with a role, '?' for the others.
std::string Labels(std::initializer_list<std::pair<int64_t, char>> named, const Dims& spatial) {
  constexpr int64_t kMost = 64;
  std::string labels;
  const auto put = [&](int64_t dimension, char label) {
    if (dimension < 0 || dimension >= kMost) return;
    if (dimension >= std::ssize(labels)) labels.resize(dimension + 1, '?');
    labels[dimension] = label;
  };
  for (size_t s = 0; s < spatial.size(); ++s) put(spatial[s], '0' + s);
  for (const auto& [dimension, label] : named) put(dimension, label);
  return labels;
}

}  // namespace

void AppendInts(absl::Span<const int64_t> values, std::string* out) {
  absl::StrAppend(out, "{", absl::StrJoin(values, ","), "}");
}

void AppendBools(const std::vector<bool>& values, std::string* out) {
  out->push_back('{');
  for (size_t i = 0; i < values.size(); ++i) absl::StrAppend(out, i == 0 ? "" : ",", values[i] ? "true" : "false");
  out->push_back('}');
}

void AppendQuoted(absl::string_view value, std::string* out) {
  absl::StrAppend(out, "\"", absl::CEscape(value), "\"");
}

void AppendStringMap(const StringMap& map, std::string* out) {
  out->push_back('{');
  for (const auto& [key, value] : map) {
    if (&key != &map.begin()->first) out->push_back(',');
    if (IsWord(key)) {
      out->append(key);
    } else {
      AppendQuoted(key, out);
    }
    out->push_back('=');
    if (IsBracedValue(value)) {
      out->append(value);
    } else {
      AppendQuoted(value, out);
    }
  }
  out->push_back('}');
}

void AppendMetadata(const Metadata& m, std::string* out) {
  out->push_back('{');
  AppendField("op_type", m.op_type, out);
  AppendField("op_name", m.op_name, out);
  AppendField("source_file", m.source_file, out);
  AppendField("source_line", m.source_line, out);
  AppendField("source_end_line", m.source_end_line, out);
  AppendField("source_column", m.source_column, out);
  AppendField("source_end_column", m.source_end_column, out);
  AppendField("stack_frame_id", m.stack_frame_id, out);
  for (const auto& [name, value] : m.other) absl::StrAppend(out, out->back() == '{' ? "" : " ", name, "=", value);
  out->push_back('}');
}

void AppendWindow(const Window& window, std::string* out) {
  static constexpr PrintedWindowKey kKeys[] = {{"size", &WindowDimension::size, true},
                                               {"stride", &WindowDimension::stride, false},
                                               {"lhs_dilate", &WindowDimension::base_dilation, false},
                                               {"rhs_dilate", &WindowDimension::window_dilation, false}};
  out->push_back('{');
  bool padded = false, reversed = false;
  for (const WindowDimension& d : window) {
    padded |= d.padding_low != 0 || d.padding_high != 0;
    reversed |= d.window_reversal;
  }
  for (const PrintedWindowKey& key : kKeys) {
    bool set = key.always && !window.empty();
    for (const WindowDimension& d : window) set |= d.*key.member != 1;
    const auto number = [&](const WindowDimension& d, std::string* o) { absl::StrAppend(o, d.*key.member); };
    if (set) AppendWindowKey(key.name, window, number, out);
    const auto pad = [](const WindowDimension& d, std::string* o) {
      absl::StrAppend(o, d.padding_low, "_", d.padding_high);
    };
    if (key.member == &WindowDimension::stride && padded) AppendWindowKey("pad", window, pad, out);
  }
  const auto reversal = [](const WindowDimension& d, std::string* o) { absl::StrAppend(o, d.window_reversal ? 1 : 0); };
  if (reversed) AppendWindowKey("rhs_reversal", window, reversal, out);
  out->push_back('}');
}

void AppendConvolutionDimensions(const ConvolutionDimensions& d, std::string* out) {
  absl::StrAppend(out, Labels({{d.input_batch, 'b'}, {d.input_feature, 'f'}}, d.input_spatial), "_",
                  Labels({{d.kernel_input_feature, 'i'}, {d.kernel_output_feature, 'o'}}, d.kernel_spatial), "->",
                  Labels({{d.output_batch, 'b'}, {d.output_feature, 'f'}}, d.output_spatial));
}

void AppendPadding(const std::vector<PaddingDimension>& padding, std::string* out) {
  const bool interior = std::any_of(padding.begin(), padding.end(), [](const auto& d) { return d.interior != 0; });
  absl::StrAppend(out, absl::StrJoin(padding, "x", [&](std::string* o, const PaddingDimension& d) {
                    absl::StrAppend(o, d.low, "_", d.high);
                    if (interior) absl::StrAppend(o, "_", d.interior);
                  }));
}

void AppendSlice(const std::vector<SliceDimension>& slice, std::string* out) {
  absl::StrAppend(out, "{", absl::StrJoin(slice, ", ", [](std::string* o, const SliceDimension& d) {
                    absl::StrAppend(o, "[", d.start, ":", d.limit);
                    if (d.stride != 1) absl::StrAppend(o, ":", d.stride);
                    o->push_back(']');
                  }), "}");
}

void AppendPairs(const std::vector<std::pair<int64_t, int64_t>>& pairs, std::string* out) {
  absl::StrAppend(out, "{", absl::StrJoin(pairs, ",", [](std::string* o, const std::pair<int64_t, int64_t>& pair) {
                    absl::StrAppend(o, "{", pair.first, ",", pair.second, "}");
                  }), "}");
}

void AppendShapes(const std::vector<Shape>& shapes, std::string* out) {
  absl::StrAppend(out, "{", absl::StrJoin(shapes, ", ", [](std::string* o, const Shape& shape) {
                    o->append(shape.ToString());
                  }), "}");
}

void AppendOperandAliasing(const std::vector<OutputOperandAlias>& aliasing, std::string* out) {
  out->push_back('{');
  for (size_t i = 0; i < aliasing.size(); ++i) {
    if (i > 0) out->append(", ");
    AppendInts(aliasing[i].output_index, out);
    absl::StrAppend(out, ": (", aliasing[i].operand, ", ");
    AppendInts(aliasing[i].operand_index, out);
    out->push_back(')');
  }
  out->push_back('}');
}

}  // namespace xlad::hlo
