// libFuzzer target: arbitrary bytes as the index of a checkpoint, as JSON and as the message itself. Bad ones are
// errors; good ones survive being written again.
#include <cstddef>
#include <cstdint>

#include "storage/checkpoint_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)xlad::storage::ParseIndex(bytes);
  xlad::v1::CheckpointIndex index;
  if (!index.ParseFromArray(data, static_cast<int>(size)) || !xlad::storage::CheckIndex(index).ok()) return 0;
  const auto written = xlad::storage::SerializeIndex(index);
  if (!written.ok()) return 0;
  const auto again = xlad::storage::ParseIndex(*written);
  XLAD_CHECK(again.ok()) << again.status();
  return 0;
}
