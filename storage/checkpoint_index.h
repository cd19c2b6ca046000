// The index of a checkpoint (proto/checkpoint.proto): its JSON form, and what makes one valid.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "proto/checkpoint.pb.h"
#include "tensor/shape.h"

namespace xlad::storage {

inline constexpr int kCheckpointFormatVersion = 1;
inline constexpr absl::string_view kIndexFileName = "index.json";

// Sets format_version and index_sha256. The fields of the message have the names of proto/checkpoint.proto; integers of
// 64 bits are texts, as in every JSON form of a proto.
absl::StatusOr<std::string> SerializeIndex(v1::CheckpointIndex index);

// The inverse. The text is not trusted: DataLoss if a bit of the text differs from what was written, FailedPrecondition
// if the format is of another version, InvalidArgument if CheckIndex fails.
absl::StatusOr<v1::CheckpointIndex> ParseIndex(absl::string_view text);

// InvalidArgument, with the tensor or shard, unless every element of every tensor is in exactly one piece, and every
// piece is inside its tensor and its file.
absl::Status CheckIndex(const v1::CheckpointIndex& index);

// The name of a piece in its file: "w", or "w[0:4, 8:16]" if the box is not the whole tensor.
std::string PieceName(const std::string& tensor, const tensor::Shape& shape, const v1::CheckpointPiece& piece);

}  // namespace xlad::storage
