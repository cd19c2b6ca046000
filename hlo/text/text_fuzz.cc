// libFuzzer target that parses arbitrary bytes as HLO text. The parser must return an error for malformed text, and a
// valid module must survive round trips.
#include <cstddef>
#include <cstdint>

#include "hlo/testing/fuzz_time.h"
#include "hlo/testing/test_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const xlad::hlo::FuzzTime time;
  xlad::hlo::CheckRead(xlad::hlo::ParseText({reinterpret_cast<const char*>(data), size}));
  return 0;
}
