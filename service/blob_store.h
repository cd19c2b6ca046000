// Immutable blobs named by the SHA-256 of their contents: programs, states, data, executables, checkpoints.
//
// Each blob is one file, with a second one beside it that has the checksums of its blocks (storage/block_sums.h), so
// that every byte is verified when it is read. A blob in which damage is found is set aside: it is then missing, and an
// upload of the same contents replaces it.
//
// Blobs may be larger than memory: they are written and read in pieces. Thread-safe; copies of a BlobStore are the same
// store. One process at a time writes to a store.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "storage/block_sums.h"
#include "storage/object_writer.h"
#include "storage/range_reader.h"

namespace xlad::service {

class BlobStore {
 public:
  // Uploads that would leave less free space than this on the disk are ResourceExhausted: the log needs space.
  static constexpr int64_t kReserveBytes = 128 << 20;

  struct Options {
    int64_t reserve_bytes = kReserveBytes;
    const Clock* clock = &RealClock();
  };
  // Creates `folder` if it does not exist, and removes what uploads that were cut off have left. `files` must outlive
  // the store and everything that it returns.
  static absl::StatusOr<BlobStore> Open(FileSystem& files, const std::string& folder, const Options& options);
  static absl::StatusOr<BlobStore> Open(FileSystem& files, const std::string& folder) {
    return Open(files, folder, Options());
  }

  // Whether the blob exists. Its contents are not read.
  bool Has(const std::string& digest) const;
  // Whether the blob exists and is undamaged: reads all of it. A client that asks counts on it for a while.
  bool Verify(const std::string& digest) const;
  absl::StatusOr<int64_t> Size(const std::string& digest) const;

  // Opens a blob for reading any range of it. The reader verifies what it reads: DataLoss if it is damaged. NotFound if
  // there is no such blob.
  absl::StatusOr<std::shared_ptr<storage::RangeReader>> OpenBlob(const std::string& digest) const;

  // The checksums of a blob's blocks. Errors as OpenBlob.
  absl::StatusOr<storage::BlockSums> SumsOf(const std::string& digest) const;

  // Small blobs as a whole. Put returns the digest: 64 lower-case hexadecimal digits.
  absl::StatusOr<std::string> Put(const std::string& bytes);
  absl::StatusOr<std::string> Get(const std::string& digest) const;

  // An upload of unknown size. Used by one thread.
  class Upload {
   public:
    virtual ~Upload() = default;  // Removes what was written, unless Finish succeeded.
    virtual absl::Status Append(absl::string_view bytes) = 0;
    // DataLoss if the contents do not have the digest. When it returns OK, the blob is on disk.
    virtual absl::Status Finish() = 0;
  };
  absl::StatusOr<std::unique_ptr<Upload>> BeginUpload(const std::string& digest);

  // The digests of all blobs, sorted.
  absl::StatusOr<std::vector<std::string>> List() const;
  absl::Status Remove(const std::string& digest);

  // --- Collection of blobs that are not needed any more.

  // While the result exists, these blobs are not collected. They need not exist.
  std::shared_ptr<void> Hold(const std::vector<std::string>& digests);
  // Removes the blob unless it is held, or has been uploaded or verified since `unused_since_ns` of the clock. Opening
  // the store counts as a use of every blob. Returns whether the blob is gone.
  absl::StatusOr<bool> RemoveIfUnused(const std::string& digest, int64_t unused_since_ns);
  // RemoveIfUnused for all blobs that are not needed, and for the remaining files of blobs that were removed or set
  // aside.
  // Returns the number of blobs that it removed. A crash at any moment leaves needed blobs as they are.
  absl::StatusOr<int64_t> Collect(const std::function<bool(const std::string& digest)>& is_needed,
                                  int64_t unused_since_ns);

 private:
  class Files;
  class FileUpload;
  explicit BlobStore(std::shared_ptr<Files> store);

  std::shared_ptr<Files> store_;  // Shared with the readers, which report damage.
};

}  // namespace xlad::service
