// libFuzzer target that parses arbitrary bytes as a module proto. The parser must return an error for malformed bytes,
// and a valid module must survive round trips.
#include <cstddef>
#include <cstdint>

#include "hlo/testing/fuzz_time.h"
#include "hlo/testing/test_round_trip.h"
#include "hlo/verify/verifier.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const xlad::hlo::FuzzTime time;
  const auto module = xlad::hlo::ParseProto({reinterpret_cast<const char*>(data), size});
  if (!module.ok()) return 0;
  // Programs that the verifier refuses need not round-trip, but must not crash.
  const absl::Status round_trips = xlad::hlo::CheckRoundTrips(**module);
  const bool valid = xlad::hlo::Verify(**module).ok();
  XLAD_CHECK(round_trips.ok() || !valid) << round_trips;
  return 0;
}
