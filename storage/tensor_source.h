// Tensors in files: any box of any tensor, whatever the boxes in which it was stored.
//
// A tensor is stored as pieces, boxes that cover it. A checkpoint that two workers wrote may have the pieces [0:4, 0:8]
// and [4:8, 0:8] of a tensor, each in a file of its own; a reader that runs on another mesh asks for the box [0:8, 0:4]
// and gets its left half from each of them.
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
  int64_t file = 0;   // Indexes the files of the source.
  int64_t begin = 0;  // In bytes from the start of the file.
};

struct StoredTensor {
  tensor::Shape shape;
  std::vector<StoredPiece> pieces;  // Their boxes are disjoint.
};

// A box to read into memory of the caller.
struct BoxRead {
  std::string tensor;
  tensor::ElementType type = tensor::ElementType::kInvalid;  // The file has this type, or its bytes as U8.
  tensor::Box box;
  absl::Span<std::byte> out;  // Row-major without padding.
};

// Thread-safe.
class TensorSource {
 public:
  TensorSource(std::vector<std::shared_ptr<RangeReader>> files, std::map<std::string, StoredTensor> tensors)
      : files_(std::move(files)), tensors_(std::move(tensors)) {}

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

  // Fills all of them with few reads: bytes that several boxes share are read once. The memory that this takes is a
  // few times kReadBytes. NotFound for an unknown tensor, InvalidArgument for another type or a box that is not inside
  // the tensor, DataLoss for damage and for elements that no piece has. The message begins with the tensor's name.
  absl::Status Read(absl::Span<const BoxRead> reads) const;

  // The header of a safetensors file that would have these tensors: their names, types and shapes.
  std::string Header() const;

  // InvalidArgument or NotFound if the tensor is not there with this shape: "found f32[2], expected f32[3]".
  absl::Status CheckShape(const std::string& name, const tensor::Shape& shape) const;

 private:
  const std::vector<std::shared_ptr<RangeReader>> files_;
  const std::map<std::string, StoredTensor> tensors_;
};

// Reads the header of a safetensors file; `name` is for messages.
absl::StatusOr<tensor::SafetensorsIndex> ReadSafetensorsIndex(RangeReader& reader, const std::string& name);

// The tensors of one or more safetensors files. A tensor that is in several of them is their concatenation along
// dimension 0, in the order of the files. InvalidArgument if their shapes do not allow that.
absl::StatusOr<std::shared_ptr<TensorSource>> OpenSafetensors(std::vector<std::shared_ptr<RangeReader>> files,
                                                              const std::vector<std::string>& names);

}  // namespace xlad::storage
