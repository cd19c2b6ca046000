#include "service/blob_store.h"

#include <algorithm>

#include "base/hash.h"

namespace xlad::service {

absl::StatusOr<BlobStore> BlobStore::Open(FileSystem& files, const std::string& folder) {
  XLAD_RETURN_IF_ERROR(files.MakeDirectories(folder));
  return BlobStore(files, folder);
}

absl::StatusOr<std::string> BlobStore::PathOf(const std::string& digest) const {
  const bool hex = digest.size() == 64 && std::all_of(digest.begin(), digest.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (!hex) {
    return absl::InvalidArgumentError(absl::StrCat("found blob name \"", digest.substr(0, 80),
                                                   "\", expected 64 lower-case hex digits"));
  }
  return JoinPath(folder_, digest);
}

bool BlobStore::Has(const std::string& digest) const {
  const auto path = PathOf(digest);
  return path.ok() && files_->Exists(*path);
}

absl::StatusOr<std::string> BlobStore::Put(const std::string& bytes) {
  const std::string digest = Sha256Hex(bytes);
  if (!Has(digest)) XLAD_RETURN_IF_ERROR(files_->WriteAtomically(JoinPath(folder_, digest), bytes));
  return digest;
}

absl::StatusOr<std::string> BlobStore::Get(const std::string& digest) const {
  XLAD_ASSIGN_OR_RETURN(const std::string path, PathOf(digest));
  XLAD_ASSIGN_OR_RETURN(std::string bytes, files_->Read(path));
  if (Sha256Hex(bytes) != digest) {
    return absl::DataLossError(absl::StrCat(path, " has other contents than its name says; remove it"));
  }
  return bytes;
}

absl::StatusOr<std::string> BlobStore::GetRange(const std::string& digest, int64_t offset, int64_t size) const {
  XLAD_ASSIGN_OR_RETURN(const std::string path, PathOf(digest));
  return files_->ReadRange(path, offset, size);
}

absl::StatusOr<int64_t> BlobStore::Size(const std::string& digest) const {
  XLAD_ASSIGN_OR_RETURN(const std::string path, PathOf(digest));
  return files_->Size(path);
}

}  // namespace xlad::service
