#include "tensor/safetensors.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "tensor/sub_byte.h"

namespace xlad::tensor {
namespace {

constexpr std::pair<absl::string_view, ElementType> kNames[] = {
    {"BOOL", ElementType::kPred},      {"I8", ElementType::kS8},     {"I16", ElementType::kS16},
    {"I32", ElementType::kS32},        {"I64", ElementType::kS64},   {"U8", ElementType::kU8},
    {"U16", ElementType::kU16},        {"U32", ElementType::kU32},   {"U64", ElementType::kU64},
    {"F16", ElementType::kF16},        {"BF16", ElementType::kBF16}, {"F32", ElementType::kF32},
    {"F64", ElementType::kF64},        {"C64", ElementType::kC64},   {"F8_E4M3", ElementType::kF8E4M3FN},
    {"F8_E5M2", ElementType::kF8E5M2},
};

constexpr char kMetadata[] = "__metadata__";  // The key of the metadata.

absl::Status MalformedError(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not a valid safetensors file: ", what));
}

const auto* RowOf(ElementType type) {
  return std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& row) { return row.second == type; });
}

constexpr absl::string_view kFields[] = {"dtype", "shape", "data_offsets"};

// The unchecked entry of one tensor in the header.
struct RawEntry {
  bool has[std::size(kFields)] = {};  // Whether each field was read.
  std::string dtype;
  Dims dims;
  Dims offsets;
};

absl::StatusOr<SafetensorsEntry> CheckEntry(const std::string& name, const RawEntry& raw, int64_t data_begin,
                                            int64_t data_bytes) {
  for (size_t i = 0; i < std::size(kFields); ++i) {
    if (!raw.has[i]) return MalformedError(absl::StrCat("tensor \"", name, "\" has no \"", kFields[i], "\""));
  }
  const auto* row = std::find_if(std::begin(kNames), std::end(kNames),
                                 [&](const auto& candidate) { return candidate.first == raw.dtype; });
  if (row == std::end(kNames)) {
    return MalformedError(absl::StrCat("tensor \"", name, "\" has unknown dtype \"", raw.dtype, "\""));
  }
  SafetensorsEntry entry{{row->second, raw.dims}, 0};
  if (raw.offsets.size() != 2) {
    return MalformedError(absl::StrCat("tensor \"", name, "\" has ", raw.offsets.size(), " data_offsets, expected 2"));
  }
  const int64_t begin = raw.offsets[0], end = raw.offsets[1];
  const absl::StatusOr<int64_t> elements = CheckedElements(entry.shape.type, entry.shape.dims);
  if (!elements.ok()) {
    return MalformedError(absl::StrCat("tensor \"", name, "\": ", elements.status().message()));
  }
  if (begin < 0 || end < begin || end > data_bytes) {
    return MalformedError(absl::StrCat("tensor \"", name, "\" has the data_offsets [", begin, ", ", end,
                                       "], expected a range in the ", data_bytes, " bytes of data"));
  }
  if (end - begin != entry.shape.bytes()) {
    return MalformedError(absl::StrCat("tensor \"", name, "\" of shape ", entry.shape.ToString(), " has ", end - begin,
                                       " bytes, expected ", entry.shape.bytes()));
  }
  entry.begin = data_begin + begin;
  return entry;
}

