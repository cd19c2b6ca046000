// The safetensors format (huggingface.co/docs/safetensors): the length of the header as 8 bytes, little-endian; the
// header, a JSON object with element type, dimensions and byte range of each tensor by name; the tensors' elements in
// row-major order.
//
// Reading trusts nothing: a malformed header, and data that is missing or has the wrong size for its shape, are
// InvalidArgument with the tensor and its byte range in the message.
#pragma once

#include <map>
#include <string>

#include "base/file_system.h"
#include "tensor/array.h"

namespace xlad::tensor {

using NamedArrays = std::map<std::string, Array>;

absl::StatusOr<NamedArrays> ParseSafetensors(absl::string_view bytes);

// Element types that the format does not have (s4, c128, f8e4m3fnuz, ...) are written as U8: one byte per element, with
// the unused high bits 0, for types of at most 8 bits; otherwise with one more dimension for the bytes of an element.
std::string SerializeSafetensors(const NamedArrays& arrays);

// The array of shape `shape` that was written as `stored`: `stored` itself if it has that shape, or the elements in
// their U8 form (see SerializeSafetensors). Anything else is InvalidArgument: "found f32[2], expected s4[2]".
absl::StatusOr<Array> FromStored(const Array& stored, const Shape& shape);

// The position of one tensor's elements in a file.
struct SafetensorsEntry {
  Shape shape;
  int64_t begin = 0;  // In bytes from the start of the file; shape.bytes() bytes long.
};
using SafetensorsIndex = std::map<std::string, SafetensorsEntry>;

// Parses the header of a file of `file_bytes` bytes. `bytes` is the start of the file and has at least the header.
absl::StatusOr<SafetensorsIndex> ParseSafetensorsIndex(absl::string_view bytes, int64_t file_bytes);

// Whole files. Errors begin with the path.
absl::StatusOr<NamedArrays> ReadSafetensors(FileSystem& files, const std::string& path);
absl::Status WriteSafetensors(FileSystem& files, const std::string& path, const NamedArrays& arrays);

}  // namespace xlad::tensor
