#include "collectives/exec/transport.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace xlad::collectives {

std::string DescribeMessage(const MessageHeader& header, int64_t bytes) {
  return absl::StrFormat("collective %d (schedule %016x), step %d, iteration %x, run %d, message %d of %d bytes",
                         header.spec, header.schedule_hash, header.step, header.iteration, header.sequence,
                         header.index, bytes);
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> Transport::Register(absl::Span<std::byte> memory, MemoryKind kind) {
  if (kind == MemoryKind::kHost) return std::make_unique<RegisteredMemory>(memory, kind);
  return absl::UnimplementedError(kind == MemoryKind::kPinned
                                      ? "found pinned host memory, expected host memory that is not pinned"
                                      : "found memory of a device, expected host memory: copy it to the host first");
}

absl::StatusOr<absl::Span<std::byte>> Transport::OpenWindow(int peer, const std::string&) {
  return absl::UnimplementedError(
      absl::StrCat("the memory of ", Describe(peer), " cannot be accessed from here; send messages instead"));
}

}  // namespace xlad::collectives
