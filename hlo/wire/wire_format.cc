#include "hlo/wire/wire_format.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace xlad::hlo {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

namespace {

constexpr size_t kMaxStreamBytes = INT_MAX;  // Protobuf's limit for one stream.

}  // namespace

bool WireReader::Varint(uint64_t* value) {
  uint64_t sum = 0;
  for (int shift = 0; shift < 64 && at_ < end_; shift += 7) {
    const uint8_t byte = *at_++;
    const uint64_t bits = byte & 0x7F;
    sum |= bits << shift;
    if (byte < 0x80) {
      *value = sum;
      return true;
    }
  }
  return ok_ = false;
}

bool WireReader::Skip(size_t bytes) {
  ok_ = std::cmp_less_equal(bytes, end_ - at_);
  if (ok_) at_ += bytes;
  return ok_;
}

// Groups are obsolete and rare, so protobuf skips them.
bool WireReader::SkipGroup(const char* start) {
  const size_t bytes = std::min<size_t>(end_ - start, kMaxStreamBytes);
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(start), bytes);
  ok_ = WireFormatLite::SkipField(&stream, stream.ReadTag());
  at_ = start + stream.CurrentPosition();
  return ok_;
}

bool WireReader::NextVarint(uint64_t* value) { return at_ < end_ && Varint(value); }

bool WireReader::Next(Field* field) {
  if (at_ == end_ || !ok_) return false;
  const char* const start = at_;
  uint64_t tag = 0, length = 0;
  if (!Varint(&tag)) return false;
  field->number = tag >> 3;
  field->type = static_cast<Type>(tag & 7);
  ok_ = tag <= UINT32_MAX && field->number != 0;
  if (!ok_) return false;
  switch (field->type) {
    case kVarint:
      if (!Varint(&field->value)) return false;
      break;
    case kBytes:
      if (!Varint(&length) || !Skip(length)) return false;
      field->bytes = absl::string_view(at_ - length, length);
      break;
    case kFixed64:
      if (!Skip(sizeof(uint64_t))) return false;
      break;
    case kFixed32:
      if (!Skip(sizeof(uint32_t))) return false;
      break;
    case kGroup:
      if (!SkipGroup(start)) return false;
      break;
    default:
      return ok_ = false;
  }
  field->whole = absl::string_view(start, at_ - start);
  return true;
}

bool SplitMessage(absl::string_view message, int number, std::vector<absl::string_view>* parts, std::string* rest,
             int dropped) {
  if (rest != nullptr) rest->clear();
  WireReader reader(message);
  WireReader::Field field;
  while (reader.Next(&field)) {
    if (field.Is(number, WireReader::kBytes)) {
      parts->push_back(field.bytes);
    } else if (rest != nullptr && !field.Is(dropped, WireReader::kBytes)) {
      rest->append(field.whole.data(), field.whole.size());
    }
  }
  return reader.ok();
}

bool MergeMessage(absl::string_view bytes, google::protobuf::MessageLite* out) {
  constexpr int kMaxNesting = 500;
  if (bytes.size() > kMaxStreamBytes) return false;
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  stream.SetRecursionLimit(kMaxNesting);
  return out->MergeFromCodedStream(&stream) && stream.ConsumedEntireMessage();
}

}  // namespace xlad::hlo
