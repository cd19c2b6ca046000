#include "storage/host_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/cache_folder.h"
#include "base/file_descriptor.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/rounding.h"

namespace xlad::storage {
namespace {

constexpr uint64_t kMagic = 0x3165686361436c58;  // "XlCache1" in little-endian order.
constexpr int64_t kCacheBlockBytes = 1 << 20;
constexpr int64_t kMaxRunBlocks = 8;  // The maximum number of blocks that are fetched at once.
constexpr int64_t kPageBytes = 4096;

struct Header {
  uint64_t magic = kMagic;
  int64_t bytes = 0;  // The size of the blob.
  int64_t block_bytes = kCacheBlockBytes;
  uint64_t sum = 0;  // The checksum of the members above.
};

uint64_t SumOf(const Header& header) {
  return Hash64({reinterpret_cast<const char*>(&header), offsetof(Header, sum)}, kMagic);
}

// The checksum of a block. It is never 0, because 0 means that the block is missing.
uint64_t SumOf(int64_t block, absl::Span<const std::byte> bytes) {
  return std::max<uint64_t>(1, Hash64({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                      static_cast<uint64_t>(block) + 1));
}

bool ReadAllAt(int file, int64_t offset, absl::Span<std::byte> out) {
  return ReadAt(file, offset, out) == std::ssize(out);
}

bool WriteAllAt(int file, int64_t offset, absl::Span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(file, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    offset += n;
    bytes.remove_prefix(n);
  }
  return true;
}

template <typename T>
absl::Span<std::byte> BytesOf(T* value) {
  return {reinterpret_cast<std::byte*>(value), sizeof *value};
}

// An exclusive lock on a range of a file, held until the object is destroyed or the descriptor is closed.
class RangeLock {
 public:
  RangeLock(int file, int64_t begin, int64_t size, int64_t max_wait_ms) : file_(file), begin_(begin), size_(size) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(max_wait_ms);
    for (int64_t pause_ms = 1; !Set(F_WRLCK); pause_ms = std::min<int64_t>(pause_ms * 2, 20)) {
      const bool is_busy = errno == EAGAIN || errno == EACCES;
      if (!is_busy || std::chrono::steady_clock::now() >= end) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    }
    is_held_ = true;
  }
  ~RangeLock() {
    if (is_held_) Set(F_UNLCK);
  }
  RangeLock(const RangeLock&) = delete;
  RangeLock& operator=(const RangeLock&) = delete;
  bool is_held() const { return is_held_; }

 private:
  bool Set(int16_t kind) const {
    // The lock belongs to the open file, not to the process, so two readers in one process also exclude each other.
    struct flock lock{};
    lock.l_type = kind;
    lock.l_whence = SEEK_SET;
    lock.l_start = begin_;
    lock.l_len = size_;
    return fcntl(file_, F_OFD_SETLK, &lock) == 0;
  }

  const int file_;
  const int64_t begin_, size_;
  bool is_held_ = false;
};

bool IsPrivate(const struct stat& status) { return status.st_uid == geteuid() && (status.st_mode & 077) == 0; }

}  // namespace

// The file of one blob.
class HostCache::Entry {
 public:
  // Returns null if there is no usable file. If `bytes`, the size of the blob, is not negative, creates the file if it
  // is missing or unusable.
  static std::unique_ptr<Entry> Open(const std::string& path, int64_t bytes, int64_t max_wait_ms) {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (bytes >= 0 ? O_CREAT : 0);
    FileDescriptor file(open(path.c_str(), flags, 0600));
    struct stat status{};
    if (file.get() < 0 || fstat(file.get(), &status) != 0) return nullptr;
    if (!S_ISREG(status.st_mode) || !IsPrivate(status)) return nullptr;
    std::unique_ptr<Entry> entry(new Entry(std::move(file), path));
    if (entry->ReadHeader(bytes)) return entry;
    if (bytes < 0) return nullptr;
    const RangeLock lock(entry->file(), 0, sizeof(Header), max_wait_ms);
    if (!lock.is_held()) return nullptr;
    return entry->ReadHeader(bytes) || entry->WriteHeader(bytes) ? std::move(entry) : nullptr;
  }

  int file() const { return file_.get(); }
  int64_t bytes() const { return header_.bytes; }
  const std::string& path() const { return path_; }
  int64_t OffsetOf(int64_t block) const { return data_begin_ + block * kCacheBlockBytes; }
  int64_t SizeOf(int64_t block) const { return std::min(kCacheBlockBytes, header_.bytes - block * kCacheBlockBytes); }

