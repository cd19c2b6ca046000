#include "service/log/wal_check.h"

#include <bit>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace xlad::service {
namespace {

constexpr int64_t kHeaderBytes = 32;
constexpr size_t kFrameHeaderBytes = 24;
constexpr int64_t kMaxPageBytes = 65536;
constexpr uint32_t kMagic = 0x377f0682;  // The lowest bit says that checksums are of big-endian words.
constexpr uint32_t kVersion = 3007000;

uint32_t BigEndianWord(absl::string_view bytes, size_t at) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) word = word << 8 | static_cast<uint8_t>(bytes[at + i]);
  return word;
}

// The sum of all bytes up to a frame. The format defines it.
struct WalSum {
  bool is_big_endian = false;
  uint32_t first = 0, second = 0;
  void Add(absl::string_view bytes) {
    for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
      first += WordAt(bytes, at) + second;
      second += WordAt(bytes, at + 4) + first;
    }
  }
  bool IsAt(absl::string_view bytes, size_t at) const {
    return BigEndianWord(bytes, at) == first && BigEndianWord(bytes, at + 4) == second;
  }
  uint32_t WordAt(absl::string_view bytes, size_t at) const {
    const uint32_t word = BigEndianWord(bytes, at);
    return is_big_endian ? word : __builtin_bswap32(word);
  }
};

// Whether adding `difference` to the word flips one bit of it.
bool IsFlippedBit(uint32_t word, uint32_t difference) { return std::popcount((word + difference) ^ word) == 1; }

// Whether a frame would be valid if one of its bits were different. `sum` is the sum of all bytes up to the end of the
// frame.
bool HasOneFlippedBit(absl::string_view frame, absl::string_view salt, const WalSum& sum) {
  const auto differing_bits = [&](size_t at, uint32_t word) { return std::popcount(BigEndianWord(frame, at) ^ word); };
  const int in_salt = differing_bits(8, BigEndianWord(salt, 0)) + differing_bits(12, BigEndianWord(salt, 4));
  const int in_sum = differing_bits(16, sum.first) + differing_bits(20, sum.second);
  if (in_salt > 0 || in_sum <= 1) return in_salt + in_sum == 1;
  // The sum is linear: a difference in a word causes a difference in the sum that depends on the position only. From
  // the end to the beginning, this loop computes which difference in each 4 bytes would give the sum of the frame.
  uint32_t first = BigEndianWord(frame, 16) - sum.first, second = BigEndianWord(frame, 20) - sum.second;
  for (size_t at = frame.size() - 8;; at = at == kFrameHeaderBytes ? 0 : at - 8) {
    if (first == second && IsFlippedBit(sum.WordAt(frame, at), first)) return true;
    if (first == 0 && IsFlippedBit(sum.WordAt(frame, at + 4), second)) return true;
    if (at == 0) return false;
    second -= first;
    first -= second;
  }
}

class WalReader {
 public:
  WalReader(sqlite3_file* file, std::string path) : file_(file), path_(std::move(path)) {}

  absl::Status Check() {
    sqlite3_int64 size = 0;
    if (file_->pMethods->xFileSize(file_, &size) != SQLITE_OK) return Error("its size cannot be read");
    if (size < kHeaderBytes) return absl::OkStatus();
    XLAD_ASSIGN_OR_RETURN(header_, ReadBytes(0, kHeaderBytes));
    // After a crash, the header that was being written can be zeros. Frames follow only after it has been synced.
    if (size == kHeaderBytes && header_ == std::string(kHeaderBytes, '\0')) return absl::OkStatus();
    WalSum sum{(BigEndianWord(header_, 0) & 1) != 0};
    sum.Add(absl::string_view(header_).substr(0, 24));
    const int64_t page_bytes = BigEndianWord(header_, 8);
    const bool is_wal = (BigEndianWord(header_, 0) & ~1U) == kMagic && BigEndianWord(header_, 4) == kVersion;
    if (!is_wal || !sum.IsAt(header_, 24) || page_bytes > kMaxPageBytes) {
      return Damage("the checksum of its header differs", "remove this file", "the events that it contains");
    }
    return CheckFrames(size, kFrameHeaderBytes + page_bytes, sum);
  }

 private:
  absl::Status CheckFrames(int64_t size, int64_t frame_bytes, WalSum sum) {
    int64_t damaged = -1;  // The position of the first damaged frame.
    bool is_committed = false;
    for (int64_t at = kHeaderBytes; at + frame_bytes <= size; at += frame_bytes) {
      XLAD_ASSIGN_OR_RETURN(const std::string frame, ReadBytes(at, frame_bytes));
      // Frames of an earlier use of the file have another salt. They have been copied into the database.
      const bool is_of_this_use = frame.compare(8, 8, header_, 16, 8) == 0;
      if (damaged < 0) {
        sum.Add(absl::string_view(frame).substr(0, 8));
        sum.Add(absl::string_view(frame).substr(kFrameHeaderBytes));
        if (is_of_this_use && sum.IsAt(frame, 16)) continue;
        damaged = at;
        if (HasOneFlippedBit(frame, absl::string_view(header_).substr(16, 8), sum)) return FrameDamage(at, frame_bytes);
      }
      if (!is_of_this_use) continue;
      if (is_committed) return FrameDamage(damaged, frame_bytes);
      is_committed = BigEndianWord(frame, 4) != 0;
    }
    return absl::OkStatus();
  }

  absl::Status FrameDamage(int64_t at, int64_t bytes) const {
    return Damage(absl::StrCat("its bytes [", at, ", ", at + bytes, ") do not have the expected checksum"),
                  absl::StrCat("run `truncate -s ", at, " ", path_, "`"), "the events that it contains from there on");
  }

  // If later transactions were already copied into the database, it does not fit together with what remains.
  absl::Status Damage(absl::string_view what, absl::string_view repair, absl::string_view lost) const {
    return absl::DataLossError(absl::StrCat(path_, " is damaged: ", what, "; restore the folder from a backup, or ",
                                            "copy the folder and then ", repair, " to continue without ", lost,
                                            "; if the log is then refused, only a backup helps"));
  }

  absl::StatusOr<std::string> ReadBytes(int64_t at, int64_t bytes) {
    std::string read(bytes, '\0');
    if (file_->pMethods->xRead(file_, read.data(), static_cast<int>(bytes), at) == SQLITE_OK) return read;
    return Error(absl::StrCat(bytes, " bytes at ", at, " cannot be read"));
  }

  absl::Status Error(const std::string& what) const { return absl::InternalError(absl::StrCat(path_, ": ", what)); }

  sqlite3_file* const file_;
  const std::string path_;
  std::string header_;
};

}  // namespace

absl::Status CheckWriteAheadLog(sqlite3* db) {
  sqlite3_file* file = nullptr;
  const int code = sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file);
  if (code != SQLITE_OK || file == nullptr || file->pMethods == nullptr) return absl::OkStatus();
  return WalReader(file, absl::StrCat(sqlite3_db_filename(db, "main"), "-wal")).Check();
}

}  // namespace xlad::service
