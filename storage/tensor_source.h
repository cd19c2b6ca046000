// Tensors in files. Any box of a tensor can be read, independently of the boxes in which the tensor was stored.
//
// A tensor is stored as pieces: boxes that together cover it. For example, a checkpoint of two workers has the pieces
// [0:4, 0:8] and [4:8, 0:8] of a tensor in two files. A reader on another mesh may read the box [0:8, 0:4], which is
// the left half of each piece.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/range_reader.h"
#include "tensor/box.h"
#include "tensor/safetensors.h"

namespace xlad::storage {

// One box of a tensor in one file, row-major without padding.
struct StoredPiece {
  tensor::Box box;
  int64_t file = 0;   // The index of the file in the source's list of files.
  int64_t begin = 0;  // In bytes from the start of the file.
};

struct StoredTensor {
  tensor::Shape shape;
  std::vector<StoredPiece> pieces;  // The boxes of the pieces are disjoint.
};

// A box to read into memory of the caller.
struct BoxRead {
  std::string tensor;
  // The type of the elements. The tensor in the file must have this type, or consist of the elements' bytes as U8.
  tensor::ElementType type = tensor::ElementType::kInvalid;
  tensor::Box box;
  absl::Span<std::byte> out;  // The result, row-major without padding.
};

// Thread-safe.
class TensorSource {
 public:
  TensorSource(std::vector<std::shared_ptr<RangeReader>> files, std::map<std::string, StoredTensor> tensors)
      : files_(std::move(files)), tensors_(std::move(tensors)) {}

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

  // Fills all boxes. Ranges of bytes that overlap or are close together are combined into one read (see ReadSpans). One
  // read at a time is in memory. NotFound for an unknown tensor, InvalidArgument for another type or an `out` of
  // another size, OutOfRange for a box that is not inside the tensor, DataLoss for damage and for elements that no
  // piece has. The message begins with the tensor's name, or is that of RangeReader::Read.
  absl::Status Read(absl::Span<const BoxRead> reads) const;

  // The header of a safetensors file that would have these tensors: their names, types and shapes.
  std::string Header() const;

  // OK if the tensor exists with this shape, or with the elements' bytes as U8. NotFound if it does not exist.
  // Otherwise InvalidArgument, for example `"w": found f32[2], expected f32[3]`.
  absl::Status CheckShape(const std::string& name, const tensor::Shape& shape) const;

 private:
  const std::vector<std::shared_ptr<RangeReader>> files_;
  const std::map<std::string, StoredTensor> tensors_;
};

// Reads the header of a safetensors file; `name` is for messages.
absl::StatusOr<tensor::SafetensorsIndex> ReadSafetensorsIndex(RangeReader& reader, const std::string& name);

// The tensors of one or more safetensors files. If a tensor is in several files, the result is the concatenation of its
// parts along dimension 0, in the order of the files. InvalidArgument if the types or shapes of the parts do not allow
// this.
absl::StatusOr<std::shared_ptr<TensorSource>> OpenSafetensors(std::vector<std::shared_ptr<RangeReader>> files,
                                                              const std::vector<std::string>& names);

}  // namespace xlad::storage
