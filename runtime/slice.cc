#include "runtime/slice.h"

#include "absl/strings/str_cat.h"
#include "runtime/index_text.h"

namespace xlad::runtime {

absl::StatusOr<Slice> ReadSlice(const Executable& executable, const BufferSlice& proto) {
  const int allocation = proto.allocation();
  if (allocation < 0 || allocation >= executable.allocations_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found allocation ", allocation, ", expected ", IndexText(executable.allocations_size())));
  }
  const int64_t size = executable.allocations(allocation).bytes();
  if (proto.offset() < 0 || proto.bytes() < 0 || proto.offset() > size || proto.bytes() > size - proto.offset()) {
    return absl::InvalidArgumentError(absl::StrCat("found ", proto.bytes(), " bytes at offset ", proto.offset(),
                                                   ", expected a part of allocation ", allocation, ", which has ",
                                                   size, " bytes"));
  }
  return Slice{allocation, proto.offset(), proto.bytes()};
}

}  // namespace xlad::runtime
