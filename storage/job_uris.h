// The URIs of the state and the data of a job, which its spec names by a URI or by the digest of a blob.
#pragma once

#include <string>

#include "proto/job.pb.h"
#include "proto/xlad_v1.h"
#include "storage/uri.h"

namespace xlad::storage {

// The data_uri of a job whose client sends the batches (PutBatchRequest). The batch of step t is "stream:t".
inline constexpr char kStreamUri[] = "stream:";

// The URI of the initial state, or an empty string if the job has none.
inline std::string StateUri(const JobSpec& spec) {
  if (!spec.state_uri().empty()) return spec.state_uri();
  return spec.state_blob().empty() ? "" : BlobUri(spec.state_blob());
}

// The URI of the data, or an empty string if the job has none.
inline std::string DataUri(const JobSpec& spec) {
  if (!spec.data_uri().empty()) return spec.data_uri();
  return spec.data_blob().empty() ? "" : BlobUri(spec.data_blob());
}

// The first words of every error about reading the state at `uri` when an attempt starts. They tell the coordinator
// that the attempt has failed because of its checkpoint.
inline std::string StateContext(const std::string& uri) { return "state " + uri; }

}  // namespace xlad::storage
