// Immutable blobs named by the SHA-256 of their contents: programs, states, data, executables, checkpoints.
//
// Each blob is one file. A second file has the checksums of its blocks (storage/block_sums.h), so every byte is
// verified when it is read. A blob that is found to be damaged is set aside: it then counts as missing, and an upload
// of the same contents replaces it.
//
// Blobs may be larger than memory: they are written and read in pieces. Thread-safe. Copies of a BlobStore share one
// store. Only one process at a time may write to a store.
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
  // An upload that would leave less free space on the disk fails with ResourceExhausted, because the log needs space.
  static constexpr int64_t kReserveBytes = 128 << 20;

  struct Options {
    int64_t reserve_bytes = kReserveBytes;
    const Clock* clock = &RealClock();
  };
  // Creates `folder` if it does not exist, and removes the files of interrupted uploads. `files` must outlive the store
  // and all objects that it returns.
  static absl::StatusOr<BlobStore> Open(FileSystem& files, const std::string& folder, const Options& options);
  static absl::StatusOr<BlobStore> Open(FileSystem& files, const std::string& folder) {
    return Open(files, folder, Options());
  }

  // Whether the blob exists. Its contents are not read.
  bool Has(const std::string& digest) const;
  // Whether the blob exists and is undamaged. Reads all of it. The call counts as a use of the blob, because a client
  // that asks does not upload the blob again.
  bool Verify(const std::string& digest) const;
  // Called before each piece of a blob is read. An error ends the reading, and is returned.
  using Check = std::function<absl::Status()>;
  // The same. If the checksums of the blob are missing or damaged, the blob is read twice.
  absl::StatusOr<bool> Verify(const std::string& digest, const Check& check) const;

  // Opens a blob for reading any range of it. NotFound if the blob does not exist. The reader verifies what it reads
  // and returns DataLoss if the blob is damaged.
  absl::StatusOr<std::shared_ptr<storage::RangeReader>> OpenBlob(const std::string& digest) const;
  // The same. If the checksums of the blob are missing or damaged, they are computed, and `check` is called.
  absl::StatusOr<std::shared_ptr<storage::RangeReader>> OpenBlob(const std::string& digest, const Check& check) const;

  // Returns the checksums of a blob's blocks. The errors are those of OpenBlob.
  absl::StatusOr<storage::BlockSums> SumsOf(const std::string& digest, const Check& check) const;

  // Put and Get are for small blobs, which they hold in memory. Put returns the digest: 64 lower-case hexadecimal
  // digits.
  absl::StatusOr<std::string> Put(const std::string& bytes);
  absl::StatusOr<std::string> Get(const std::string& digest) const;

  // An upload of unknown size. Used by one thread. If the store's folder refuses a write, for example because the
  // folder is read-only, the error is FailedPrecondition. So PermissionDenied, NotFound and InvalidArgument always mean
  // an error of the request.
  class Upload {
   public:
    virtual ~Upload() = default;  // Removes the written bytes unless Finish succeeded.
    virtual absl::Status Append(absl::string_view bytes) = 0;
    // DataLoss if the contents do not have the digest. If Finish returns OK, the blob is on disk.
    virtual absl::Status Finish() = 0;
  };
  absl::StatusOr<std::unique_ptr<Upload>> BeginUpload(const std::string& digest);

  // The digests of all blobs, sorted.
  absl::StatusOr<std::vector<std::string>> List() const;

  // --- Collection of blobs that are no longer needed.

  // Protects these blobs from collection until the result is destroyed, which counts as a use of them. The blobs need
  // not exist.
  std::shared_ptr<void> Hold(const std::vector<std::string>& digests);
  // Removes the blob unless it is held now, or was uploaded, verified or held at or after the time `unused_since_ns`.
  // Opening the store counts as a use of every blob. Returns false if the blob is kept.
  absl::StatusOr<bool> RemoveIfUnused(const std::string& digest, int64_t unused_since_ns);
  // Calls RemoveIfUnused for all blobs that are not needed, and for the remaining files of blobs that were removed or
  // set aside. Returns the number of removed blobs. A crash at any moment leaves the needed blobs unchanged.
  absl::StatusOr<int64_t> Collect(const std::function<bool(const std::string& digest)>& is_needed,
                                  int64_t unused_since_ns);

 private:
  class Files;
  class FileUpload;
  explicit BlobStore(std::shared_ptr<Files> store);

  std::shared_ptr<Files> store_;  // The readers hold weak references to it, through which they report damage.
};

}  // namespace xlad::service
