// HLO text: the values of attributes.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/counted.h"
#include "hlo/text/parse.h"

namespace xlad::hlo {
namespace {

// Parses "1_2" or "1x2x3": integers with a separator between them.
bool SplitInts(absl::string_view text, char separator, Dims* values) {
  values->clear();
  for (const absl::string_view part : absl::StrSplit(text, separator)) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(part, &value)) return false;
    values->push_back(value);
  }
  return true;
}

// A key of window={...}: the member that it sets, and how many numbers it has per dimension.
struct WindowKey {
  absl::string_view name;
  size_t numbers;
  void (*set)(const Dims&, WindowDimension*);
};
constexpr WindowKey kWindowKeys[] = {
    {"size", 1, [](const Dims& v, WindowDimension* d) { d->size = v[0]; }},
    {"stride", 1, [](const Dims& v, WindowDimension* d) { d->stride = v[0]; }},
    {"pad", 2,
     [](const Dims& v, WindowDimension* d) {
       d->padding_low = v[0];
       d->padding_high = v[1];
     }},
    {"lhs_dilate", 1, [](const Dims& v, WindowDimension* d) { d->base_dilation = v[0]; }},
    {"rhs_dilate", 1, [](const Dims& v, WindowDimension* d) { d->window_dilation = v[0]; }},
    {"rhs_reversal", 1, [](const Dims& v, WindowDimension* d) { d->window_reversal = v[0] != 0; }},
};

bool ParseWindowKey(Lexer& lexer, Window* window, absl::string_view* first_key) {
  const char* const at = lexer.Here();
  const absl::string_view name = lexer.Word();
  const WindowKey* key = nullptr;
  for (const WindowKey& row : kWindowKeys) {
    if (row.name == name) key = &row;
  }
  if (key == nullptr) {
    return lexer.FailAt(at, "size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal");
  }
  if (!lexer.Expect('=')) return false;
  const char* const value_at = lexer.Here();
  const std::vector<absl::string_view> parts = absl::StrSplit(lexer.Packed(), 'x');
  if (first_key->empty()) {
    *first_key = name;
    window->resize(parts.size());
  } else if (parts.size() != window->size()) {
    return lexer.Fail(value_at, absl::StrCat("found ", name, " of ", Counted(parts.size(), "dimension"), ", expected ",
                                             window->size(), " as in ", *first_key));
  }
  Dims numbers;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!SplitInts(parts[i], '_', &numbers) || numbers.size() != key->numbers) {
      return lexer.FailAt(value_at, key->numbers == 2 ? "padding, as in 0_1x0_1" : "sizes, as in 2x2");
    }
    key->set(numbers, &(*window)[i]);
  }
  return true;
}

// The destinations of TakeLabels. For labels such as "b01f", it writes the positions of the batch dimension, of the
// feature dimension and of the spatial dimensions.
struct LabelPlaces {
  int64_t* batch_dim;
  int64_t* feature_dim;
  Dims* spatial;
};

bool TakeLabels(absl::string_view labels, char batch, char feature, const LabelPlaces& places) {
  const auto& [batch_dim, feature_dim, spatial] = places;
  // A '?' is a dimension without a role, such as the vector dimension of cuDNN's layout NCHW_VECT_C.
  const size_t known = labels.size() - std::count(labels.begin(), labels.end(), '?');
  spatial->assign(known < 2 ? 0 : known - 2, -1);
  *batch_dim = *feature_dim = -1;
  for (size_t i = 0; i < labels.size(); ++i) {
    const char label = labels[i];
    if (label == '?') continue;
    int64_t* slot = nullptr;
    if (label == batch) {
      slot = batch_dim;
    } else if (label == feature) {
      slot = feature_dim;
    } else if (label >= '0' && label <= '9' && label - '0' < std::ssize(*spatial)) {
      slot = &(*spatial)[label - '0'];
    }
    if (slot == nullptr || *slot >= 0) return false;
    *slot = i;
  }
  return *batch_dim >= 0 && *feature_dim >= 0;
}

// A field of metadata with a member of its own.
struct MetadataText {
  absl::string_view name;
  std::string Metadata::* member;
};
constexpr MetadataText kMetadataTexts[] = {
    {"op_type", &Metadata::op_type}, {"op_name", &Metadata::op_name}, {"source_file", &Metadata::source_file}};
struct MetadataNumber {
  absl::string_view name;
  int64_t Metadata::* member;
};
constexpr MetadataNumber kMetadataNumbers[] = {
    {"source_line", &Metadata::source_line},
    {"source_end_line", &Metadata::source_end_line},
    {"source_column", &Metadata::source_column},
    {"source_end_column", &Metadata::source_end_column},
    {"stack_frame_id", &Metadata::stack_frame_id},
};

bool ParseMetadataField(Lexer& lexer, Metadata* metadata) {
  absl::string_view name;
  if (!lexer.ExpectWord("a field of metadata, as in op_name=\"...\"", &name) || !lexer.Expect('=')) return false;
  for (const MetadataText& row : kMetadataTexts) {
    if (row.name == name) return lexer.String(&(metadata->*row.member));
  }
  for (const MetadataNumber& row : kMetadataNumbers) {
    if (row.name == name) return lexer.Integer32(&(metadata->*row.member));
  }
  absl::string_view value;
  if (!lexer.Raw(&value, /*spaces=*/true)) return false;
  metadata->other.emplace_back(std::string(name), std::string(value));
  return true;
}

}  // namespace

bool ParseInts(Lexer& lexer, Dims* values) {
  return ParseBraced(lexer, [&] {
    values->push_back(0);
    return lexer.Integer(&values->back());
  });
}

