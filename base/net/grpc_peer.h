// The address of the other side of a gRPC connection.
#pragma once

#include <string>

#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace xlad {

// Returns "127.0.0.1:4711" for "ipv4:127.0.0.1:4711", and "[::1]:4711" for "ipv6:%5B::1%5D:4711", which are the forms
// that a gRPC context returns.
inline std::string PeerAddress(const std::string& peer) {
  absl::string_view text = peer;
  if (!absl::ConsumePrefix(&text, "ipv4:")) absl::ConsumePrefix(&text, "ipv6:");
  return absl::StrReplaceAll(text, {{"%5B", "["}, {"%5D", "]"}, {"%5b", "["}, {"%5d", "]"}});
}

}  // namespace xlad
