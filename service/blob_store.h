// Immutable blobs named by the SHA-256 of their contents: programs, states, data, executables, checkpoints.
//
// Each blob is one file, with a second one beside it that has the checksums of its blocks (storage/block_sums.h), so
// that every byte is verified when it is read. A blob in which damage is found is set aside: it is then missing, and an
// upload of the same contents replaces it.
//
// Blobs may be larger than memory: they are written and read in pieces. Thread-safe; copies of a BlobStore are the same
// store. One process at a time writes to a store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "storage/object_writer.h"
#include "storage/range_reader.h"

namespace xlad::service {

class BlobStore {
 public:
  // Uploads that would leave less free space than this on the disk are ResourceExhausted: the log needs space.
  static constexpr int64_t kReserveBytes = 128 << 20;

  // Creates `folder` if it does not exist, and removes what uploads that were cut off have left. `files` must outlive
  // the store and everything that it returns.
  static absl::StatusOr<BlobStore> Open(FileSystem& files, const std::string& folder);

  // Whether the blob is there. Its contents are not read.
  bool Has(const std::string& digest) const;
  // Whether the blob is there and undamaged: reads all of it.
  bool Verify(const std::string& digest) const;
  absl::StatusOr<int64_t> Size(const std::string& digest) const;

  // Opens a blob for reading any range of it. The reader verifies what it reads: DataLoss if it is damaged. NotFound if
  // there is no such blob.
  absl::StatusOr<std::shared_ptr<storage::RangeReader>> OpenBlob(const std::string& digest) const;

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

 private:
  class Files;
  class FileUpload;
  explicit BlobStore(std::shared_ptr<Files> store);

  std::shared_ptr<Files> store_;  // Shared with the readers, which report damage.
};

}  // namespace xlad::service
