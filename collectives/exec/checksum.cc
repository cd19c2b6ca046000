#include "collectives/exec/checksum.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/string_view.h"
#include "base/hash.h"

namespace xlad::collectives {

// Hashes the payload in blocks of kBlock bytes; the last block is shorter and may be empty. The seed of each block's
// hash is the hash of the preceding blocks.
uint32_t PayloadChecksum(absl::Span<const ConstPiece> pieces) {
  constexpr size_t kBlock = 4096;
  char block[kBlock];
  size_t filled = 0;
  uint64_t hash = 0;
  for (ConstPiece piece : pieces) {
    while (!piece.empty()) {
      const auto* const data = reinterpret_cast<const char*>(piece.data());
      if (filled == 0 && piece.size() >= kBlock) {
        hash = Hash64(absl::string_view(data, kBlock), hash);
        piece.remove_prefix(kBlock);
        continue;
      }
      const size_t bytes = std::min(piece.size(), kBlock - filled);
      std::memcpy(block + filled, data, bytes);
      filled += bytes;
      piece.remove_prefix(bytes);
      if (filled < kBlock) continue;
      hash = Hash64(absl::string_view(block, kBlock), hash);
      filled = 0;
    }
  }
  hash = Hash64(absl::string_view(block, filled), hash);
  return std::max<uint32_t>(1, static_cast<uint32_t>(hash ^ (hash >> 32)));
}

}  // namespace xlad::collectives
