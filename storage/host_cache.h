// Blobs that processes of this host have read, in files that these processes share: bytes that several of them want are
// fetched once.
//
// A blob is named by the SHA-256 of its contents, so nothing in the cache ever gets old. Its file has a table with a
// checksum for each block that is present; the other blocks are holes. A reader verifies each block that it takes from
// the file, and fetches a block that is missing or damaged from the source. Processes take turns by locks on ranges of
// the file, which end with the process. The files belong to one user, and no other user can read or write them.
//
// The cache only saves work: if anything about it fails, readers read from the source.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "storage/range_reader.h"

namespace xlad::storage {

// Thread-safe.
class HostCache {
 public:
  struct Options {
    // The space on disk of all files. The oldest are removed beyond it; processes look after each 64 MiB that they
    // have written, so that each process may exceed it by as much.
    int64_t max_bytes = int64_t{4} << 30;
    int64_t min_free_bytes = int64_t{1} << 30;  // With less free space on the disk, nothing is written.
    int64_t max_wait_ms = 3000;                 // For another process that fetches the same bytes; then both fetch.
  };
  // Makes the folder, for this user alone, if it does not exist. PermissionDenied if it belongs to another user, or if
  // others may use it.
  static absl::StatusOr<std::shared_ptr<HostCache>> Open(const std::string& folder, const Options& options);

  // The folder that is used if none is given: that of systemd ($CACHE_DIRECTORY), the user's (base/cache_folder.h), or
  // /var/tmp/xlad-cache-UID.
  static std::string DefaultFolder();

  // Opens the source of a blob. Called when something of the blob is not in the cache. `is_stored` is true if the cache
  // stores what is read from this source. A reader that ceases to store opens another source.
  using OpenSource = std::function<absl::StatusOr<std::shared_ptr<RangeReader>>(bool is_stored)>;
  // A reader of the blob with this digest (64 lower-case hexadecimal digits). It keeps the cache and `open_source`.
  absl::StatusOr<std::shared_ptr<RangeReader>> OpenBlob(const std::string& digest, OpenSource open_source);
  // The contents of a small blob, whose digest is checked. Other contents are removed from the cache, and read from the
  // source once more; DataLoss if it has them, too.
  absl::StatusOr<std::string> ReadBlob(const std::string& digest, const OpenSource& open_source);

  // How long ReadStored waits for bytes that a process of this host is about to read; `stop` ends the wait.
  struct Wait {
    int64_t ms = 0;
    const std::atomic<bool>* stop = nullptr;
  };
  // Fills `out` with bytes that are in the cache, from the beginning of a block to the end of a block or of the blob.
  // Reads no source. NotFound if they are not there after the wait.
  absl::Status ReadStored(const std::string& digest, int64_t offset, absl::Span<std::byte> out, const Wait& wait) const;

  // Since the cache was opened, by this process: bytes taken from the cache, and bytes fetched from sources.
  int64_t found_bytes() const { return found_bytes_; }
  int64_t fetched_bytes() const { return fetched_bytes_; }

 private:
  class Entry;
  class Reader;
  HostCache(std::string folder, const Options& options) : folder_(std::move(folder)), options_(options) {}

  std::string PathOf(const std::string& digest) const { return folder_ + "/" + digest; }
  // Whether `bytes` more may be written; removes the oldest files except `keep` if that is needed.
  bool HasRoom(int64_t bytes, const std::string& keep);
  bool Trim(const std::string& keep);

  const std::string folder_;
  const Options options_;
  std::shared_ptr<HostCache> Self() { return self_.lock(); }
  std::weak_ptr<HostCache> self_;
  std::atomic<int64_t> found_bytes_ = 0, fetched_bytes_ = 0;
  std::atomic<int64_t> written_bytes_ = 0;  // Since the last look at the folder.
  std::atomic<bool> is_full_ = false;       // As of the last look.
};

}  // namespace xlad::storage