bool ParseBools(Lexer& lexer, std::vector<bool>* values) {
  const auto one = [&] {
    bool value = false;
    if (!lexer.Bool(&value)) return false;
    values->push_back(value);
    return true;
  };
  return lexer.Peek() == '{' ? ParseBraced(lexer, one) : one();
}

bool ParseStringMap(Lexer& lexer, StringMap* map) {
  return ParseBraced(lexer, [&] {
    const char* const at = lexer.Here();
    std::string key;
    if (lexer.AtString()) {
      if (!lexer.String(&key)) return false;
    } else {
      absl::string_view word;
      if (!lexer.ExpectWord("a name, as in name=\"value\"", &word)) return false;
      key = std::string(word);
    }
    const auto [entry, fresh] = map->emplace(std::move(key), "");
    if (!fresh) return lexer.Fail(at, absl::StrCat("found ", entry->first, " twice, expected it once"));
    if (!lexer.Expect('=')) return false;
    if (lexer.AtString()) return lexer.String(&entry->second);
    if (lexer.Peek() != '{') return lexer.FailExpected("a string in quotes or a value in braces");
    absl::string_view value;
    if (!lexer.Raw(&value)) return false;
    entry->second = std::string(value);
    return true;
  });
}

bool ParseMetadata(Lexer& lexer, Metadata* metadata) {
  if (!lexer.Expect('{')) return false;
  while (!lexer.Accept('}')) {
    if (!ParseMetadataField(lexer, metadata)) return false;
    lexer.Accept(',');
  }
  return true;
}

bool ParseMetadataList(Lexer& lexer, std::vector<Metadata>* list) {
  const char* const at = lexer.Here();
  if (!lexer.Expect('{')) return false;
  const bool is_list = lexer.Peek() == '{';
  lexer.Rewind(at);
  const auto one = [&] { return ParseMetadata(lexer, &list->emplace_back()); };
  return is_list ? ParseBraced(lexer, one) : one();
}

bool ParseWindow(Lexer& lexer, Window* window) {
  if (!lexer.Expect('{')) return false;
  absl::string_view first_key;
  while (!lexer.Accept('}')) {
    if (!ParseWindowKey(lexer, window, &first_key)) return false;
  }
  return true;
}

bool ParseConvolutionDimensions(Lexer& lexer, ConvolutionDimensions* d) {
  const char* const at = lexer.Here();
  const absl::string_view text = lexer.Packed();
  const size_t underscore = text.find('_');
  const size_t arrow = text.find("->");
  const auto fail = [&] { return lexer.FailAt(at, "dimension labels, as in b01f_01io->b01f"); };
  if (underscore == absl::string_view::npos || arrow == absl::string_view::npos || arrow < underscore) return fail();
  const absl::string_view input = text.substr(0, underscore);
  const absl::string_view kernel = text.substr(underscore + 1, arrow - underscore - 1);
  const absl::string_view output = text.substr(arrow + 2);
  if (!TakeLabels(input, 'b', 'f', {&d->input_batch, &d->input_feature, &d->input_spatial}) ||
      !TakeLabels(kernel, 'o', 'i', {&d->kernel_output_feature, &d->kernel_input_feature, &d->kernel_spatial}) ||
      !TakeLabels(output, 'b', 'f', {&d->output_batch, &d->output_feature, &d->output_spatial})) {
    return fail();
  }
  return true;
}

bool ParsePadding(Lexer& lexer, std::vector<PaddingDimension>* padding) {
  const char* const at = lexer.Here();
  const absl::string_view text = lexer.Packed();
  if (text.empty()) return true;  // The padding of a scalar is empty.
  Dims numbers;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    if (!SplitInts(part, '_', &numbers) || numbers.size() < 2 || numbers.size() > 3) {
      return lexer.FailAt(at, "padding, as in 0_1x2_2_1");
    }
    padding->push_back({numbers[0], numbers[1], numbers.size() == 3 ? numbers[2] : 0});
  }
  return true;
}

bool ParseSlice(Lexer& lexer, std::vector<SliceDimension>* slice) {
  return ParseBraced(lexer, [&] {
    SliceDimension& d = slice->emplace_back();
    return lexer.Expect('[') && lexer.Integer(&d.start) && lexer.Expect(':') && lexer.Integer(&d.limit) &&
           (!lexer.Accept(':') || lexer.Integer(&d.stride)) && lexer.Expect(']');
  });
}

bool ParsePairs(Lexer& lexer, std::vector<std::pair<int64_t, int64_t>>* pairs) {
  return ParseBraced(lexer, [&] {
    auto& [source, target] = pairs->emplace_back();
    return lexer.Expect('{') && lexer.Integer(&source) && lexer.Expect(',') && lexer.Integer(&target) &&
           lexer.Expect('}');
  });
}

bool ParseShapes(Lexer& lexer, std::vector<Shape>* shapes) {
  return ParseBraced(lexer, [&] { return ParseShape(lexer, &shapes->emplace_back()); });
}

bool ParseOperandAliasing(Lexer& lexer, std::vector<OutputOperandAlias>* aliasing) {
  return ParseBraced(lexer, [&] {
    OutputOperandAlias& alias = aliasing->emplace_back();
    return ParseInts(lexer, &alias.output_index) && lexer.Expect(':') && lexer.Expect('(') &&
           lexer.Integer(&alias.operand) && lexer.Expect(',') && ParseInts(lexer, &alias.operand_index) &&
           lexer.Expect(')');
  });
}

}  // namespace xlad::hlo