  // Reads the block into `out`, which has its size. Returns false if the block is missing or damaged.
  bool Read(int64_t block, absl::Span<std::byte> out) const {
    const uint64_t sum = SumAt(block);
    return sum != 0 && ReadAllAt(file(), OffsetOf(block), out) && SumOf(block, out) == sum;
  }
  bool HasSum(int64_t block) const { return SumAt(block) != 0; }
  // Writes the bytes and then the checksum. After a crash in between, the block counts as missing or damaged.
  bool Write(int64_t block, absl::Span<const std::byte> bytes) const {
    uint64_t sum = SumOf(block, bytes);
    return WriteAllAt(file(), OffsetOf(block), bytes) && WriteAllAt(file(), SumOffset(block), BytesOf(&sum));
  }
  // Sets the time of last use. Files that were used least recently are removed first.
  void Touch() const { (void)futimens(file(), nullptr); }

 private:
  Entry(FileDescriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  static int64_t SumOffset(int64_t block) {
    return static_cast<int64_t>(sizeof(Header)) + block * static_cast<int64_t>(sizeof(uint64_t));
  }
  uint64_t SumAt(int64_t block) const {
    uint64_t sum = 0;
    return ReadAllAt(file(), SumOffset(block), BytesOf(&sum)) ? sum : 0;
  }
  void SetHeader(const Header& header) {
    header_ = header;
    const int64_t blocks = CeilDiv(header.bytes, kCacheBlockBytes);
    data_begin_ = RoundUp(SumOffset(blocks), kPageBytes);
  }
  bool ReadHeader(int64_t bytes) {
    Header header;
    if (!ReadAllAt(file(), 0, BytesOf(&header)) || header.sum != SumOf(header)) return false;
    if (header.magic != kMagic || header.block_bytes != kCacheBlockBytes || header.bytes < 0) return false;
    if (bytes >= 0 && header.bytes != bytes) return false;
    SetHeader(header);
    return true;
  }
  // Makes the file empty before it writes the header.
  bool WriteHeader(int64_t bytes) {
    Header header;
    header.bytes = bytes;
    header.sum = SumOf(header);
    SetHeader(header);
    return ftruncate(file(), 0) == 0 && ftruncate(file(), data_begin_ + bytes) == 0 &&
           WriteAllAt(file(), 0, BytesOf(&header));
  }

  const FileDescriptor file_;
  const std::string path_;
  Header header_;
  int64_t data_begin_ = 0;
};

class HostCache::Reader final : public RangeReader {
 public:
  Reader(std::shared_ptr<HostCache> cache, std::unique_ptr<Entry> entry, OpenSource open_source)
      : cache_(std::move(cache)), entry_(std::move(entry)), open_source_(std::move(open_source)) {
    entry_->Touch();
  }

  int64_t size() const override { return entry_->bytes(); }

