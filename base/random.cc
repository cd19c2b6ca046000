#include "base/random.h"

#include <sys/random.h>

#include "base/status.h"

namespace xlad {
namespace {

class GetRandom final : public Random {
 public:
  uint64_t Next() override {
    uint64_t value = 0;
    XLAD_CHECK(getrandom(&value, sizeof value, 0) == sizeof value) << "getrandom did not return 8 bytes";
    return value;
  }
};

class SplitMix64 final : public Random {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next() override { return MixBits(state_ += 0x9E3779B97F4A7C15u); }

 private:
  uint64_t state_;
};

}  // namespace

std::string Random::Hex(int bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (int i = 0; i < bytes; ++i) {
    const uint64_t byte = Next() & 0xff;
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::unique_ptr<Random> SystemRandom() { return std::make_unique<GetRandom>(); }
std::unique_ptr<Random> SeededRandom(uint64_t seed) { return std::make_unique<SplitMix64>(seed); }

}  // namespace xlad