// Reads {NAME: {"dtype": TEXT, "shape": [INTEGER...], "data_offsets": [INTEGER...]}, "__metadata__": {KEY: TEXT}} and
// stops at the first value that is anything else.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::map<std::string, RawEntry> entries;
  std::string error;

  bool key(string_t& text) override {
    if (depth_ == 2) {
      field_ = text;
      const size_t i = std::find(std::begin(kFields), std::end(kFields), field_) - std::begin(kFields);
      if (in_metadata_ || i == std::size(kFields)) return true;  // The value of an unknown field is refused.
      if (std::exchange(entries[name_].has[i], true)) return Refuse(absl::StrCat("has \"", field_, "\" twice"));
      return true;
    }
    name_ = text;
    has_name_ = true;
    in_metadata_ = text == kMetadata;
    if (!in_metadata_ && !entries.try_emplace(name_).second) return Refuse("occurs twice");
    return true;
  }
  bool start_object(size_t) override {
    if (++depth_ > 2 || in_array_) return Refuse(depth_ > 2 ? "is nested too deeply" : "has an object in a list");
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    const bool known = depth_ == 2 && !in_metadata_ && !in_array_ && (field_ == "shape" || field_ == "data_offsets");
    in_array_ = true;
    return known || Refuse(absl::StrCat("has a list in \"", field_, "\""));
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }
  bool number_integer(number_integer_t value) override { return Number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!std::in_range<int64_t>(value)) return Refuse(absl::StrCat("has the number ", value));
    return Number(value);
  }
  bool string(string_t& text) override {
    if (in_metadata_ && depth_ == 2 && !in_array_) return true;
    if (depth_ != 2 || field_ != "dtype" || in_array_) return Refuse(absl::StrCat("has text in \"", field_, "\""));
    entries[name_].dtype = text;
    return true;
  }
  bool null() override { return Refuse("has a null"); }
  bool boolean(bool) override { return Refuse("has a boolean"); }
  bool number_float(number_float_t, const string_t& text) override {
    return Refuse(absl::StrCat("has the number ", text));
  }
  bool binary(binary_t&) override { return Refuse("has binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error = absl::StrCat("the header is not a JSON object: error at its byte ", position);
    return false;
  }

 private:
  bool Number(int64_t value) {
    if (!in_array_) return Refuse(absl::StrCat("has the number ", value, " in \"", field_, "\""));
    (field_ == "shape" ? entries[name_].dims : entries[name_].offsets).push_back(value);
    return true;
  }
  bool Refuse(absl::string_view what) {
    error = depth_ == 0 || !has_name_ ? absl::StrCat("the header is not a JSON object: it ", what)
                                         : absl::StrCat("tensor \"", name_.substr(0, 80), "\" ", what);
    return false;
  }

  int depth_ = 0;
  bool in_array_ = false;
  bool in_metadata_ = false;
  bool has_name_ = false;  // Whether a name was read. The name of a tensor may be empty.
  std::string name_;
  std::string field_;
};

}  // namespace

bool IsStoredAsBytes(const Shape& stored, const Shape& shape) {
  Dims with_bytes = shape.dims;
  if (ByteWidth(shape.type) > 1) with_bytes.push_back(ByteWidth(shape.type));
  return stored.type == ElementType::kU8 && stored.dims == with_bytes;
}

void ToStored(ElementType type, absl::Span<std::byte> bytes) {
  const int width = BitWidth(type);
  if (width >= 8) return;
  for (std::byte& byte : bytes) byte &= static_cast<std::byte>((1 << width) - 1);
}

void FromStored(ElementType type, absl::Span<std::byte> bytes) {
  if (!IsSigned(type) || BitWidth(type) >= 8) return;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(WrapSubByte(type, static_cast<int8_t>(byte)));
}

absl::StatusOr<Array> FromStored(const Array& stored, const Shape& shape) {
  const Shape& found = stored.shape();
  if (!(found == shape) && !IsStoredAsBytes(found, shape)) {
    return absl::InvalidArgumentError(absl::StrCat("found ", found.ToString(), ", expected ", shape.ToString(),
                                                   found.dims == shape.dims ? "" : " or its bytes as u8"));
  }
  Array array(shape, std::vector<std::byte>(stored.bytes().begin(), stored.bytes().end()));
  FromStored(shape.type, array.bytes());
  return array;
}

