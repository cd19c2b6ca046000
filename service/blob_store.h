// Blobs by the hash of their contents: programs, states, data, executables. One file each, never changed.
//
// Thread-safe: a blob appears whole, by rename, or not at all.
#pragma once

#include <string>

#include "base/file_system.h"

namespace xlad::service {

class BlobStore {
 public:
  // `folder` is made where it is missing.
  static absl::StatusOr<BlobStore> Open(FileSystem& files, const std::string& folder);

  bool Has(const std::string& digest) const;
  // Returns the digest.
  absl::StatusOr<std::string> Put(const std::string& bytes);
  // DataLoss where the contents no longer fit the name.
  absl::StatusOr<std::string> Get(const std::string& digest) const;
  // Part of a blob, unverified.
  absl::StatusOr<std::string> GetRange(const std::string& digest, int64_t offset, int64_t size) const;
  absl::StatusOr<int64_t> Size(const std::string& digest) const;

 private:
  BlobStore(FileSystem& files, std::string folder) : files_(&files), folder_(std::move(folder)) {}
  absl::StatusOr<std::string> PathOf(const std::string& digest) const;
  FileSystem* files_;
  std::string folder_;
};

}  // namespace xlad::service
