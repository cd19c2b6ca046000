// The index of a checkpoint (proto/checkpoint.proto): its JSON form and its validation.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "proto/checkpoint.pb.h"
#include "tensor/shape.h"

namespace xlad::storage {

inline constexpr int kCheckpointFormatVersion = 1;
inline constexpr absl::string_view kIndexFileName = "index.json";

// Returns the JSON form of the index, with format_version and index_sha256 set. Its fields have the names of
// proto/checkpoint.proto; 64-bit integers are strings, as in the standard JSON form of a proto. InvalidArgument if
// CheckIndex fails.
absl::StatusOr<std::string> SerializeIndex(v1::CheckpointIndex index);

// Parses the JSON form, which is untrusted. DataLoss if the text has no index_sha256 or does not match it.
// FailedPrecondition if the format has another version. InvalidArgument if the text is not an index in JSON or
// CheckIndex fails. Unknown fields are ignored.
absl::StatusOr<v1::CheckpointIndex> ParseIndex(absl::string_view text);

// InvalidArgument unless every element of every tensor is in exactly one piece, every piece is inside its tensor and
// its file, and the step, the shapes and the checksums are valid. The message names the tensor or shard.
absl::Status CheckIndex(const v1::CheckpointIndex& index);

// The name of a piece in its file: "w", or "w[0:4, 8:16]" if the box is not the whole tensor.
std::string PieceName(const std::string& tensor, const tensor::Shape& shape, const v1::CheckpointPiece& piece);

}  // namespace xlad::storage
