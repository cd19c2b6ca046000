// Random numbers as an interface, so that job ids, jitter and injected faults can be replayed from a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace xlad {

class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t Next() = 0;
  // Returns a uniform number in [0, n) for n > 0. If n is below 2^32, each probability is wrong by a factor of at most
  // 1 + 2^-32.
  uint64_t Below(uint64_t n) { return Next() % n; }
  // Returns a uniform number in [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // Returns `bytes` random bytes as lower-case hex.
  std::string Hex(int bytes);
};

// The mixing function of SplitMix64: a bijection that spreads each bit of x over all bits of the result.
inline uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Returns a source of random numbers from the operating system (getrandom). Thread-safe.
std::unique_ptr<Random> SystemRandom();
// Returns a source of the same sequence for the same seed: SplitMix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014). Not thread-safe.
std::unique_ptr<Random> SeededRandom(uint64_t seed);

}  // namespace xlad
