// Objects that are read by ranges of bytes: files, blobs of the coordinator, and objects in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/file_system.h"

namespace xlad::storage {

// An object that does not change. Thread-safe.
class RangeReader {
 public:
  virtual ~RangeReader() = default;
  virtual int64_t size() const = 0;  // The size in bytes.
  // Fills `out` with the bytes from `offset`. DataLoss if the object ends before the last of them, or if a checksum
  // does not match; the message names the object, unless it is in memory.
  virtual absl::Status Read(int64_t offset, absl::Span<std::byte> out) = 0;
};

// Opens a file. Its contents are not verified. Errors are those of FileSystem::Size and FileSystem::Open: NotFound if
// there is no such file, InvalidArgument for a directory.
absl::StatusOr<std::shared_ptr<RangeReader>> OpenFileReader(FileSystem& files, const std::string& path);

// An object in memory.
std::shared_ptr<RangeReader> MakeMemoryReader(std::string bytes);

// The bytes of the range as a string.
absl::StatusOr<std::string> ReadString(RangeReader& reader, int64_t offset, int64_t size);

// One part of the work of ReadSpans: the bytes [begin, end) and a function that processes them.
struct SpanRead {
  int64_t begin = 0;
  int64_t end = 0;
  // `bytes` are those of [begin, end), and are valid during the call.
  std::function<void(absl::Span<const std::byte> bytes)> take;
};

// ReadSpans combines spans into reads of at most this many bytes.
inline constexpr int64_t kReadBytes = 8 << 20;

// Reads all spans, which may overlap, with few reads. Spans that are close together are combined into one read of at
// most kReadBytes; a larger span is one read. Calls `take` in the order of `begin`. Skips empty spans.
absl::Status ReadSpans(RangeReader& reader, std::vector<SpanRead> spans);

}  // namespace xlad::storage
