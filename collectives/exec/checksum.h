// Checksums of messages. A receiver uses them to detect payloads that were changed on the network.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "collectives/exec/transport.h"

namespace xlad::collectives {

// Returns a checksum of the concatenation of the pieces. It does not depend on how the payload is split into pieces.
// It is never 0, because 0 means that a message has no checksum.
uint32_t PayloadChecksum(absl::Span<const ConstPiece> pieces);

}  // namespace xlad::collectives
