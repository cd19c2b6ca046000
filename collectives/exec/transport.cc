#include "collectives/exec/transport.h"

#include "absl/strings/str_format.h"

namespace xlad::collectives {

std::string DescribeMessage(const MessageHeader& header, int64_t bytes) {
  return absl::StrFormat("collective %d (schedule %016x), step %d, iteration %x, run %d, message %d of %d bytes",
                         header.spec, header.schedule_hash, header.step, header.iteration, header.sequence,
                         header.index, bytes);
}

}  // namespace xlad::collectives
