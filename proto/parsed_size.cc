#include "proto/parsed_size.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include "absl/strings/str_cat.h"

namespace xlad {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// The memory of a string, a message or an unknown field without its contents, with the allocator's share.
constexpr int64_t kPartBytes = 64;
constexpr int64_t kNumberBytes = 8;
constexpr size_t kCheapBytes = 64 << 10;  // The memory of smaller messages does not matter.
// Messages that take less memory need no reservation, for example the chunks of an upload (1 MiB).
constexpr int64_t kUnreservedBytes = 2 << 20;

class ParsedSize {
 public:
  ParsedSize(google::protobuf::io::CodedInputStream* input, int64_t max_bytes) : input_(input), left_(max_bytes) {}

  // Subtracts the fields up to the end of a message, or up to the end of a group, whose `type` is null. Returns false
  // if no bytes are left, or at bytes that cannot be parsed.
  bool Subtract(const Descriptor* type) {
    while (const uint32_t tag = input_->ReadTag()) {
      const auto wire = WireFormatLite::GetTagWireType(tag);
      if (wire == WireFormatLite::WIRETYPE_END_GROUP) return true;
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const FieldDescriptor* field = type == nullptr ? nullptr : type->FindFieldByNumber(number);
      if (field != nullptr && !IsOf(*field, wire)) field = nullptr;
      const bool is_number = field != nullptr && wire != WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
      if (!is_number) left_ -= kPartBytes;
      if (is_number && field->is_repeated()) left_ -= kNumberBytes;
      if (left_ < 0 || !SubtractValue(field, wire, tag)) return false;
    }
    return true;
  }

  int64_t left() const { return left_; }  // Less than 0 if all bytes are used up.

 private:
  // Whether a parser takes a value of this wire type as the field's. Otherwise it keeps it as an unknown field.
  static bool IsOf(const FieldDescriptor& field, WireFormatLite::WireType wire) {
    const auto type = static_cast<WireFormatLite::FieldType>(field.type());
    return wire == WireFormatLite::WireTypeForFieldType(type) ||
           (wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED && field.is_packable());
  }

  bool SubtractValue(const FieldDescriptor* field, WireFormatLite::WireType wire, uint32_t tag) {
    if (wire == WireFormatLite::WIRETYPE_START_GROUP) {
      const bool parsed = input_->IncrementRecursionDepth() && Subtract(nullptr);
      input_->DecrementRecursionDepth();
      return parsed;
    }
    if (wire != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) return WireFormatLite::SkipField(input_, tag);
    int length = 0;
    if (!input_->ReadVarintSizeAsInt(&length)) return false;
    if (field == nullptr || field->message_type() == nullptr) {
      // A packed number of variable length has at least one byte.
      const bool has_varints =
          field != nullptr && field->is_packable() && IsOf(*field, WireFormatLite::WIRETYPE_VARINT);
      left_ -= length * (has_varints ? kNumberBytes : 1);
      return left_ >= 0 && input_->Skip(length);
    }
    const auto [limit, depth_left] = input_->IncrementRecursionDepthAndPushLimit(length);
    return depth_left >= 0 && Subtract(field->message_type()) && input_->DecrementRecursionDepthAndPopLimit(limit);
  }

  google::protobuf::io::CodedInputStream* const input_;
  int64_t left_;
};

}  // namespace

int64_t ParsedBytes(int64_t max_bytes, absl::string_view serialized, const Descriptor& type) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(serialized.data()),
                                               static_cast<int>(serialized.size()));
  ParsedSize size(&input, max_bytes);
  size.Subtract(&type);
  return max_bytes - size.left();
}

absl::Status ParseBounded(absl::string_view serialized, const ParseLimits& limits,
                          google::protobuf::MessageLite* message) {
  if (serialized.size() > kCheapBytes) {
    const auto* types = google::protobuf::DescriptorPool::generated_pool();
    const Descriptor* type = types->FindMessageTypeByName(message->GetTypeName());
    const int64_t parsed_bytes = ParsedBytes(limits.max_parsed_bytes, serialized, *type);
    if (parsed_bytes > limits.max_parsed_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("found a ", message->GetTypeName(), " of ", serialized.size(),
                                                     " bytes that takes more than ", limits.max_parsed_bytes,
                                                     " bytes of memory, expected shorter lists"));
    }
    if (limits.reserve && parsed_bytes > kUnreservedBytes) {
      if (absl::Status reserved = limits.reserve(parsed_bytes); !reserved.ok()) return reserved;
    }
  }
  if (message->ParseFromArray(serialized.data(), static_cast<int>(serialized.size()))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("found ", serialized.size(), " bytes that cannot be parsed as ", message->GetTypeName()));
}

}  // namespace xlad
