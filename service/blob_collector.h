// Removes the blobs that no job needs any more.
//
// A blob is there before the log names it: it is uploaded, and then a submission, a checkpoint or an executable names
// it. So a blob that nothing names is kept for a while after its upload, and after a client was told that it exists.
// The blobs of a checkpoint that was dropped are removed much sooner, because checkpoints of large models soon fill a
// disk.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "service/blob_store.h"
#include "service/jobs/retention.h"

namespace xlad::service {

// The blobs that a state needs: the URI's own, and, if it is that of a checkpoint, those that its index names. Nothing
// for other URIs than "xlad:". An error if the blob exists and cannot be read now.
absl::StatusOr<std::vector<std::string>> BlobsNamedBy(const BlobStore& blobs, const std::string& uri);

struct BlobCollectorOptions {
  int64_t unnamed_ms = 3'600'000;  // How long blobs are kept that nothing names.
  int64_t dropped_ms = 60'000;     // How long those of dropped checkpoints are kept.
  const Clock* clock = &RealClock();
};

// Used by one thread at a time.
class BlobCollector {
 public:
  // What is needed at the moment of the call. An error ends a collection without any removal.
  using AskState = std::function<absl::StatusOr<StoredState>()>;

  BlobCollector(BlobStore* blobs, const BlobCollectorOptions& options);

  // A checkpoint is no longer needed by its job. Its index must still be there.
  void Drop(const std::string& uri);
  bool has_dropped() const { return !dropped_.empty(); }
  // Removes the blobs of dropped checkpoints, except those that are needed by something else.
  absl::Status CollectDropped(const AskState& ask);
  // Looks at all blobs. Returns the number that it removed.
  absl::StatusOr<int64_t> CollectAll(const AskState& ask);

 private:
  absl::StatusOr<std::vector<std::string>> BlobsOf(const std::string& uri);
  absl::StatusOr<std::set<std::string>> NeededBlobs(const AskState& ask);
  int64_t Before(int64_t ms) const { return options_.clock->NowNs() - ms * kNsPerMs; }

  BlobStore& blobs_;
  const BlobCollectorOptions options_;
  std::set<std::string> dropped_;  // Digests.
  std::map<std::string, std::vector<std::string>> blobs_of_;  // By the URI of a checkpoint.
};

}  // namespace xlad::service
