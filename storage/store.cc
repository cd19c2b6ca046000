#include "storage/store.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "storage/block_sums.h"
#include "storage/checkpoint_index.h"
#include "tensor/wire.h"

namespace xlad::storage {
namespace {

constexpr int64_t kMaxIndexBytes = int64_t{1} << 30;

// Distinguishes the index of a checkpoint from a safetensors file by the first eight bytes. In a safetensors file they
// are the length of the header, which ends with zero bytes; JSON text has no zero bytes.
absl::StatusOr<bool> IsIndex(RangeReader& reader) {
  if (reader.size() < 8) return false;
  XLAD_ASSIGN_OR_RETURN(const std::string start, ReadString(reader, 0, 8));
  return start[0] == '{' && start.find('\0') == std::string::npos;
}

}  // namespace

absl::StatusOr<std::shared_ptr<RangeReader>> Store::Open(const std::string& text) const {
  XLAD_ASSIGN_OR_RETURN(const Uri uri, ParseUri(text));
  absl::StatusOr<std::shared_ptr<RangeReader>> reader = absl::UnimplementedError(
      "found a blob in the store of a coordinator, expected a file: without a coordinator, only files can be read");
  if (uri.scheme == Uri::Scheme::kFile) {
    reader = OpenFileReader(*files_, uri.rest);
  } else if (uri.rest.empty()) {
    reader = absl::InvalidArgumentError("found no digest, expected the URI of a blob, xlad:DIGEST");
  } else if (open_blob_ != nullptr) {
    reader = open_blob_(uri.rest);
  }
  if (!reader.ok()) return Annotate(reader.status(), text);
  return reader;
}

absl::StatusOr<Uri> Store::FindIndex(const std::string& text) const {
  XLAD_ASSIGN_OR_RETURN(Uri uri, ParseUri(text));
  if (uri.scheme == Uri::Scheme::kFile && files_->IsDirectory(uri.rest)) uri.rest = JoinPath(uri.rest, kIndexFileName);
  return uri;
}

absl::StatusOr<std::string> Store::ReadIndexText(const Uri& uri) const {
  XLAD_ASSIGN_OR_RETURN(const std::shared_ptr<RangeReader> reader, Open(uri.ToString()));
  if (reader->size() > kMaxIndexBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(uri.ToString(), ": found ", reader->size(),
                     " bytes, expected the index of a checkpoint, which has at most ", kMaxIndexBytes));
  }
  return ReadString(*reader, 0, reader->size());
}

absl::StatusOr<v1::CheckpointIndex> Store::ReadIndexAt(const Uri& uri) const {
  XLAD_ASSIGN_OR_RETURN(const std::string text, ReadIndexText(uri));
  absl::StatusOr<v1::CheckpointIndex> index = ParseIndex(text);
  if (!index.ok()) return Annotate(index.status(), uri.ToString());
  return index;
}

absl::StatusOr<v1::CheckpointIndex> Store::ReadIndex(const std::string& uri) const {
  XLAD_ASSIGN_OR_RETURN(const Uri index, FindIndex(uri));
  return ReadIndexAt(index);
}

absl::Status Store::CheckIndex(const std::string& uri, const std::string& digest) const {
  XLAD_ASSIGN_OR_RETURN(const Uri index_uri, FindIndex(uri));
  if (index_uri.scheme != Uri::Scheme::kFile) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(const std::string text, ReadIndexText(index_uri));
  if (Sha256Hex(text) == digest) return absl::OkStatus();
  const absl::StatusOr<v1::CheckpointIndex> index = ParseIndex(text);
  if (!index.ok()) return Annotate(index.status(), index_uri.ToString());
  if (index->index_sha256() == digest) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      index_uri.ToString(), ": found another checkpoint, of job ", index->job_id(), " and step ", index->step(),
      " (index_sha256 ", index->index_sha256(), "), expected the one with digest ", digest,
      "; it was replaced after the job was submitted or the checkpoint was committed"));
}

absl::StatusOr<std::shared_ptr<RangeReader>> Store::OpenShard(const Uri& index,
                                                              const v1::CheckpointShard& shard) const {
  XLAD_ASSIGN_OR_RETURN(const std::string uri, Beside(index, shard.uri()));
  XLAD_ASSIGN_OR_RETURN(std::shared_ptr<RangeReader> reader, Open(uri));
  return VerifyBlocks(std::move(reader),
                      {shard.bytes(), shard.block_bytes(), {shard.block_sums().begin(), shard.block_sums().end()}},
                      uri);
}

