// libFuzzer: any bytes as a module's proto. Bad bytes are an error; a good module goes through text and proto.
#include <cstddef>
#include <cstdint>

#include "hlo/test_round_trip.h"
#include "hlo/verifier.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto module = xlad::hlo::ParseProto({reinterpret_cast<const char*>(data), size});
  if (!module.ok()) return 0;
  const absl::Status status = xlad::hlo::CheckRoundTrips(**module);
  XLAD_CHECK(status.ok()) << status;
  (void)xlad::hlo::Verify(**module);
  return 0;
}
