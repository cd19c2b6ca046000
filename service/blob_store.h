// Immutable blobs named by the SHA-256 of their contents: programs, states, data, executables. Each blob is one file.
//
// Thread-safe, also between processes: a file is written under a temporary name and then renamed, so that readers see a
// complete blob or none.
#pragma once

#include <string>

#include "base/file_system.h"

namespace xlad::service {

class BlobStore {
 public:
  // Creates `folder` if it does not exist. `files` must outlive the store.
  static absl::StatusOr<BlobStore> Open(FileSystem& files, const std::string& folder);

  bool Has(const std::string& digest) const;
  // Returns the digest: 64 lower-case hexadecimal digits, the name of the blob in all methods below.
  absl::StatusOr<std::string> Put(const std::string& bytes);
  // DataLoss if the contents no longer match the digest.
  absl::StatusOr<std::string> Get(const std::string& digest) const;
  // Returns `size` bytes from `offset` without comparing the contents with the digest.
  absl::StatusOr<std::string> GetRange(const std::string& digest, int64_t offset, int64_t size) const;
  absl::StatusOr<int64_t> Size(const std::string& digest) const;

 private:
  BlobStore(FileSystem& files, std::string folder) : files_(&files), folder_(std::move(folder)) {}
  absl::StatusOr<std::string> PathOf(const std::string& digest) const;
  FileSystem* files_;
  std::string folder_;
};

}  // namespace xlad::service
