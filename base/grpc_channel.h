// One way to reach a coordinator, for clients and workers alike.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace xlad {

// How to reach a coordinator. Off loopback both files are needed: the connection is TLS and carries the token.
struct Endpoint {
  std::string address;     // HOST:PORT
  std::string ca_file;     // PEM certificate that signs the coordinator's; empty: plaintext (loopback only).
  std::string token_file;  // First line is the bearer token; empty: none.
};

// Keepalive finds dead connections within seconds; messages may be up to 64 MiB. The channel connects lazily.
// InvalidArgument where the address is off loopback without TLS, or a file cannot be read.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const Endpoint& endpoint);

// Reads the token of an endpoint; empty where it has none.
absl::StatusOr<std::string> ReadToken(const std::string& token_file);

// Puts the token (if any) and the deadline (0: none) on a call.
void PrepareCall(grpc::ClientContext* context, const std::string& token, int64_t timeout_ms);

}  // namespace xlad
