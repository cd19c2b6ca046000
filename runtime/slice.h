// A part of an allocation of an executable.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::runtime {

struct Slice {
  int allocation = 0;  // Index into Executable.allocations.
  int64_t offset = 0;
  int64_t bytes = 0;

  bool operator==(const Slice&) const = default;
};

// InvalidArgument if the slice is not inside an allocation of the executable.
absl::StatusOr<Slice> ReadSlice(const Executable& executable, const BufferSlice& proto);

}  // namespace xlad::runtime
