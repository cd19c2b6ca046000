#include "storage/checkpoint_shard.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file_system.h"
#include "storage/checkpoint_index.h"
#include "storage/object_writer.h"
#include "tensor/safetensors.h"
#include "tensor/wire.h"

namespace xlad::storage {
namespace {

v1::CheckpointPiece ToProto(const PieceBytes& piece, int64_t begin) {
  v1::CheckpointPiece proto;
  proto.set_tensor(piece.tensor);
  tensor::BoxToWire(piece.box, proto.mutable_box());
  proto.set_begin(begin);
  return proto;
}

}  // namespace

SerializedShard::SerializedShard(std::vector<PieceBytes> pieces, const ShardOrigin& origin)
    : pieces_(std::move(pieces)) {
  std::vector<std::pair<std::string, tensor::Shape>> tensors;
  for (const PieceBytes& piece : pieces_) {
    tensors.emplace_back(PieceName(piece.tensor, piece.shape, ToProto(piece, 0)),
                         tensor::Shape{piece.shape.type, piece.box.sizes()});
    bytes_ += std::ssize(piece.bytes);
  }
  header_ = tensor::SafetensorsHeader(
      tensors,
      {{"job", origin.job_id}, {"attempt", absl::StrCat(origin.attempt)}, {"step", absl::StrCat(origin.step)}});
  bytes_ += std::ssize(header_);
}

absl::Status SerializedShard::WriteTo(const std::function<absl::Status(absl::string_view)>& append) const {
  XLAD_RETURN_IF_ERROR(append(header_));
  constexpr size_t kPieceBytes = 8 << 20;
  for (const PieceBytes& piece : pieces_) {
    absl::string_view bytes(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
    for (; !bytes.empty(); bytes.remove_prefix(std::min(kPieceBytes, bytes.size()))) {
      XLAD_RETURN_IF_ERROR(append(bytes.substr(0, kPieceBytes)));
    }
  }
  return absl::OkStatus();
}

v1::CheckpointShard SerializedShard::Describe(const std::string& uri, const ObjectInfo& info) const {
  v1::CheckpointShard shard;
  shard.set_uri(uri);
  shard.set_bytes(info.sums.bytes);
  shard.set_sha256(info.sha256);
  shard.set_block_bytes(info.sums.block_bytes);
  shard.mutable_block_sums()->Assign(info.sums.sums.begin(), info.sums.sums.end());
  int64_t begin = std::ssize(header_);
  for (const PieceBytes& piece : pieces_) {
    *shard.add_pieces() = ToProto(piece, begin);
    begin += std::ssize(piece.bytes);
  }
  return shard;
}

std::string CheckpointFolder(const std::string& root, const ShardOrigin& origin) {
  return JoinPath(JoinPath(root, origin.job_id), absl::StrFormat("step-%012d-attempt-%d", origin.step, origin.attempt));
}

absl::StatusOr<v1::CheckpointShard> WriteShardFile(FileSystem& files, const std::string& folder,
                                                   const std::string& name, const SerializedShard& shard) {
  XLAD_RETURN_IF_ERROR(files.MakeDirectories(folder));
  const std::string path = JoinPath(folder, name);
  // A shard that is written again is replaced. An existing temporary file belongs to a writer that was killed: names of
  // shards are unique within an attempt, so no other writer uses it.
  const std::string temporary = path + ".tmp";
  if (files.Exists(temporary)) XLAD_RETURN_IF_ERROR(files.Remove(temporary));
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer, ObjectWriter::Create(files, temporary));
  XLAD_RETURN_IF_ERROR(shard.WriteTo([&](absl::string_view bytes) { return writer->Append(bytes); }));
  XLAD_ASSIGN_OR_RETURN(const ObjectInfo info, writer->Finish());
  XLAD_RETURN_IF_ERROR(writer->Publish(path));
  // Makes the names of new folders durable as well.
  XLAD_RETURN_IF_ERROR(files.SyncDirectory(FolderOfPath(folder)));
  XLAD_RETURN_IF_ERROR(files.SyncDirectory(FolderOfPath(FolderOfPath(folder))));
  return shard.Describe(name, info);
}

}  // namespace xlad::storage
