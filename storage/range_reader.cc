#include "storage/range_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace xlad::storage {
namespace {

// Reading a gap of this size takes less time than one more read.
constexpr int64_t kMaxGapBytes = 256 << 10;

class FileReader final : public RangeReader {
 public:
  FileReader(std::unique_ptr<File> file, int64_t size) : file_(std::move(file)), size_(size) {}
  int64_t size() const override { return size_; }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override { return file_->Read(offset, out); }

 private:
  const std::unique_ptr<File> file_;
  const int64_t size_;
};

class MemoryReader final : public RangeReader {
 public:
  explicit MemoryReader(std::string bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return std::ssize(bytes_); }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    if (offset < 0 || std::ssize(out) > size() - offset) {
      return absl::DataLossError(absl::StrCat("found ", size(), " bytes, expected ", out.size(), " bytes at offset ",
                                              offset));
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return absl::OkStatus();
  }

 private:
  const std::string bytes_;
};

}  // namespace

std::shared_ptr<RangeReader> MakeMemoryReader(std::string bytes) {
  return std::make_shared<MemoryReader>(std::move(bytes));
}

absl::StatusOr<std::shared_ptr<RangeReader>> OpenFileReader(FileSystem& files, const std::string& path) {
  XLAD_RETURN_IF_ERROR(files.Size(path).status());  // This call fails for a folder.
  XLAD_ASSIGN_OR_RETURN(std::unique_ptr<File> file, files.Open(path, OpenMode::kRead));
  XLAD_ASSIGN_OR_RETURN(const int64_t size, file->Size());
  return std::make_shared<FileReader>(std::move(file), size);
}

absl::StatusOr<std::string> ReadString(RangeReader& reader, int64_t offset, int64_t size) {
  std::string bytes(size, '\0');
  XLAD_RETURN_IF_ERROR(reader.Read(offset, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}));
  return bytes;
}

absl::Status ReadSpans(RangeReader& reader, std::vector<SpanRead> spans) {
  std::erase_if(spans, [](const SpanRead& span) { return span.begin == span.end; });
  std::sort(spans.begin(), spans.end(), [](const SpanRead& a, const SpanRead& b) { return a.begin < b.begin; });
  std::vector<std::byte> buffer;
  for (size_t first = 0; first < spans.size();) {
    const int64_t begin = spans[first].begin;
    int64_t end = spans[first].end;
    size_t next = first + 1;
    while (next < spans.size() && spans[next].begin <= end + kMaxGapBytes &&
           std::max(end, spans[next].end) <= std::max(end, begin + kReadBytes)) {
      end = std::max(end, spans[next++].end);
    }
    if (std::ssize(buffer) < end - begin) buffer.resize(end - begin);
    const absl::Span<std::byte> bytes(buffer.data(), end - begin);
    XLAD_RETURN_IF_ERROR(reader.Read(begin, bytes));
    for (; first < next; ++first) {
      const SpanRead& span = spans[first];
      span.take(bytes.subspan(span.begin - begin, span.end - span.begin));
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::storage
