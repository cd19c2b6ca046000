// A cache of blobs in files that the processes of this host share. Bytes that several processes read are fetched only
// once.
//
// A blob is named by the SHA-256 of its contents, so an entry of the cache never becomes outdated. Its file has a table
// with a checksum for each block that is present; the other blocks are holes. A reader verifies each block that it
// reads from the file. If a block is missing or damaged, the reader fetches it from the blob's source. Locks on ranges
// of the file synchronize the processes; a lock ends with its process. The files belong to one user, and no other user
// can read or write them.
//
// The cache is optional: if it fails in any way, readers read from the source.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "storage/range_reader.h"

namespace xlad::storage {

// Thread-safe.
class HostCache {
 public:
  struct Options {
    // The limit on the disk space of all files. A process checks it before its first write and after every 64 MiB that
    // it writes. If necessary, the process removes the least recently used files until the others are below the limit
    // by 64 MiB or by a quarter of the limit, whichever is less. Several processes together may exceed the limit, by at
    // most 64 MiB each.
    int64_t max_bytes = int64_t{4} << 30;
    int64_t min_free_bytes = int64_t{1} << 30;  // If the disk has less free space than this, nothing is written.
    // The maximum time for which a reader waits for another process that fetches the same bytes. After this time, both
    // processes fetch them.
    int64_t max_wait_ms = 3000;
  };
  // Creates the folder and its subfolder `blobs`, which only this user can access, if they do not exist.
  // PermissionDenied if the subfolder cannot be created, belongs to another user, or may be used by others.
  static absl::StatusOr<std::shared_ptr<HostCache>> Open(const std::string& folder, const Options& options);

  // The default folder: systemd's folder if $CACHE_DIRECTORY is set, otherwise the user's cache folder
  // (base/cache_folder.h) if that is known, otherwise /var/tmp/xlad-cache-UID.
  static std::string DefaultFolder();

  // Opens the source of a blob. Called when a part of the blob, or its size, is not in the cache. `is_stored` is true
  // if the cache stores the bytes that are read from this source. A reader that stops storing bytes opens the source
  // again with is_stored = false.
  using OpenSource = std::function<absl::StatusOr<std::shared_ptr<RangeReader>>(bool is_stored)>;
  // Returns a reader of the blob with this digest (64 lower-case hexadecimal digits). The reader keeps a reference to
  // the cache, and keeps `open_source`.
  absl::StatusOr<std::shared_ptr<RangeReader>> OpenBlob(const std::string& digest, OpenSource open_source);
  // Returns the contents of a blob that fits into memory. If their SHA-256 is not `digest`, removes the blob from the
  // cache and reads it from the source once more. DataLoss if the contents are still wrong.
  absl::StatusOr<std::string> ReadBlob(const std::string& digest, const OpenSource& open_source);

  // How long ReadStored waits for bytes that a process of this host is about to store.
  struct Wait {
    int64_t ms = 0;
    const std::atomic<bool>* stop = nullptr;  // The wait ends when this is true. May be null.
  };
  // Fills `out` with bytes that are in the cache. They must begin at the start of a block (1 MiB) and end at the end of
  // a block or of the blob. Does not read from a source. NotFound if the bytes are not in the cache after the wait.
  absl::Status ReadStored(const std::string& digest, int64_t offset, absl::Span<std::byte> out, const Wait& wait) const;

  // The numbers of bytes that readers and ReadBlob have read from the cache (found) and from sources (fetched) since
  // this process opened the cache. Whole blocks are counted. Neither number includes reads of ReadStored or reads of
  // a blob whose file in the cache could not be opened.
  int64_t found_bytes() const { return found_bytes_; }
  int64_t fetched_bytes() const { return fetched_bytes_; }

 private:
  class Entry;
  class Reader;
  HostCache(std::string folder, const Options& options) : folder_(std::move(folder)), options_(options) {}

  std::string PathOf(const std::string& digest) const { return folder_ + "/" + digest; }
  // Whether `bytes` more bytes may be written. If necessary, removes the least recently used files except `keep`.
  bool HasRoom(int64_t bytes, const std::string& keep);
  // Called with the lock held.
  bool Trim(const std::string& keep);

  // The number of bytes that are written between two checks of the folder.
  static constexpr int64_t kTrimIntervalBytes = 64 << 20;
  const std::string folder_;
  const Options options_;
  std::shared_ptr<HostCache> Self() { return self_.lock(); }
  std::weak_ptr<HostCache> self_;
  std::atomic<int64_t> found_bytes_ = 0, fetched_bytes_ = 0;
  std::mutex mutex_;                            // Guards the members below.
  int64_t written_bytes_ = kTrimIntervalBytes;  // Since the last check. The folder is checked before the first write.
  bool is_full_ = false;                        // The result of the last check.
};

}  // namespace xlad::storage