absl::StatusOr<std::shared_ptr<TensorSource>> Store::OpenCheckpoint(const Uri& uri) const {
  XLAD_ASSIGN_OR_RETURN(const v1::CheckpointIndex index, ReadIndexAt(uri));
  std::map<std::string, StoredTensor> tensors;
  for (const v1::CheckpointTensor& tensor : index.tensors()) {
    tensors[tensor.name()].shape = tensor::ShapeFromWire(tensor.shape());
  }
  std::vector<std::shared_ptr<RangeReader>> files;
  for (const v1::CheckpointShard& shard : index.shards()) {
    for (const v1::CheckpointPiece& piece : shard.pieces()) {
      tensors[piece.tensor()].pieces.push_back({tensor::BoxFromWire(piece.box()), std::ssize(files), piece.begin()});
    }
    absl::StatusOr<std::shared_ptr<RangeReader>> file = OpenShard(uri, shard);
    if (absl::IsNotFound(file.status())) {  // The file system is mounted, because the index has been read.
      return absl::DataLossError(absl::StrCat(uri.ToString(), ": shard ", shard.uri(), " is missing: ",
                                              file.status().message()));
    }
    XLAD_RETURN_IF_ERROR(file.status());
    files.push_back(*std::move(file));
  }
  return std::make_shared<TensorSource>(std::move(files), std::move(tensors));
}

absl::StatusOr<std::shared_ptr<TensorSource>> Store::OpenFolder(const Uri& uri) const {
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> all, files_->List(uri.rest));
  std::vector<std::string> names;
  std::vector<std::shared_ptr<RangeReader>> files;
  for (const std::string& name : all) {
    if (!absl::EndsWith(name, ".safetensors")) continue;
    names.push_back(FileUri(JoinPath(uri.rest, name)));
    XLAD_ASSIGN_OR_RETURN(files.emplace_back(), Open(names.back()));
  }
  if (!files.empty()) return OpenSafetensors(std::move(files), names);
  return absl::NotFoundError(absl::StrCat(uri.ToString(), ": found a folder without ", kIndexFileName,
                                          " and without files named *.safetensors, expected one of them"));
}

absl::StatusOr<std::shared_ptr<TensorSource>> Store::OpenTensors(const std::string& text) const {
  XLAD_ASSIGN_OR_RETURN(const Uri uri, ParseUri(text));
  XLAD_ASSIGN_OR_RETURN(const Uri index, FindIndex(text));
  if (!(index == uri)) return files_->Exists(index.rest) ? OpenCheckpoint(index) : OpenFolder(uri);
  XLAD_ASSIGN_OR_RETURN(std::shared_ptr<RangeReader> reader, Open(text));
  const absl::StatusOr<bool> is_index = IsIndex(*reader);
  if (!is_index.ok()) return Annotate(is_index.status(), text);
  if (*is_index) return OpenCheckpoint(uri);
  return OpenSafetensors({std::move(reader)}, {text});
}

absl::Status Store::VerifyCheckpoint(const std::string& uri) const {
  XLAD_ASSIGN_OR_RETURN(const Uri index_uri, FindIndex(uri));
  XLAD_ASSIGN_OR_RETURN(const v1::CheckpointIndex index, ReadIndexAt(index_uri));
  for (const v1::CheckpointShard& shard : index.shards()) {
    XLAD_ASSIGN_OR_RETURN(const std::shared_ptr<RangeReader> reader, OpenShard(index_uri, shard));
    ObjectHasher hasher;
    for (int64_t at = 0; at < reader->size();) {
      const int64_t bytes = std::min(kReadBytes, reader->size() - at);
      XLAD_ASSIGN_OR_RETURN(const std::string piece, ReadString(*reader, at, bytes));
      hasher.Add(piece);
      at += bytes;
    }
    const std::string found = hasher.Finish().sha256;
    if (found == shard.sha256()) continue;
    return absl::DataLossError(absl::StrCat(index_uri.ToString(), ": shard ", shard.uri(),
                                            " is not the one that was written: it has SHA-256 ", found, ", expected ",
                                            shard.sha256()));
  }
  return absl::OkStatus();
}

}  // namespace xlad::storage
