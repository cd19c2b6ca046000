// Hashes of byte strings. They have the same values on all machines and in all versions. The functions are thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace xlad {

// Returns SHA-256 as 64 lower-case hex digits. Blobs and executables are named by this hash of their contents.
std::string Sha256Hex(absl::string_view bytes);
// Whether `text` has the form of such a hash: 64 lower-case hex digits.
bool IsSha256Hex(absl::string_view text);

// Computes SHA-256 of bytes that arrive in pieces. Call Add any number of times, then FinishHex once. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void Add(absl::string_view bytes);
  std::string FinishHex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns a 64-bit XXH3 hash, for tables, checksums and fingerprints. Must not be used for input that an adversary
// chooses.
uint64_t Hash64(absl::string_view bytes, uint64_t seed = 0);

}  // namespace xlad