  absl::Status Read(int64_t offset, absl::Span<std::byte> out) override {
    const int64_t end = offset + std::ssize(out);
    if (out.empty()) return absl::OkStatus();
    if (offset < 0) {
      return absl::DataLossError(absl::StrCat(entry_->path(), ": found offset ", offset, ", expected 0 or more"));
    }
    if (end > size()) {
      return absl::DataLossError(absl::StrCat(entry_->path(), ": found ", size(), " bytes, expected at least ", end));
    }
    std::vector<std::byte> buffer;
    for (int64_t block = offset / kCacheBlockBytes; block * kCacheBlockBytes < end;) {
      // If the first block is not in the file, the missing blocks from it to `after` are fetched together.
      int64_t after = block + 1;
      buffer.resize(entry_->SizeOf(block));
      if (entry_->Read(block, absl::MakeSpan(buffer))) {
        cache_->found_bytes_ += std::ssize(buffer);
      } else {
        while (after * kCacheBlockBytes < end && after - block < kMaxRunBlocks && !entry_->HasSum(after)) ++after;
        XLAD_RETURN_IF_ERROR(Fetch(block, after, &buffer));
      }
      const int64_t begin = block * kCacheBlockBytes;
      const int64_t from = std::max(offset, begin), to = std::min(end, begin + std::ssize(buffer));
      std::memcpy(out.data() + (from - offset), buffer.data() + (from - begin), to - from);
      block = after;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadSource(int64_t offset, absl::Span<std::byte> out) {
    if (source_ == nullptr) {
      XLAD_ASSIGN_OR_RETURN(source_, open_source_(/*is_stored=*/!bypass_));
    }
    XLAD_RETURN_IF_ERROR(source_->Read(offset, out));
    cache_->fetched_bytes_ += std::ssize(out);
    return absl::OkStatus();
  }

  // Reads the blocks [first, last) from the source, or from the file if another process has fetched them in the
  // meantime.
  absl::Status Fetch(int64_t first, int64_t last, std::vector<std::byte>* buffer) {
    const std::lock_guard guard(mutex_);
    const int64_t begin = first * kCacheBlockBytes;
    buffer->resize(std::min(last * kCacheBlockBytes, size()) - begin);
    const auto part = [&](int64_t from, int64_t to) {  // The blocks [from, to).
      const int64_t bytes = std::min(to * kCacheBlockBytes, size()) - from * kCacheBlockBytes;
      return absl::MakeSpan(*buffer).subspan(from * kCacheBlockBytes - begin, bytes);
    };
    if (bypass_) return ReadSource(begin, absl::MakeSpan(*buffer));
    const RangeLock lock(entry_->file(), entry_->OffsetOf(first), (last - first) * kCacheBlockBytes,
                         cache_->options_.max_wait_ms);
    // Another reader still holds the lock, because its process is stopped or slow, or the lock cannot be set at all. To
    // avoid further waits, this reader bypasses the cache from now on.
    if (!lock.is_held()) {
      Bypass();
      return ReadSource(begin, absl::MakeSpan(*buffer));
    }
    for (int64_t block = first; block < last;) {
      if (entry_->Read(block, part(block, block + 1))) {
        cache_->found_bytes_ += entry_->SizeOf(block++);
        continue;
      }
      int64_t after = block + 1;
      while (after < last && !entry_->HasSum(after)) ++after;
      // This check precedes the read, because `is_stored` must be correct when the source is opened.
      if (!bypass_ && !cache_->HasRoom(std::ssize(part(block, after)), entry_->path())) Bypass();
      XLAD_RETURN_IF_ERROR(ReadSource(block * kCacheBlockBytes, part(block, after)));
      for (; block < after; ++block) Store(block, part(block, block + 1));
    }
    return absl::OkStatus();
  }

  void Store(int64_t block, absl::Span<const std::byte> bytes) {
    if (!bypass_ && !entry_->Write(block, bytes)) Bypass();
  }

  // From now on this reader stores nothing, and reads from a source that was opened with is_stored = false.
  void Bypass() {
    bypass_ = true;
    source_ = nullptr;
  }

  const std::shared_ptr<HostCache> cache_;
  const std::unique_ptr<Entry> entry_;
  const OpenSource open_source_;
  std::mutex mutex_;  // Guards the members below, and the lock on the file, which all threads share.
  std::shared_ptr<RangeReader> source_;
  bool bypass_ = false;
};

std::string HostCache::DefaultFolder() {
  if (const std::string folder = FolderVariable("CACHE_DIRECTORY"); !folder.empty()) {
    return folder.substr(0, folder.find(':'));  // systemd separates multiple folders with colons.
  }
  if (const std::string folder = UserCacheFolder(); !folder.empty()) return folder;
  return absl::StrCat("/var/tmp/xlad-cache-", geteuid());
}

absl::StatusOr<std::shared_ptr<HostCache>> HostCache::Open(const std::string& folder, const Options& options) {
  const std::string blobs = JoinPath(folder, "blobs");
  XLAD_RETURN_IF_ERROR(RealFileSystem().MakeDirectories(folder));
  if (mkdir(blobs.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::PermissionDeniedError(absl::StrCat("cannot make ", blobs, ": ", std::strerror(errno)));
  }
  struct stat status{};
  if (lstat(blobs.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || !IsPrivate(status)) {
    return absl::PermissionDeniedError(absl::StrCat("found ", blobs, ", which is not a private folder, expected a ",
                                                    "folder of user ", geteuid(), " with mode 0700; choose another ",
                                                    "folder"));
  }
  auto cache = std::shared_ptr<HostCache>(new HostCache(blobs, options));
  cache->self_ = cache;
  return cache;
}

absl::StatusOr<std::shared_ptr<RangeReader>> HostCache::OpenBlob(const std::string& digest, OpenSource open_source) {
  const std::string path = PathOf(digest);
  std::unique_ptr<Entry> entry = Entry::Open(path, -1, options_.max_wait_ms);
  if (entry == nullptr) {
    XLAD_ASSIGN_OR_RETURN(std::shared_ptr<RangeReader> source, open_source(/*is_stored=*/false));
    entry = Entry::Open(path, source->size(), options_.max_wait_ms);
    if (entry == nullptr) return source;
  }
  return std::make_shared<Reader>(Self(), std::move(entry), std::move(open_source));
}

absl::StatusOr<std::string> HostCache::ReadBlob(const std::string& digest, const OpenSource& open_source) {
  {
    XLAD_ASSIGN_OR_RETURN(const std::shared_ptr<RangeReader> reader, OpenBlob(digest, open_source));
    XLAD_ASSIGN_OR_RETURN(std::string bytes, ReadString(*reader, 0, reader->size()));
    if (Sha256Hex(bytes) == digest) return bytes;
  }
  unlink(PathOf(digest).c_str());
  XLAD_ASSIGN_OR_RETURN(const std::shared_ptr<RangeReader> source, open_source(/*is_stored=*/false));
  XLAD_ASSIGN_OR_RETURN(std::string bytes, ReadString(*source, 0, source->size()));
  fetched_bytes_ += std::ssize(bytes);
  if (Sha256Hex(bytes) == digest) return bytes;
  return absl::DataLossError(
      absl::StrCat("blob ", digest, ": found contents with another SHA-256 in its source, too"));
}

absl::Status HostCache::ReadStored(const std::string& digest, int64_t offset, absl::Span<std::byte> out,
                                   const Wait& wait) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait.ms);
  std::unique_ptr<Entry> entry;
  for (int64_t pause_ms = 1;; pause_ms = std::min<int64_t>(pause_ms * 2, 20)) {
    if (entry == nullptr) entry = Entry::Open(PathOf(digest), -1, options_.max_wait_ms);
    const int64_t last = offset + std::ssize(out);
    if (entry != nullptr && (offset < 0 || offset % kCacheBlockBytes != 0 || last > entry->bytes())) break;
    int64_t at = offset;
    while (entry != nullptr && at < last) {
      const int64_t bytes = entry->SizeOf(at / kCacheBlockBytes);
      if (at + bytes > last || !entry->Read(at / kCacheBlockBytes, out.subspan(at - offset, bytes))) break;
      at += bytes;
    }
    if (entry != nullptr && at == last) return absl::OkStatus();
    const bool stops = wait.stop != nullptr && *wait.stop;
    if (stops || std::chrono::steady_clock::now() >= end) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
  }
  return absl::NotFoundError(absl::StrCat("found no bytes [", offset, ", ", offset + std::ssize(out), ") of blob ",
                                          digest, " in the cache of this host"));
}

bool HostCache::HasRoom(int64_t bytes, const std::string& keep) {
  const std::lock_guard lock(mutex_);  // No other reader writes while the space is measured.
  if ((written_bytes_ += bytes) >= kTrimIntervalBytes) {
    is_full_ = !Trim(keep);
    written_bytes_ += bytes;  // These bytes are written after the space has been measured.
  }
  return !is_full_;
}

// Returns whether more bytes may be written.
bool HostCache::Trim(const std::string& keep) {
  struct File {
    int64_t used_ns = 0;
    int64_t bytes = 0;
    std::string path;
  };
  written_bytes_ = 0;
  const absl::StatusOr<std::vector<std::string>> names = RealFileSystem().List(folder_);
  if (!names.ok()) return false;  // The size of the cache is not known.
  std::vector<File> files;
  int64_t total = 0;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(folder_, name);
    struct stat status{};
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    files.push_back({status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec, status.st_blocks * 512, path});
    total += files.back().bytes;
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used_ns < b.used_ns; });
  const int64_t target = options_.max_bytes - std::min(kTrimIntervalBytes, options_.max_bytes / 4);
  for (const File& file : files) {
    if (total <= target) break;
    // Readers that have the file open continue to use it. Its space is freed when the last reader closes it.
    if (file.path != keep && unlink(file.path.c_str()) == 0) total -= file.bytes;
  }
  struct statvfs disk{};
  const bool has_space = statvfs(folder_.c_str(), &disk) == 0 &&
                         static_cast<int64_t>(disk.f_bavail * disk.f_frsize) >= options_.min_free_bytes;
  return has_space && total <= target;
}

}  // namespace xlad::storage
