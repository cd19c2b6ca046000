#include "storage/tensor_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xlad::storage {
namespace {

using tensor::Box;
using tensor::Dims;
using tensor::Indices;
using tensor::Shape;

// A region is read in smaller parts if less than 1/kMinDensity of the bytes from its first to its last byte in the file
// belong to it, and if its contiguous runs have at least kMinSparseRunBytes.
constexpr int64_t kMinDensity = 4;
constexpr int64_t kMinSparseRunBytes = 64 << 10;

Box Intersect(const Box& a, const Box& b) {
  Box both = a;
  for (const int64_t d : Indices(both.lo)) {
    both.lo[d] = std::max(a.lo[d], b.lo[d]);
    both.hi[d] = std::max(both.lo[d], std::min(a.hi[d], b.hi[d]));
  }
  return both;
}

// The offset of an index, in elements, in an array that holds `box` row-major.
int64_t PositionIn(const Box& box, absl::Span<const int64_t> index) {
  int64_t position = 0;
  for (const int64_t d : Indices(index)) position = position * (box.hi[d] - box.lo[d]) + index[d] - box.lo[d];
  return position;
}

// A copy of a region from the bytes of a piece to the bytes of a result.
class Region {
 public:
  Region(Box region, const Box& from, const Box& to, int64_t width)
      : region_(std::move(region)), from_(from), to_(to), width_(width) {
    // Dimension `run_` and all later dimensions are contiguous on both sides.
    run_ = std::ssize(region_.lo);
    int64_t elements = 1;
    while (run_ > 0) {
      const int64_t d = --run_;
      elements *= region_.hi[d] - region_.lo[d];
      const bool whole = Size(region_, d) == Size(from_, d) && Size(region_, d) == Size(to_, d);
      if (!whole) break;
    }
    run_bytes_ = elements * width_;
  }

  int64_t bytes() const { return region_.elements() * width_; }
  // The range of the piece's bytes from the first to the last byte of the region.
  int64_t begin() const { return PositionIn(from_, region_.lo) * width_; }
  int64_t end() const {
    Dims last = region_.hi;
    for (int64_t& index : last) --index;
    return (PositionIn(from_, last) + 1) * width_;
  }

  // Whether the region is read in parts, because it is too large for one read or too sparse (kMinDensity).
  bool ShouldSplit() const {
    const int64_t span = end() - begin();
    if (run_bytes_ == bytes()) return span > kReadBytes && region_.elements() > 1;
    return span > kReadBytes || (bytes() * kMinDensity < span && run_bytes_ >= kMinSparseRunBytes);
  }
  // The two halves of the region along the first dimension that has more than one index.
  std::pair<Region, Region> Split() const {
    int64_t d = 0;
    while (Size(region_, d) == 1) ++d;
    Box low = region_, high = region_;
    low.hi[d] = high.lo[d] = region_.lo[d] + Size(region_, d) / 2;
    return {Region(std::move(low), from_, to_, width_), Region(std::move(high), from_, to_, width_)};
  }

  // `bytes` are those of the piece from begin() to end().
  void Copy(absl::Span<const std::byte> bytes, absl::Span<std::byte> out) const {
    const int64_t first = begin();
    Dims index = region_.lo;
    while (true) {
      std::memcpy(out.data() + PositionIn(to_, index) * width_,
                  bytes.data() + PositionIn(from_, index) * width_ - first, run_bytes_);
      int64_t d = run_ - 1;
      for (; d >= 0 && ++index[d] == region_.hi[d]; --d) index[d] = region_.lo[d];
      if (d < 0) return;
    }
  }

 private:
  static int64_t Size(const Box& box, int64_t d) { return box.hi[d] - box.lo[d]; }

  Box region_;
  Box from_;  // The box of the piece.
  Box to_;    // The box of the result.
  int64_t width_;
  int64_t run_ = 0;
  int64_t run_bytes_ = 0;
};

// One BoxRead in the form in which its tensor is stored.
struct Request {
  const StoredTensor* stored;
  Box box;
  absl::Span<std::byte> out;
};

absl::StatusOr<Request> Resolve(const StoredTensor& stored, const BoxRead& read) {
  Request request{&stored, read.box, read.out};
  const Shape& shape = stored.shape;
  const int64_t width = ByteWidth(read.type);
  if (shape.type != read.type && shape.type == tensor::ElementType::kU8 && width > 1) {
    request.box.lo.push_back(0);
    request.box.hi.push_back(width);
  } else if (shape.type != read.type && shape.type != tensor::ElementType::kU8) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", shape.ToString(), ", expected elements of type ", tensor::ToString(read.type)));
  }
  if (!tensor::IsInside(request.box, shape)) {
    return absl::OutOfRangeError(
        absl::StrCat("found box ", read.box.ToString(), ", expected one inside ", shape.ToString()));
  }
  const int64_t bytes = request.box.elements() * ByteWidth(shape.type);
  if (bytes != std::ssize(request.out)) {
    return absl::InvalidArgumentError(absl::StrCat("found memory of ", request.out.size(), " bytes, expected ", bytes));
  }
  return request;
}

void AddRegion(const Region& region, int64_t piece_begin, absl::Span<std::byte> out, std::vector<SpanRead>* spans) {
  if (region.ShouldSplit()) {
    const auto [low, high] = region.Split();
    AddRegion(low, piece_begin, out, spans);
    AddRegion(high, piece_begin, out, spans);
    return;
  }
  spans->push_back({piece_begin + region.begin(), piece_begin + region.end(),
                    [region, out](absl::Span<const std::byte> bytes) { region.Copy(bytes, out); }});
}

