#include "runtime/entry_layout.h"

#include "absl/strings/str_cat.h"
#include "proto/mesh.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

// Reads a box, which must be inside the global shape and no larger than the local one.
absl::StatusOr<tensor::Box> ReadBox(const xlad::Box& proto, const tensor::Shape& global, const tensor::Shape& local) {
  tensor::Box box = tensor::BoxFromWire(proto);
  bool fits = tensor::IsInside(box, global) && local.dims.size() == global.dims.size();
  for (size_t d = 0; fits && d < global.dims.size(); ++d) fits = box.hi[d] - box.lo[d] <= local.dims[d];
  if (fits) return box;
  return absl::InvalidArgumentError(absl::StrCat("found box ", box.ToString(), ", expected one inside ",
                                                 global.ToString(), " and no larger than the shard ",
                                                 local.ToString()));
}

}  // namespace

int EntryLayout::FirstHolder(int device) const {
  int first = 0;
  while (first < device && !(BoxOf(first) == BoxOf(device))) ++first;
  return first;
}

absl::StatusOr<EntryLayout> ReadEntryLayout(const Executable& executable, const EntryValue& value) {
  EntryLayout layout;
  XLAD_ASSIGN_OR_RETURN(layout.global, tensor::CheckedShapeFromWire(value.global()));
  XLAD_ASSIGN_OR_RETURN(layout.local, tensor::CheckedShapeFromWire(value.local()));
  XLAD_ASSIGN_OR_RETURN(layout.slice, ReadSlice(executable, value.buffer()));
  if (layout.slice.bytes < layout.local.bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("found a buffer of ", layout.slice.bytes,
                                                   " bytes, expected at least ", layout.local.bytes(), " for ",
                                                   layout.local.ToString()));
  }
  const int64_t devices = NumDevices(executable.mesh());
  if (value.boxes_size() != 1 && value.boxes_size() != devices) {
    return absl::InvalidArgumentError(absl::StrCat("found ", value.boxes_size(), " boxes, expected 1 or ", devices));
  }
  for (const xlad::Box& box : value.boxes()) {
    XLAD_ASSIGN_OR_RETURN(layout.boxes.emplace_back(), ReadBox(box, layout.global, layout.local));
  }
  return layout;
}

tensor::Array WithoutPadding(const EntryLayout& layout, int device, absl::Span<const std::byte> shard) {
  const tensor::Box& box = layout.BoxOf(device);
  const tensor::Array padded(layout.local, {shard.begin(), shard.begin() + layout.local.bytes()});
  return tensor::ExtractBox(padded, tensor::AtOrigin(box), box.sizes());
}

}  // namespace xlad::runtime
