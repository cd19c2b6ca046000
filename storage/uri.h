// URIs: the names of state, data and checkpoints.
//
//   file:/data/run7            a file or a folder that all machines of a cluster can read, by its absolute path
//   xlad:9f86d081884c7d65...   a blob in the coordinator's store, by its SHA-256 (64 lower-case hex digits)
//   xlad:                      the coordinator's store, as a place to write to
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad::storage {

struct Uri {
  enum class Scheme { kFile, kBlob };
  Scheme scheme = Scheme::kFile;
  std::string rest;  // The path, or the digest.

  std::string ToString() const;
  friend bool operator==(const Uri&, const Uri&) = default;
};

// InvalidArgument for everything else, with what is expected.
absl::StatusOr<Uri> ParseUri(absl::string_view text);

std::string FileUri(absl::string_view path);
std::string BlobUri(absl::string_view digest);

// 64 lower-case hex digits.
bool IsDigest(absl::string_view text);

// The URI of a name in the folder of `index`: a name that is a URI itself is returned as it is. InvalidArgument if the
// name leaves the folder.
absl::StatusOr<std::string> Beside(const Uri& index, const std::string& name);

}  // namespace xlad::storage
