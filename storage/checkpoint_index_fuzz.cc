// libFuzzer target: arbitrary bytes as the index of a checkpoint, as JSON and as the message itself. Invalid input must
// be an error. A valid index must be the same after it is written and read again.
#include <google/protobuf/util/message_differencer.h>

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
  // SerializeIndex sets these two fields. JSON has no unknown fields.
  index.set_format_version(again->format_version());
  index.set_index_sha256(again->index_sha256());
  index.DiscardUnknownFields();
  XLAD_CHECK(google::protobuf::util::MessageDifferencer::Equals(index, *again)) << *written;
  return 0;
}
