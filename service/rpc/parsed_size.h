// Bounds the memory of a message before it is parsed: two bytes of a message can become an object of 64 bytes.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>

#include "absl/strings/string_view.h"

namespace xlad::service {

// Estimates the bytes of memory that a message of this type takes, which is parsed from `serialized`. Stops when they
// are more than `max_bytes`. Bytes that cannot be parsed count only up to the place at which a parser stops.
int64_t ParsedBytes(int64_t max_bytes, absl::string_view serialized, const google::protobuf::Descriptor& type);

}  // namespace xlad::service
