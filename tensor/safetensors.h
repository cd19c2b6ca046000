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
