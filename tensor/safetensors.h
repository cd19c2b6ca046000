// The safetensors format (huggingface.co/docs/safetensors). A file has three parts: the length of the header (8 bytes,
// little-endian), the header, and the tensors' elements in row-major order. The header is a JSON object with the
// element type, the dimensions and the byte range of each tensor by name.
//
// Files are not trusted. A malformed header, missing data, and data of the wrong size are InvalidArgument. The message
// names the tensor if the error is in one. A header is read in one pass, without a tree of its values, and is refused
// at its first value that the format does not allow.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "tensor/array.h"

namespace xlad::tensor {

// Longer headers are refused, as in the safetensors package.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

using NamedArrays = std::map<std::string, Array>;

// Returns the tensors of a file by name.
absl::StatusOr<NamedArrays> ParseSafetensors(absl::string_view bytes);

// Element types that the format does not have (s4, c128, f8e4m3fnuz, ...) are written as U8. Types of at most 8 bits
// have one byte per element, in which the unused high bits are 0. Other types have one more dimension, for the bytes of
// an element.
std::string SerializeSafetensors(const NamedArrays& arrays);

// The header of a file, preceded by its length, for tensors whose bytes follow in this order. Types that the format
// does not have are written as by SerializeSafetensors. `metadata` is free text by key. Bytes of names and texts that
// are not UTF-8 are written as U+FFFD. An example, for f32[2]:
//   (8 bytes) {"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}
std::string SafetensorsHeader(const std::vector<std::pair<std::string, Shape>>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

// Returns InvalidArgument if a file cannot have a tensor of this name: "__metadata__", which is the key of the
// metadata, or bytes that are not UTF-8. Two names that differ only in such bytes would be written as one.
absl::Status CheckSafetensorsName(const std::string& name);

// Converts elements of a type of less than 8 bits to the form that the format stores: sets the unused high bits to 0.
// Does nothing for other types.
void ToStored(ElementType type, absl::Span<std::byte> bytes);
// The inverse: extends the sign of elements of signed types of less than 8 bits.
void FromStored(ElementType type, absl::Span<std::byte> bytes);
// Whether a tensor of shape `stored` in a file may be an array of shape `shape` whose elements are written as U8.
bool IsStoredAsBytes(const Shape& stored, const Shape& shape);

// The array of shape `shape` that was written as `stored`: `stored` itself if it has that shape, or the elements that
// were written as U8 (see SerializeSafetensors). Anything else is InvalidArgument: "found f32[2], expected s4[2]".
absl::StatusOr<Array> FromStored(const Array& stored, const Shape& shape);

// The position of one tensor's elements in a file.
struct SafetensorsEntry {
  Shape shape;
  int64_t begin = 0;  // The offset in bytes from the start of the file. The elements take shape.bytes() bytes.
};
using SafetensorsIndex = std::map<std::string, SafetensorsEntry>;

// Parses the header of a file of `file_bytes` bytes. `bytes` is the start of the file and has at least the header.
absl::StatusOr<SafetensorsIndex> ParseSafetensorsIndex(absl::string_view bytes, int64_t file_bytes);

// Read and write complete files. Errors begin with the path.
absl::StatusOr<NamedArrays> ReadSafetensors(FileSystem& files, const std::string& path);
absl::Status WriteSafetensors(FileSystem& files, const std::string& path, const NamedArrays& arrays);

}  // namespace xlad::tensor
