// Opens the files, blobs, tensors and checkpoints that URIs name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "proto/checkpoint.pb.h"
#include "storage/range_reader.h"
#include "storage/tensor_source.h"
#include "storage/uri.h"

namespace xlad::storage {

// Thread-safe. Errors name the URI or the file.
class Store {
 public:
  // Opens a blob by its digest. The reader must verify the bytes that it reads.
  using OpenBlob = std::function<absl::StatusOr<std::shared_ptr<RangeReader>>(const std::string& digest)>;
  // `files` must outlive the store. If `open_blob` is null, opening a blob returns Unimplemented.
  explicit Store(FileSystem& files, OpenBlob open_blob = nullptr) : files_(&files), open_blob_(std::move(open_blob)) {}

  // Opens a file or blob. InvalidArgument if the URI is malformed. Other errors are those of OpenFileReader and of the
  // OpenBlob function.
  absl::StatusOr<std::shared_ptr<RangeReader>> Open(const std::string& uri) const;

  // Opens the tensors of a safetensors file or blob, of a folder of safetensors files (in the order of their names; see
  // OpenSafetensors), or of a checkpoint, by the URI of its index or of its folder.
  absl::StatusOr<std::shared_ptr<TensorSource>> OpenTensors(const std::string& uri) const;

  // Reads the index of a checkpoint, by the URI of the index or of its folder.
  absl::StatusOr<v1::CheckpointIndex> ReadIndex(const std::string& uri) const;

  // FailedPrecondition if the index of a checkpoint is not the one with this digest: the SHA-256 of its text, or its
  // index_sha256. Blobs are not read, because their names are their digests.
  absl::Status CheckIndex(const std::string& uri, const std::string& digest) const;

  // Reads every byte of every shard and compares the shards with their checksums and SHA-256. DataLoss names the first
  // damaged shard.
  absl::Status VerifyCheckpoint(const std::string& uri) const;

 private:
  absl::StatusOr<Uri> FindIndex(const std::string& uri) const;
  absl::StatusOr<std::string> ReadIndexText(const Uri& uri) const;
  absl::StatusOr<v1::CheckpointIndex> ReadIndexAt(const Uri& uri) const;
  absl::StatusOr<std::shared_ptr<RangeReader>> OpenShard(const Uri& index, const v1::CheckpointShard& shard) const;
  absl::StatusOr<std::shared_ptr<TensorSource>> OpenCheckpoint(const Uri& uri) const;
  absl::StatusOr<std::shared_ptr<TensorSource>> OpenFolder(const Uri& uri) const;

  FileSystem* files_;
  OpenBlob open_blob_;
};

}  // namespace xlad::storage
