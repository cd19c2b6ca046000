// How a parameter or result of an executable is distributed over devices, and where it is in device memory.
#pragma once

#include <vector>

#include "proto/executable.pb.h"
#include "runtime/slice.h"
#include "tensor/box.h"

namespace xlad::runtime {

// Example: f32[7] over 4 devices has local shape f32[2] and the boxes [0,2), [2,4), [4,6), [6,7); the second element of
// the last device's shard is padding.
struct EntryLayout {
  tensor::Shape global;
  tensor::Shape local;  // The shape of the padded shard, the same on all devices.
  // The box of each device, without padding. There is a single box if all devices hold the same indices.
  std::vector<tensor::Box> boxes;
  Slice slice;  // The shard in each device's buffers.

  const tensor::Box& BoxOf(int device) const { return boxes.size() == 1 ? boxes[0] : boxes[device]; }
  // The smallest mesh position of a device that holds the same box as `device`.
  int FirstHolder(int device) const;
};

// InvalidArgument if shapes, boxes and buffer are not consistent.
absl::StatusOr<EntryLayout> ReadEntryLayout(const Executable& executable, const EntryValue& value);

// Returns the part of the array that `device` holds, without padding. `shard` is the device's padded shard, in host
// memory.
tensor::Array WithoutPadding(const EntryLayout& layout, int device, absl::Span<const std::byte> shard);

}  // namespace xlad::runtime