absl::StatusOr<SafetensorsIndex> ParseSafetensorsIndex(absl::string_view bytes, int64_t file_bytes) {
  if (bytes.size() < 8) return MalformedError(absl::StrCat("found ", bytes.size(), " bytes, expected at least 8"));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  const uint64_t max_header_bytes = std::min<uint64_t>(kMaxSafetensorsHeaderBytes, bytes.size() - 8);
  if (header_bytes > max_header_bytes) {
    return MalformedError(
        absl::StrCat("found a header of ", header_bytes, " bytes, expected at most ", max_header_bytes));
  }
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(bytes.data() + 8, bytes.data() + 8 + header_bytes, &reader)) {
    return MalformedError(reader.error);
  }
  const int64_t data_begin = 8 + header_bytes;
  SafetensorsIndex index;
  for (const auto& [name, raw] : reader.entries) {
    XLAD_ASSIGN_OR_RETURN(SafetensorsEntry entry, CheckEntry(name, raw, data_begin, file_bytes - data_begin));
    index.emplace(name, std::move(entry));
  }
  return index;
}

absl::StatusOr<NamedArrays> ParseSafetensors(absl::string_view bytes) {
  XLAD_ASSIGN_OR_RETURN(const SafetensorsIndex index, ParseSafetensorsIndex(bytes, std::ssize(bytes)));
  NamedArrays arrays;
  for (const auto& [name, entry] : index) {
    Array array(entry.shape);
    if (array.bytes().size() > 0) std::memcpy(array.bytes().data(), bytes.data() + entry.begin, array.bytes().size());
    arrays.emplace(name, std::move(array));
  }
  return arrays;
}

absl::Status CheckSafetensorsName(const std::string& name) {
  if (name == kMetadata) {
    return absl::InvalidArgumentError(
        absl::StrCat("found the name ", kMetadata, ", expected another one: safetensors files have metadata under it"));
  }
  // Bytes that are not UTF-8 are replaced.
  if (nlohmann::json::parse(JsonText(nlohmann::json(name))).get<std::string>() == name) return absl::OkStatus();
  return absl::InvalidArgumentError("found a name that is not UTF-8, expected UTF-8, as safetensors files require");
}

std::string SafetensorsHeader(const std::vector<std::pair<std::string, Shape>>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  int64_t offset = 0;
  std::string text = JsonText(header);
  // Removes the closing brace. Entries are appended as text, because looking up a key in ordered_json takes linear
  // time.
  text.pop_back();
  for (const auto& [name, shape] : tensors) {
    const auto* row = RowOf(shape.type);
    const bool named = row != std::end(kNames);
    Dims dims = shape.dims;
    if (!named && ByteWidth(shape.type) > 1) dims.push_back(ByteWidth(shape.type));
    const std::string dtype(named ? row->first : "U8");
    absl::StrAppend(&text, text.size() > 1 ? "," : "", JsonText(nlohmann::json(name)), ":{\"dtype\":\"", dtype,
                    "\",\"shape\":", JsonText(nlohmann::json(dims)), ",\"data_offsets\":[", offset, ",",
                    offset + shape.bytes(), "]}");
    offset += shape.bytes();
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t header_bytes = text.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &header_bytes, 8);
  return out + text;
}

std::string SerializeSafetensors(const NamedArrays& arrays) {
  std::vector<std::pair<std::string, Shape>> tensors;
  int64_t data_bytes = 0;
  for (const auto& [name, array] : arrays) {
    tensors.emplace_back(name, array.shape());
    data_bytes += array.shape().bytes();
  }
  std::string out = SafetensorsHeader(tensors);
  out.reserve(out.size() + data_bytes);
  for (const auto& [name, array] : arrays) {
    const size_t begin = out.size();
    out.append(reinterpret_cast<const char*>(array.bytes().data()), array.bytes().size());
    ToStored(array.shape().type, absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()) + begin, out.size() - begin));
  }
  return out;
}

absl::StatusOr<NamedArrays> ReadSafetensors(FileSystem& files, const std::string& path) {
  XLAD_ASSIGN_OR_RETURN(const std::string bytes, files.Read(path));
  auto arrays = ParseSafetensors(bytes);
  if (!arrays.ok()) return Annotate(arrays.status(), path);
  return arrays;
}

absl::Status WriteSafetensors(FileSystem& files, const std::string& path, const NamedArrays& arrays) {
  return files.WriteAtomically(path, SerializeSafetensors(arrays));
}

}  // namespace xlad::tensor
