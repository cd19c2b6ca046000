// Writing the part of a checkpoint that one worker has: a safetensors file of boxes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "proto/checkpoint.pb.h"
#include "storage/block_sums.h"
#include "tensor/box.h"

namespace xlad::storage {

// A box of a tensor in memory, row-major without padding, in the form that files have (tensor::ToStored).
struct PieceBytes {
  std::string tensor;
  tensor::Shape shape;  // The shape of the whole tensor.
  tensor::Box box;      // Not empty.
  absl::Span<const std::byte> bytes;
};

// What a shard says about itself, for readers that have only this file.
struct ShardOrigin {
  std::string job_id;
  int64_t attempt = 0;
  int64_t step = 0;
};

// A shard in the form in which it is written.
class SerializedShard {
 public:
  // The bytes of the pieces must outlive the object.
  SerializedShard(std::vector<PieceBytes> pieces, const ShardOrigin& origin);

  int64_t bytes() const { return bytes_; }
  const std::vector<PieceBytes>& pieces() const { return pieces_; }
  // Calls `append` with the contents of the file from its begin to its end, until it returns an error.
  absl::Status WriteTo(const std::function<absl::Status(absl::string_view)>& append) const;
  // The description of the shard when it is stored as `uri` and has this hash.
  v1::CheckpointShard Describe(const std::string& uri, const ObjectInfo& info) const;

 private:
  const std::vector<PieceBytes> pieces_;
  std::string header_;
  int64_t bytes_ = 0;
};

// "ROOT/JOB/step-000000000100-attempt-2": attempts that a newer one has replaced cannot write into its folder.
std::string CheckpointFolder(const std::string& root, const ShardOrigin& origin);

// Writes a shard as `folder`/`name`, and makes the folder. Returns when it is on disk.
absl::StatusOr<v1::CheckpointShard> WriteShardFile(FileSystem& files, const std::string& folder,
                                                   const std::string& name, const SerializedShard& shard);

}  // namespace xlad::storage
