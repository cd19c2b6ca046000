// Randomness as an interface: job ids, jitter and fault injection replay from a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace xlad {

class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t Next() = 0;
  // Uniform in [0, n); n > 0. The bias is below 2^-32 for every n below 2^32.
  uint64_t Below(uint64_t n) { return Next() % n; }
  // Uniform in [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // `bytes` random bytes as lower-case hex.
  std::string Hex(int bytes);
};

// From the operating system. Thread-safe.
std::unique_ptr<Random> SystemRandom();
// SplitMix64 (Steele, Lea, Flood 2014): the same sequence for the same seed. Not thread-safe.
std::unique_ptr<Random> SeededRandom(uint64_t seed);

}  // namespace xlad
