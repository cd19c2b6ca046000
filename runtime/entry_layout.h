// How a parameter or result of an executable lies on the devices: who holds which part of it, and where in memory.
#pragma once

#include <vector>

#include "proto/executable.pb.h"
#include "runtime/step_program.h"
#include "tensor/box.h"

namespace xlad::runtime {

struct EntryLayout {
  tensor::Shape global;
  tensor::Shape local;             // Padded shard, equal on all devices.
  std::vector<tensor::Box> boxes;  // By device; one: the same everywhere.
  Slice slice;

  const tensor::Box& BoxOf(int device) const {
    return boxes.size() == 1 ? boxes[0] : boxes[device];
  }
  // Of all devices that hold the same box as `device`, the lowest.
  int FirstHolder(int device) const;
};

int64_t NumDevices(const Executable& executable);

// InvalidArgument where shapes, boxes and buffer do not hold together.
absl::StatusOr<EntryLayout> ReadEntryLayout(const Executable& executable, const EntryValue& value);

// The part without padding that `device` holds, from the bytes of its padded shard.
tensor::Array WithoutPadding(const EntryLayout& layout, int device, absl::Span<const std::byte> shard);

}  // namespace xlad::runtime
