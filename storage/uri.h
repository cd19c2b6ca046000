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
  std::string rest;  // The path, or the digest, or empty for "xlad:".

  std::string ToString() const;
  friend bool operator==(const Uri&, const Uri&) = default;
};

// Parses a URI in one of the forms above. InvalidArgument for all other texts; the message says what is expected.
absl::StatusOr<Uri> ParseUri(absl::string_view text);

std::string FileUri(absl::string_view path);
std::string BlobUri(absl::string_view digest);

// Whether a job may write checkpoints there: "xlad:", or the URI of a file.
bool IsCheckpointUri(absl::string_view text);

// The URI of the file `name` in the folder of `index`. If `name` is itself the URI of a blob, returns it unchanged.
// InvalidArgument if `name` begins with a dot or contains a slash, or if `index` is a blob.
absl::StatusOr<std::string> Beside(const Uri& index, const std::string& name);

}  // namespace xlad::storage
