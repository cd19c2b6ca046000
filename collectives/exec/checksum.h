// Checksums of messages, by which a receiver finds payloads that were changed on their way.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "collectives/exec/transport.h"

namespace xlad::collectives {

// A checksum of the concatenation of the pieces, which does not depend on where the pieces begin. Never 0, which stands
// for a message without a checksum.
uint32_t PayloadChecksum(absl::Span<const ConstPiece> pieces);

}  // namespace xlad::collectives
