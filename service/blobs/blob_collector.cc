#include "service/blobs/blob_collector.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "storage/store.h"
#include "storage/uri.h"

namespace xlad::service {
namespace {

// The digest of an "xlad:" URI, or an empty text.
std::string DigestOf(const std::string& uri) {
  const auto parsed = storage::ParseUri(uri);
  return parsed.ok() && parsed->scheme == storage::Uri::Scheme::kBlob ? parsed->rest : "";
}

// Whether the error means that the blob is not an index or no longer exists. Either way, it names no other blobs.
bool IsNoIndex(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status) || absl::IsInvalidArgument(status);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> BlobsNamedBy(const BlobStore& blobs, const std::string& uri) {
  const std::string digest = DigestOf(uri);
  if (digest.empty()) return std::vector<std::string>();
  std::vector<std::string> named = {digest};
  const absl::StatusOr<std::shared_ptr<storage::RangeReader>> reader = blobs.OpenBlob(digest);
  if (!reader.ok() && !IsNoIndex(reader.status())) return reader.status();
  if (!reader.ok() || (*reader)->size() == 0) return named;
  std::byte first{};
  const absl::Status read = (*reader)->Read(0, {&first, 1});
  if (!read.ok() && !IsNoIndex(read)) return Annotate(read, uri);
  if (!read.ok() || first != std::byte{'{'}) return named;  // The text is not JSON.
  const storage::Store store(RealFileSystem(), [&](const std::string& name) { return blobs.OpenBlob(name); });
  const absl::StatusOr<CheckpointIndex> index = store.ReadIndex(uri);
  if (!index.ok() && IsNoIndex(index.status())) return named;
  if (!index.ok()) return index.status();
  for (const CheckpointShard& shard : index->shards()) {
    if (const std::string name = DigestOf(shard.uri()); !name.empty()) named.push_back(name);
  }
  return named;
}

BlobCollector::BlobCollector(BlobStore* blobs, const BlobCollectorOptions& options)
    : blobs_(*blobs), options_(options) {}

absl::StatusOr<std::vector<std::string>> BlobCollector::BlobsOf(const std::string& uri) {
  const auto known = blobs_of_.find(uri);
  if (known != blobs_of_.end()) return known->second;
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> blobs, BlobsNamedBy(blobs_, uri));
  // Only the result for an index that names other blobs is cached: an index never changes, but a blob that is missing
  // now may be uploaded later.
  if (blobs.size() > 1) blobs_of_[uri] = blobs;
  return blobs;
}

absl::StatusOr<std::set<std::string>> BlobCollector::NeededBlobs(const AskState& ask) {
  XLAD_ASSIGN_OR_RETURN(const StoredState state, ask());
  std::set<std::string> needed = state.blobs;
  for (const std::string& uri : state.states) {
    XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> blobs, BlobsOf(uri));
    needed.insert(blobs.begin(), blobs.end());
  }
  return needed;
}

void BlobCollector::Drop(const std::string& uri) {
  const absl::StatusOr<std::vector<std::string>> blobs = BlobsOf(uri);
  if (!blobs.ok()) {
    // Each CollectDropped calls Drop again, so only the first failure is logged.
    if (!unread_.insert(uri).second) return;
    return LogWarn("the index of a dropped checkpoint cannot be read now, so its blobs are removed later",
                   {{"checkpoint", uri}, {"error", std::string(blobs.status().message())}});
  }
  unread_.erase(uri);
  const bool is_gone = blobs->empty() || (blobs->size() == 1 && !blobs_.Has(blobs->front()));
  if (!is_gone) dropped_[uri] = *blobs;
}

absl::Status BlobCollector::DropAgain(const std::set<std::string>& uris) {
  // The log may name very many checkpoints that were removed long ago, so their indexes are not opened one by one.
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> present, blobs_.List());
  for (const std::string& uri : uris) {
    if (std::binary_search(present.begin(), present.end(), DigestOf(uri))) Drop(uri);
  }
  return absl::OkStatus();
}

absl::Status BlobCollector::CollectDropped(const AskState& ask) {
  collected_ns_ = Before(0);
  for (const std::string& uri : std::set<std::string>(unread_)) Drop(uri);
  if (dropped_.empty()) return absl::OkStatus();
  // The time is taken before the state is read, because the state may lack a blob that is first used in between.
  const int64_t unused_since_ns = Before(options_.dropped_ms);
  XLAD_ASSIGN_OR_RETURN(const std::set<std::string> needed, NeededBlobs(ask));
  const auto is_done = [&](const std::string& digest) {
    // A blob that is still needed is dropped again with the checkpoint that needs it.
    return needed.contains(digest) || blobs_.RemoveIfUnused(digest, unused_since_ns).value_or(false);
  };
  for (auto checkpoint = dropped_.begin(); checkpoint != dropped_.end();) {
    std::vector<std::string>& blobs = checkpoint->second;
    blobs.erase(std::remove_if(blobs.begin() + 1, blobs.end(), is_done), blobs.end());
    const bool is_gone = blobs.size() == 1 && is_done(blobs[0]);
    checkpoint = is_gone ? dropped_.erase(checkpoint) : std::next(checkpoint);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> BlobCollector::CollectAll(const AskState& ask) {
  const int64_t unused_since_ns = Before(options_.unnamed_ms);  // Read first, as in CollectDropped.
  XLAD_ASSIGN_OR_RETURN(const std::set<std::string> needed, NeededBlobs(ask));
  std::erase_if(blobs_of_, [&](const auto& known) { return !needed.contains(DigestOf(known.first)); });
  return blobs_.Collect([&](const std::string& digest) { return needed.contains(digest); }, unused_since_ns);
}

}  // namespace xlad::service
