// Hashes of byte strings. Both return the same values on all machines and in all versions. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace xlad {

// SHA-256 as 64 lower-case hex digits: the content hash that names blobs and executables.
std::string Sha256Hex(absl::string_view bytes);

// SHA-256 of bytes that come in pieces: Add any number of times, then FinishHex once.
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

// XXH3 with 64 bits, for tables and the fingerprints of schedules. Must not be used for input that an adversary
// chooses.
uint64_t Hash64(absl::string_view bytes, uint64_t seed = 0);

}  // namespace xlad
