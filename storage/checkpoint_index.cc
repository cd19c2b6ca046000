#include "storage/checkpoint_index.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "storage/block_sums.h"
#include "storage/uri.h"
#include "tensor/box.h"
#include "tensor/wire.h"

namespace xlad::storage {
namespace {

using tensor::Box;
using tensor::Shape;

constexpr char kHashField[] = "\"index_sha256\": \"";
constexpr size_t kHashDigits = 64;

// The position of the hash's digits in a text, or npos if the text has no hash.
size_t FindHash(const std::string& text) {
  const size_t at = text.rfind(kHashField);
  const size_t begin = at + std::size(kHashField) - 1;
  return at == std::string::npos || begin + kHashDigits > text.size() ? std::string::npos : begin;
}

// Replaces the 64 digits of the hash in the text by zeros, and returns the hash.
absl::StatusOr<std::string> TakeHash(std::string* text) {
  const size_t begin = FindHash(*text);
  if (begin == std::string::npos) {
    return absl::DataLossError("not the index of a checkpoint, or a damaged one: found no index_sha256");
  }
  const std::string found = text->substr(begin, kHashDigits);
  text->replace(begin, kHashDigits, kHashDigits, '0');
  return found;
}

bool Overlap(const Box& a, const Box& b) {
  for (const int64_t d : tensor::Indices(a.lo)) {
    if (std::max(a.lo[d], b.lo[d]) >= std::min(a.hi[d], b.hi[d])) return false;
  }
  return true;
}

// Whether nonempty boxes are disjoint. Sweeps along the dimension with the most distinct lower bounds, and compares
// each box only with the boxes that overlap it in this dimension.
bool Disjoint(std::vector<Box> boxes, int64_t ndim) {
  if (ndim == 0) return boxes.size() <= 1;
  int64_t sweep = 0;
  size_t most = 0;
  for (int64_t d = 0; d < ndim; ++d) {
    std::set<int64_t> begins;
    for (const Box& box : boxes) begins.insert(box.lo[d]);
    if (begins.size() > most) {
      most = begins.size();
      sweep = d;
    }
  }
  std::sort(boxes.begin(), boxes.end(), [&](const Box& a, const Box& b) { return a.lo[sweep] < b.lo[sweep]; });
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t k = i + 1; k < boxes.size() && boxes[k].lo[sweep] < boxes[i].hi[sweep]; ++k) {
      if (Overlap(boxes[i], boxes[k])) return false;
    }
  }
  return true;
}

absl::Status CheckTensor(const std::string& name, const Shape& shape, std::vector<Box> boxes) {
  int64_t covered = 0;
  for (const Box& box : boxes) {
    if (!tensor::IsInside(box, shape) || box.elements() == 0) {
      return absl::InvalidArgumentError(absl::StrCat("\"", name, "\": found the piece ", box.ToString(),
                                                     ", expected a box with elements inside ", shape.ToString()));
    }
    covered += box.elements();
    if (covered > shape.elements()) break;
  }
  if (covered < shape.elements()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\": found pieces with ", covered, " elements of ",
                                                   shape.ToString(), ", expected ", shape.elements()));
  }
  if (covered == shape.elements() && Disjoint(std::move(boxes), shape.ndim())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\": found pieces that overlap in ", shape.ToString()));
}

absl::Status CheckShard(const v1::CheckpointShard& shard) {
  BlockSums sums{shard.bytes(), shard.block_bytes(), {shard.block_sums().begin(), shard.block_sums().end()}};
  XLAD_RETURN_IF_ERROR(CheckBlockSums(sums));
  if (IsSha256Hex(shard.sha256()) && !shard.uri().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("found no name or no valid SHA-256, expected a name and 64 lower-case hex digits");
}

}  // namespace

std::string PieceName(const std::string& tensor, const Shape& shape, const v1::CheckpointPiece& piece) {
  const Box box = tensor::BoxFromWire(piece.box());
  return box == FullBox(shape) ? tensor : tensor + box.ToString();
}

absl::Status CheckIndex(const v1::CheckpointIndex& index) {
  std::map<std::string, Shape> shapes;
  std::map<std::string, std::vector<Box>> boxes;
  if (index.step() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("found step ", index.step(), ", expected 0 or more"));
  }
  for (const v1::CheckpointTensor& tensor : index.tensors()) {
    absl::StatusOr<Shape> shape = tensor::CheckedShapeFromWire(tensor.shape());
    if (!shape.ok()) return Annotate(shape.status(), absl::StrCat("\"", tensor.name(), "\""));
    if (!shapes.emplace(tensor.name(), *std::move(shape)).second) {
      return absl::InvalidArgumentError(absl::StrCat("\"", tensor.name(), "\" occurs twice"));
    }
  }
  for (const v1::CheckpointShard& shard : index.shards()) {
    const absl::Status status = CheckShard(shard);
    if (!status.ok()) return Annotate(status, absl::StrCat("shard \"", shard.uri(), "\""));
    for (const v1::CheckpointPiece& piece : shard.pieces()) {
      const auto shape = shapes.find(piece.tensor());
      const Box box = tensor::BoxFromWire(piece.box());
      const bool inside = shape != shapes.end() && tensor::IsInside(box, shape->second);
      const int64_t bytes = inside ? box.elements() * ByteWidth(shape->second.type) : 0;
      if (!inside || piece.begin() < 0 || piece.begin() > shard.bytes() || bytes > shard.bytes() - piece.begin()) {
        return absl::InvalidArgumentError(absl::StrCat("shard \"", shard.uri(), "\": found the piece \"",
                                                       piece.tensor(), "\" ", box.ToString(), " at byte ",
                                                       piece.begin(), ", expected it inside its tensor and file"));
      }
      boxes[piece.tensor()].push_back(box);
    }
  }
  for (const auto& [name, shape] : shapes) XLAD_RETURN_IF_ERROR(CheckTensor(name, shape, std::move(boxes[name])));
  return absl::OkStatus();
}

absl::StatusOr<std::string> SerializeIndex(v1::CheckpointIndex index) {
  index.set_format_version(kCheckpointFormatVersion);
  index.set_index_sha256(std::string(kHashDigits, '0'));
  XLAD_RETURN_IF_ERROR(CheckIndex(index));
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(index, &text, options);
  if (!printed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the index has no JSON form: ", printed.ToString()));
  }
  const std::string hash = Sha256Hex(text);
  text.replace(FindHash(text), kHashDigits, hash);
  return text;
}

absl::StatusOr<v1::CheckpointIndex> ParseIndex(absl::string_view given) {
  std::string text(given);
  XLAD_ASSIGN_OR_RETURN(const std::string hash, TakeHash(&text));
  if (const std::string found = Sha256Hex(text); found != hash) {
    return absl::DataLossError(absl::StrCat("the index of the checkpoint is damaged: its text has SHA-256 ", found,
                                            ", expected its index_sha256 ", hash));
  }
  v1::CheckpointIndex index;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &index, options);
  if (!parsed.ok()) {
    // The error quotes a part of the text, which may begin or end in the middle of a character.
    return absl::InvalidArgumentError(absl::StrCat("not the index of a checkpoint: ", ToUtf8(parsed.ToString())));
  }
  if (index.format_version() != kCheckpointFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat("found a checkpoint of format version ", index.format_version(),
                                                      ", expected ", kCheckpointFormatVersion,
                                                      "; another version of xlad wrote it"));
  }
  XLAD_RETURN_IF_ERROR(CheckIndex(index));
  return index;
}

}  // namespace xlad::storage