// Adds the reads of a request to the reads of each file.
absl::Status AddRequest(const Request& request, std::vector<std::vector<SpanRead>>* spans) {
  int64_t missing = request.box.elements();
  if (missing == 0) return absl::OkStatus();
  for (const StoredPiece& piece : request.stored->pieces) {
    Box both = Intersect(request.box, piece.box);
    const int64_t elements = both.elements();
    if (elements == 0) continue;
    missing -= elements;
    AddRegion(Region(std::move(both), piece.box, request.box, ByteWidth(request.stored->shape.type)), piece.begin,
              request.out, &(*spans)[piece.file]);
  }
  if (missing == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("found pieces that have all but ", missing, " elements of the box ", request.box.ToString()));
}

}  // namespace

absl::Status TensorSource::Read(absl::Span<const BoxRead> reads) const {
  std::vector<std::vector<SpanRead>> spans(files_.size());
  for (const BoxRead& read : reads) {
    const auto found = tensors_.find(read.tensor);
    if (found == tensors_.end()) {
      return absl::NotFoundError(absl::StrCat("\"", read.tensor, "\": found no tensor of this name"));
    }
    const absl::StatusOr<Request> request = Resolve(found->second, read);
    absl::Status status = request.status();
    if (status.ok()) status = AddRequest(*request, &spans);
    if (!status.ok()) return Annotate(status, absl::StrCat("\"", read.tensor, "\""));
  }
  for (const int64_t file : Indices(files_)) {
    XLAD_RETURN_IF_ERROR(ReadSpans(*files_[file], std::move(spans[file])));
  }
  for (const BoxRead& read : reads) tensor::FromStored(read.type, read.out);
  return absl::OkStatus();
}

std::string TensorSource::Header() const {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const auto& [name, tensor] : tensors_) shapes.emplace_back(name, tensor.shape);
  return tensor::SafetensorsHeader(shapes);
}

absl::Status TensorSource::CheckShape(const std::string& name, const Shape& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return absl::NotFoundError(absl::StrCat("\"", name, "\": found no tensor of this name"));
  }
  const Shape& stored = found->second.shape;
  if (stored == shape || tensor::IsStoredAsBytes(stored, shape)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\": found ", stored.ToString(), ", expected ", shape.ToString()));
}

absl::StatusOr<tensor::SafetensorsIndex> ReadSafetensorsIndex(RangeReader& reader, const std::string& name) {
  XLAD_ASSIGN_OR_RETURN(const std::string start, ReadString(reader, 0, std::min<int64_t>(8, reader.size())));
  uint64_t header_bytes = 0;
  if (start.size() == 8) std::memcpy(&header_bytes, start.data(), 8);
  // If the length is too large for the file, the parser reports the error.
  const int64_t keep = header_bytes > static_cast<uint64_t>(tensor::kMaxSafetensorsHeaderBytes)
                           ? std::ssize(start)
                           : std::min(reader.size(), static_cast<int64_t>(header_bytes) + 8);
  XLAD_ASSIGN_OR_RETURN(const std::string header, ReadString(reader, 0, keep));
  absl::StatusOr<tensor::SafetensorsIndex> index = tensor::ParseSafetensorsIndex(header, reader.size());
  if (!index.ok()) return Annotate(index.status(), name);
  return index;
}

absl::StatusOr<std::shared_ptr<TensorSource>> OpenSafetensors(std::vector<std::shared_ptr<RangeReader>> files,
                                                              const std::vector<std::string>& names) {
  std::map<std::string, StoredTensor> tensors;
  for (const int64_t file : Indices(files)) {
    XLAD_ASSIGN_OR_RETURN(const tensor::SafetensorsIndex index, ReadSafetensorsIndex(*files[file], names[file]));
    for (const auto& [name, entry] : index) {
      StoredTensor& whole = tensors[name];
      Box box = FullBox(entry.shape);
      if (whole.pieces.empty()) {
        whole.shape = entry.shape;
      } else {
        Shape rest = entry.shape;
        if (!rest.dims.empty() && !whole.shape.dims.empty()) rest.dims[0] = whole.shape.dims[0];
        if (rest.dims.empty() || !(rest == whole.shape)) {
          return absl::InvalidArgumentError(absl::StrCat(names[file], ": found \"", name, "\" of shape ",
                                                         entry.shape.ToString(), ", expected more rows of ",
                                                         whole.shape.ToString(), " as in the files before it"));
        }
        // A tensor without elements may have very many rows in each file, so their sum may overflow.
        absl::StatusOr<int64_t> elements = absl::InvalidArgumentError("found more than 2^63-1 rows in all files");
        if (!__builtin_add_overflow(whole.shape.dims[0], entry.shape.dims[0], &rest.dims[0])) {
          elements = tensor::CheckedElements(rest.type, rest.dims);
        }
        if (!elements.ok()) return Annotate(elements.status(), absl::StrCat(names[file], ": found \"", name, "\""));
        box.lo[0] = whole.shape.dims[0];
        box.hi[0] = rest.dims[0];
        whole.shape = std::move(rest);
      }
      whole.pieces.push_back({std::move(box), file, entry.begin});
    }
  }
  return std::make_shared<TensorSource>(std::move(files), std::move(tensors));
}

}  // namespace xlad::storage
