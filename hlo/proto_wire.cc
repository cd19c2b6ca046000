#include "hlo/proto_wire.h"

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace xlad::hlo {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

bool TakeOut(absl::string_view message, int number, std::vector<absl::string_view>* parts, std::string* rest) {
  if (rest != nullptr) rest->clear();
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size()));
  const uint32_t wanted = WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  while (true) {
    const auto start = static_cast<size_t>(stream.CurrentPosition());
    const uint32_t tag = stream.ReadTag();
    if (tag == 0) return stream.ConsumedEntireMessage();
    if (tag != wanted) {
      if (!WireFormatLite::SkipField(&stream, tag)) return false;
      const absl::string_view field = message.substr(start, static_cast<size_t>(stream.CurrentPosition()) - start);
      if (rest != nullptr) rest->append(field.data(), field.size());
      continue;
    }
    int length = 0;
    if (!stream.ReadVarintSizeAsInt(&length)) return false;
    const auto at = static_cast<size_t>(stream.CurrentPosition());
    if (!stream.Skip(length)) return false;
    parts->push_back(message.substr(at, static_cast<size_t>(length)));
  }
}

bool MergeMessage(absl::string_view bytes, google::protobuf::MessageLite* out) {
  constexpr int kMostNesting = 500;
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  stream.SetRecursionLimit(kMostNesting);
  return out->MergeFromCodedStream(&stream) && stream.ConsumedEntireMessage();
}

}  // namespace xlad::hlo
