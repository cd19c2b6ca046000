// Hashes of byte strings. Both return the same values on all machines and in all versions. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace xlad {

// SHA-256 as 64 lower-case hex digits: the content hash that names blobs and executables.
std::string Sha256Hex(absl::string_view bytes);

// XXH3 with 64 bits, for tables and the fingerprints of schedules. Must not be used for input that an adversary
// chooses.
uint64_t Hash64(absl::string_view bytes, uint64_t seed = 0);

}  // namespace xlad
