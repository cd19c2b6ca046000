#include "service/blobs/index_writer.h"

#include "absl/strings/str_cat.h"
#include "storage/checkpoint_folder.h"
#include "storage/checkpoint_index.h"
#include "storage/checkpoint_shard.h"
#include "storage/uri.h"

namespace xlad::service {

absl::StatusOr<Checkpoint> WriteIndex(FileSystem& files, const StoreIndex& request, BlobStore* blobs) {
  XLAD_ASSIGN_OR_RETURN(const std::string text, storage::SerializeIndex(request.index));
  absl::StatusOr<std::string> digest = blobs->Put(text);
  const bool is_on_coordinator = request.uri.empty() || request.uri == "xlad:";
  if (!digest.ok()) {
    // DataLoss would mean that a shard is lost, so it is replaced by Unavailable. If the checkpoint is not in the
    // coordinator's folder, all codes are replaced: a refusal (IsRefusal) would mean that the place of the checkpoint
    // refuses it.
    const bool keeps_code = is_on_coordinator && !absl::IsDataLoss(digest.status());
    return absl::Status(
        keeps_code ? digest.status().code() : absl::StatusCode::kUnavailable,
        absl::StrCat("the data folder of the coordinator cannot be written: ", digest.status().message()));
  }
  Checkpoint stored;
  stored.step = request.index.step();
  stored.digest = *std::move(digest);
  stored.uri = storage::BlobUri(stored.digest);
  for (const CheckpointShard& shard : request.index.shards()) {
    const auto uri = storage::ParseUri(shard.uri());
    if (!uri.ok() || uri->scheme != storage::Uri::Scheme::kBlob || blobs->Has(uri->rest)) continue;
    return absl::DataLossError(
        absl::StrCat("found no blob ", uri->rest, ", expected the shard that a worker has written"));
  }
  if (is_on_coordinator) return stored;
  XLAD_ASSIGN_OR_RETURN(const storage::Uri root, storage::ParseUri(request.uri));
  const std::string folder =
      storage::CheckpointFolder(root.rest, {request.attempt.job.str(), request.attempt.number, request.index.step()});
  XLAD_RETURN_IF_ERROR(storage::WriteIndexFile(files, folder, request.index));
  stored.uri = storage::FileUri(folder);
  return stored;
}

}  // namespace xlad::service
