// The safetensors format: an 8-byte little-endian header length, a JSON header, raw row-major data.
//
// Element types safetensors has no name for are stored as U8 by their bytes. Reading trusts nothing: a bad header,
// overlapping or short data is an InvalidArgument that names the file, the tensor and the byte range.
#pragma once

#include <map>
#include <string>

#include "base/file_system.h"
#include "tensor/array.h"

namespace xlad::tensor {

using NamedArrays = std::map<std::string, Array>;

// The array of `shape` that `stored` holds: itself, or, where the format has no name for the element type, made from
// U8 of the same dimensions (and one more of the element's bytes, if those are above 1). Sub-byte types take one byte
// an element, the value in its low bits and zeros above. InvalidArgument in words: "found f32[2], expected s4[2]".
absl::StatusOr<Array> FromStored(const Array& stored, const Shape& shape);

absl::StatusOr<NamedArrays> ParseSafetensors(absl::string_view bytes);
std::string SerializeSafetensors(const NamedArrays& arrays);

// Where a tensor's data lies in a file.
struct SafetensorsEntry {
  Shape shape;
  int64_t begin = 0;  // Bytes from the start of the file.
};
using SafetensorsIndex = std::map<std::string, SafetensorsEntry>;

// The header alone: `bytes` may end anywhere behind it; `file_bytes` is how long the whole file is.
absl::StatusOr<SafetensorsIndex> ParseSafetensorsIndex(absl::string_view bytes, int64_t file_bytes);

absl::StatusOr<NamedArrays> ReadSafetensors(FileSystem& files, const std::string& path);
absl::Status WriteSafetensors(FileSystem& files, const std::string& path, const NamedArrays& arrays);

}  // namespace xlad::tensor
