// Removes the blobs that no job needs anymore.
//
// A blob is uploaded before a submission, a checkpoint or the record of a build names it in the log. An unnamed blob is
// therefore kept for `unnamed_ms` after its upload, and after a client was told that the blob exists. The blobs of a
// dropped checkpoint are kept only for `dropped_ms`, because checkpoints of large models soon fill a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "service/blobs/blob_store.h"
#include "service/jobs/retention.h"

namespace xlad::service {

// Returns the digests of the blobs that a state needs: the blob that `uri` names and, if that blob is the index of a
// checkpoint, the blobs that the index names. The result is empty if `uri` is not an "xlad:" URI. An error means that
// the blob exists but cannot be read now.
absl::StatusOr<std::vector<std::string>> BlobsNamedBy(const BlobStore& blobs, const std::string& uri);

struct BlobCollectorOptions {
  int64_t unnamed_ms = 3'600'000;  // How long unnamed blobs are kept.
  int64_t dropped_ms = 60'000;     // How long the blobs of dropped checkpoints are kept.
  const Clock* clock = &RealClock();
  int64_t pause_ms = 10'000;  // The time between two removals of blobs of dropped checkpoints (is_due).
};

// Used by one thread at a time.
class BlobCollector {
 public:
  // Returns the blobs and states that are needed now. An error ends a collection without any removal.
  using AskState = std::function<absl::StatusOr<StoredState>()>;

  BlobCollector(BlobStore* blobs, const BlobCollectorOptions& options);

  // Marks the checkpoint at `uri` as dropped by its job. If its index cannot be read now, CollectDropped tries again. A
  // checkpoint without an index is ignored: CollectDropped has removed all its blobs before the index.
  void Drop(const std::string& uri);
  // Drops those of these checkpoints whose indexes still exist. If an error is returned, all of them stay.
  absl::Status DropAgain(const std::set<std::string>& uris);
  bool has_dropped() const { return !dropped_.empty() || !unread_.empty(); }
  // Whether checkpoints are dropped, and `pause_ms` have passed since the last call of CollectDropped.
  bool is_due() const { return has_dropped() && Before(options_.pause_ms) >= collected_ns_; }
  // Removes the blobs of dropped checkpoints, except those that are still needed. Blobs that were used in the last
  // `dropped_ms` are left for a later call. An index is removed after the blobs that it names, because it is needed to
  // find them after a restart.
  absl::Status CollectDropped(const AskState& ask);
  // Removes all blobs of the store that are not needed and were not used in the last `unnamed_ms`. Returns the number
  // of removed blobs.
  absl::StatusOr<int64_t> CollectAll(const AskState& ask);

 private:
  absl::StatusOr<std::vector<std::string>> BlobsOf(const std::string& uri);
  absl::StatusOr<std::set<std::string>> NeededBlobs(const AskState& ask);
  int64_t Before(int64_t ms) const { return options_.clock->NowNs() - ms * kNsPerMs; }

  BlobStore& blobs_;
  const BlobCollectorOptions options_;
  // By the URI of a checkpoint: the digests of its blobs, first that of the index.
  std::map<std::string, std::vector<std::string>> blobs_of_;
  std::map<std::string, std::vector<std::string>> dropped_;  // Without the blobs that have been removed.
  std::set<std::string> unread_;      // The URIs of dropped checkpoints whose blobs are not known yet.
  int64_t collected_ns_ = INT64_MIN;  // The time of the last call of CollectDropped.
};

}  // namespace xlad::service
