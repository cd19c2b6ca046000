#include "storage/block_sums.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/hash.h"
#include "base/rounding.h"
#include "storage/uri.h"

namespace xlad::storage {
namespace {

constexpr absl::string_view kFirstLine = "xlad block sums 1";
constexpr int64_t kTrailerEndBytes = 16;  // The size of the rest of the trailer.

absl::string_view AsText(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class VerifyingReader final : public RangeReader {
 public:
  VerifyingReader(std::shared_ptr<RangeReader> reader, BlockSums sums, std::string name)
      : reader_(std::move(reader)), sums_(std::move(sums)), name_(std::move(name)) {}

  int64_t size() const override { return sums_.bytes; }

  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    if (out.empty()) return absl::OkStatus();
    const int64_t end = offset + std::ssize(out);
    if (offset < 0) return absl::DataLossError(absl::StrCat(name_, ": found offset ", offset, ", expected 0 or more"));
    if (end > sums_.bytes) {
      return absl::DataLossError(absl::StrCat(name_, " ends at byte ", sums_.bytes, ", expected at least ", end));
    }
    const int64_t first = offset / sums_.block_bytes * sums_.block_bytes;
    const int64_t last = std::min(sums_.bytes, RoundUp(end, sums_.block_bytes));
    if (first == offset && last == end) {
      XLAD_RETURN_IF_ERROR(reader_->Read(offset, out));
      return Verify(first, out);
    }
    std::vector<std::byte> whole(last - first);
    XLAD_RETURN_IF_ERROR(reader_->Read(first, absl::MakeSpan(whole)));
    XLAD_RETURN_IF_ERROR(Verify(first, whole));
    std::memcpy(out.data(), whole.data() + (offset - first), out.size());
    return absl::OkStatus();
  }

 private:
  absl::Status Verify(int64_t first, absl::Span<const std::byte> blocks) const {
    for (int64_t block = first / sums_.block_bytes; !blocks.empty(); ++block) {
      const absl::Span<const std::byte> bytes = blocks.first(std::min<size_t>(blocks.size(), sums_.block_bytes));
      blocks.remove_prefix(bytes.size());
      const uint64_t found = Hash64(AsText(bytes));
      if (found == sums_.sums[block]) continue;
      return absl::DataLossError(absl::StrCat(name_, " is damaged: its bytes [", block * sums_.block_bytes, ", ",
                                              block * sums_.block_bytes + std::ssize(bytes),
                                              ") have checksum ", absl::Hex(found, absl::kZeroPad16), ", expected ",
                                              absl::Hex(sums_.sums[block], absl::kZeroPad16)));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<RangeReader> reader_;
  const BlockSums sums_;
  const std::string name_;
};

// The first bytes of a file.
class BeginningReader final : public RangeReader {
 public:
  BeginningReader(std::shared_ptr<RangeReader> file, int64_t size) : file_(std::move(file)), size_(size) {}
  int64_t size() const override { return size_; }
  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override { return file_->Read(offset, out); }

 private:
  const std::shared_ptr<RangeReader> file_;
  const int64_t size_;
};

}  // namespace

absl::Status CheckBlockSums(const BlockSums& sums) {
  constexpr int64_t kMaxBlockBytes = int64_t{1} << 30;
  const bool valid = sums.bytes >= 0 && sums.block_bytes >= 1 && sums.block_bytes <= kMaxBlockBytes &&
                     std::ssize(sums.sums) == sums.bytes / sums.block_bytes + (sums.bytes % sums.block_bytes != 0);
  if (valid) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("found ", sums.sums.size(), " checksums of blocks of ",
                                                 sums.block_bytes, " bytes for ", sums.bytes,
                                                 " bytes, expected one for each block of 1 to 2^30 bytes"));
}

void ObjectHasher::Add(absl::string_view bytes) {
  sha256_.Add(bytes);
  sums_.bytes += std::ssize(bytes);
  while (!bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, kBlockBytes - block_.size());
    bytes.remove_prefix(piece.size());
    if (block_.empty() && std::ssize(piece) == kBlockBytes) {
      sums_.sums.push_back(Hash64(piece));
      continue;
    }
    block_.append(piece.data(), piece.size());
    if (std::ssize(block_) < kBlockBytes) continue;
    sums_.sums.push_back(Hash64(block_));
    block_.clear();
  }
}

ObjectInfo ObjectHasher::Finish() {
  if (!block_.empty()) sums_.sums.push_back(Hash64(block_));
  return {sha256_.FinishHex(), std::move(sums_)};
}

absl::StatusOr<std::shared_ptr<RangeReader>> VerifyBlocks(std::shared_ptr<RangeReader> reader, BlockSums sums,
                                                          std::string name) {
  if (reader->size() != sums.bytes) {
    return absl::DataLossError(
        absl::StrCat(name, " has ", reader->size(), " bytes, expected ", sums.bytes, ": it is damaged"));
  }
  return std::make_shared<VerifyingReader>(std::move(reader), std::move(sums), std::move(name));
}

std::string SerializeBlockSums(const ObjectInfo& info) {
  std::string text =
      absl::StrCat(kFirstLine, "\n", info.sha256, " ", info.sums.bytes, " ", info.sums.block_bytes, "\n");
  for (const uint64_t sum : info.sums.sums) absl::StrAppend(&text, absl::Hex(sum, absl::kZeroPad16), "\n");
  absl::StrAppend(&text, absl::Hex(Hash64(text), absl::kZeroPad16), "\n");
  return text;
}

std::string SumsTrailer(const ObjectInfo& info) {
  std::string trailer = SerializeBlockSums(info);
  absl::StrAppend(&trailer, absl::Hex(trailer.size(), absl::kZeroPad16));
  return trailer;
}

absl::StatusOr<std::shared_ptr<RangeReader>> ReadWithTrailer(std::shared_ptr<RangeReader> file, std::string name) {
  const absl::Status damaged =
      absl::DataLossError(absl::StrCat(name, " is damaged: the checksums at the end of its file cannot be read"));
  const int64_t end = file->size() - kTrailerEndBytes;
  if (end < 0) return damaged;
  XLAD_ASSIGN_OR_RETURN(const std::string digits, ReadString(*file, end, kTrailerEndBytes));
  int64_t text_bytes = 0;
  const bool is_number = absl::SimpleHexAtoi(digits, &text_bytes) &&
                         digits == absl::StrCat(absl::Hex(text_bytes, absl::kZeroPad16));
  if (!is_number || text_bytes < 0 || text_bytes > end) return damaged;
  XLAD_ASSIGN_OR_RETURN(const std::string text, ReadString(*file, end - text_bytes, text_bytes));
  absl::StatusOr<ObjectInfo> info = ParseBlockSums(text);
  if (!info.ok()) return damaged;
  return VerifyBlocks(std::make_shared<BeginningReader>(std::move(file), end - text_bytes), std::move(info->sums),
                      std::move(name));
}

absl::StatusOr<ObjectInfo> ParseBlockSums(absl::string_view text) {
  const absl::Status damaged = absl::DataLossError("the list of checksums is damaged");
  constexpr size_t kLastLine = 17;
  if (text.size() < kLastLine) return damaged;
  const absl::string_view body = text.substr(0, text.size() - kLastLine);
  if (text.substr(body.size()) != absl::StrCat(absl::Hex(Hash64(body), absl::kZeroPad16), "\n")) return damaged;
  std::vector<absl::string_view> lines = absl::StrSplit(absl::StripSuffix(body, "\n"), '\n');
  const std::vector<absl::string_view> head = absl::StrSplit(lines.size() > 1 ? lines[1] : "", ' ');
  ObjectInfo info;
  if (lines.size() < 2 || lines[0] != kFirstLine || head.size() != 3 || !IsSha256Hex(head[0]) ||
      !absl::SimpleAtoi(head[1], &info.sums.bytes) || !absl::SimpleAtoi(head[2], &info.sums.block_bytes)) {
    return damaged;
  }
  info.sha256 = std::string(head[0]);
  for (size_t i = 2; i < lines.size(); ++i) {
    if (!absl::SimpleHexAtoi(lines[i], &info.sums.sums.emplace_back())) return damaged;
  }
  if (!CheckBlockSums(info.sums).ok()) return damaged;
  return info;
}

}  // namespace xlad::storage
