// Writes one worker's part of a checkpoint: a safetensors file of boxes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "proto/checkpoint.pb.h"
#include "storage/block_sums.h"
#include "tensor/box.h"

namespace xlad::storage {

// A box of a tensor in memory, row-major without padding, in the format of the files (tensor::ToStored).
struct PieceBytes {
  std::string tensor;
  tensor::Shape shape;  // The shape of the whole tensor.
  tensor::Box box;      // Not empty.
  absl::Span<const std::byte> bytes;
};

// Metadata in each shard, for readers that have only this file.
struct ShardOrigin {
  std::string job_id;
  int64_t attempt = 0;
  int64_t step = 0;
};

// A shard in its file format.
class SerializedShard {
 public:
  // The bytes of the pieces must outlive the object.
  SerializedShard(std::vector<PieceBytes> pieces, const ShardOrigin& origin);

  int64_t bytes() const { return bytes_; }
  const std::vector<PieceBytes>& pieces() const { return pieces_; }
  // Calls `append` with successive parts of the file's contents. Stops if `append` returns an error.
  absl::Status WriteTo(const std::function<absl::Status(absl::string_view)>& append) const;
  // Returns the shard's entry in the index, given its URI and its hashes.
  v1::CheckpointShard Describe(const std::string& uri, const ObjectInfo& info) const;

 private:
  const std::vector<PieceBytes> pieces_;
  std::string header_;
  int64_t bytes_ = 0;
};

// "ROOT/JOB/step-000000000100-attempt-2". Each attempt has its own folders, so that an attempt cannot write into the
// folders of a newer one.
std::string CheckpointFolder(const std::string& root, const ShardOrigin& origin);

// Writes a shard as `folder`/`name`, which is replaced if it exists. Makes the folder if it does not exist. Returns
// when the shard is on disk. The result has `name` as its uri.
absl::StatusOr<v1::CheckpointShard> WriteShardFile(FileSystem& files, const std::string& folder,
                                                   const std::string& name, const SerializedShard& shard);

}  // namespace xlad::storage
