#include "tensor/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tensor/sub_byte.h"

namespace xlad::tensor {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;

constexpr std::pair<absl::string_view, ElementType> kNames[] = {
    {"BOOL", ElementType::kPred},      {"I8", ElementType::kS8},     {"I16", ElementType::kS16},
    {"I32", ElementType::kS32},        {"I64", ElementType::kS64},   {"U8", ElementType::kU8},
    {"U16", ElementType::kU16},        {"U32", ElementType::kU32},   {"U64", ElementType::kU64},
    {"F16", ElementType::kF16},        {"BF16", ElementType::kBF16}, {"F32", ElementType::kF32},
    {"F64", ElementType::kF64},        {"C64", ElementType::kC64},   {"F8_E4M3", ElementType::kF8E4M3FN},
    {"F8_E5M2", ElementType::kF8E5M2},
};

absl::Status MalformedError(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not a valid safetensors file: ", what));
}

struct Entry {
  Shape shape;
  int64_t begin = 0;
  int64_t end = 0;
};

absl::StatusOr<Entry> ParseEntry(const std::string& name, const nlohmann::json& json, int64_t data_bytes) {
  Entry entry;
  try {
    const std::string dtype = json.at("dtype").get<std::string>();
    const auto* row = std::find_if(std::begin(kNames), std::end(kNames),
                                   [&](const auto& candidate) { return candidate.first == dtype; });
    if (row == std::end(kNames)) return MalformedError(absl::StrCat("tensor \"", name, "\" has unknown dtype ", dtype));
    entry.shape.type = row->second;
    entry.shape.dims = json.at("shape").get<Dims>();
    entry.begin = json.at("data_offsets").at(0).get<int64_t>();
    entry.end = json.at("data_offsets").at(1).get<int64_t>();
  } catch (const nlohmann::json::exception& error) {
    return MalformedError(absl::StrCat("tensor \"", name, "\": ", error.what()));
  }
  XLAD_ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(entry.shape.type, entry.shape.dims));
  if (entry.begin < 0 || entry.end < entry.begin || entry.end > data_bytes) {
    return MalformedError(absl::StrCat("tensor \"", name, "\" has the bytes [", entry.begin, ", ", entry.end,
                                       ") of the ", data_bytes, " bytes of data"));
  }
  const int64_t expected = elements * ByteWidth(entry.shape.type);
  if (entry.end - entry.begin != expected) {
    return MalformedError(absl::StrCat("tensor \"", name, "\" of shape ", entry.shape.ToString(), " has ",
                                       entry.end - entry.begin, " bytes, expected ", expected));
  }
  return entry;
}

}  // namespace

absl::StatusOr<Array> FromStored(const Array& stored, const Shape& shape) {
  const Shape& found = stored.shape();
  Dims with_bytes = shape.dims;
  if (ByteWidth(shape.type) > 1) with_bytes.push_back(ByteWidth(shape.type));
  const bool as_bytes = found.type == ElementType::kU8 && found.dims == with_bytes;
  if (!(found == shape) && !as_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("found ", found.ToString(), ", expected ", shape.ToString(),
                                                   found.dims == shape.dims ? "" : " or its bytes as u8"));
  }
  Array array(shape, std::vector<std::byte>(stored.bytes().begin(), stored.bytes().end()));
  if (IsSigned(shape.type) && BitWidth(shape.type) < 8) {
    for (int8_t& value : array.values<int8_t>()) value = WrapSubByte(shape.type, value);
  }
  return array;
}

absl::StatusOr<SafetensorsIndex> ParseSafetensorsIndex(absl::string_view bytes, int64_t file_bytes) {
  if (bytes.size() < 8) return MalformedError(absl::StrCat("found ", bytes.size(), " bytes, expected at least 8"));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - 8) {
    return MalformedError(absl::StrCat("header length ", header_bytes, " is past the end of ", bytes.size(), " bytes"));
  }
  const auto header = nlohmann::json::parse(bytes.data() + 8, bytes.data() + 8 + header_bytes, nullptr, false);
  if (!header.is_object()) return MalformedError("the header is not a JSON object");
  const int64_t data_begin = 8 + header_bytes;
  SafetensorsIndex index;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") continue;
    XLAD_ASSIGN_OR_RETURN(Entry entry, ParseEntry(name, json, file_bytes - data_begin));
    index.emplace(name, SafetensorsEntry{std::move(entry.shape), data_begin + entry.begin});
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

std::string SerializeSafetensors(const NamedArrays& arrays) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  int64_t offset = 0;
  for (const auto& [name, array] : arrays) {
    const Shape& shape = array.shape();
    const auto* row = std::find_if(std::begin(kNames), std::end(kNames),
                                   [&](const auto& candidate) { return candidate.second == shape.type; });
    nlohmann::ordered_json entry;
    Dims dims = shape.dims;
    if (row == std::end(kNames) && ByteWidth(shape.type) > 1) dims.push_back(ByteWidth(shape.type));
    entry["dtype"] = std::string(row == std::end(kNames) ? "U8" : row->first);
    entry["shape"] = dims;
    entry["data_offsets"] = {offset, offset + shape.bytes()};
    offset += shape.bytes();
    header[name] = std::move(entry);
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t header_bytes = text.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &header_bytes, 8);
  out += text;
  out.reserve(out.size() + offset);
  for (const auto& [name, array] : arrays) {
    const size_t begin = out.size();
    out.append(reinterpret_cast<const char*>(array.bytes().data()), array.bytes().size());
    const int width = BitWidth(array.shape().type);
    if (width >= 8) continue;
    for (size_t i = begin; i < out.size(); ++i) out[i] &= (1 << width) - 1;
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
