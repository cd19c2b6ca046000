// Bounds the memory of a message before it is parsed: two bytes of a message can become an object of 64 bytes.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace google::protobuf {
class MessageLite;
}

namespace xlad {

// Estimates how many bytes of memory a message of this type takes if it is parsed from `serialized`. Stops when the
// estimate exceeds `max_bytes`. If the message cannot be parsed, only the part before the place at which a parser stops
// counts.
int64_t ParsedBytes(int64_t max_bytes, absl::string_view serialized, const google::protobuf::Descriptor& type);

// The memory that a parsed message may take.
struct ParseLimits {
  int64_t max_parsed_bytes = 160 << 20;
  // Called with the estimated memory of a message that takes more than 2 MiB, before it is parsed. If it returns an
  // error, the message is not parsed. May be null.
  std::function<absl::Status(int64_t parsed_bytes)> reserve;
};

// Parses a message of less than 2 GiB. InvalidArgument if it would take too much memory, or if it cannot be parsed.
absl::Status ParseBounded(absl::string_view serialized, const ParseLimits& limits,
                          google::protobuf::MessageLite* message);

}  // namespace xlad
