// Content hashes: the names of blobs and executables.
#pragma once

#include <cstdint>
#include <string>
#include "absl/strings/string_view.h"

namespace xlad {

// SHA-256 of `bytes` as 64 lower-case hex digits (OpenSSL).
std::string Sha256Hex(absl::string_view bytes);

// Fast 64-bit hash for tables and schedule fingerprints (xxHash3). Stable across machines.
uint64_t Hash64(absl::string_view bytes, uint64_t seed = 0);

}  // namespace xlad
