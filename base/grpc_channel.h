// The gRPC connection of clients and workers to a coordinator.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace xlad {

// The address of a coordinator and the files for authentication. Addresses other than loopback require both files: the
// connection is TLS, and each call carries the token.
struct Endpoint {
  std::string address;     // HOST:PORT
  std::string ca_file;     // PEM certificate of the authority that signed the coordinator's, or empty for plaintext.
  std::string token_file;  // The first line is the bearer token. Empty if no token is sent.
};

// A channel that connects when it is first used, detects dead connections within seconds (keepalive) and carries
// messages of up to 64 MiB. Errors: InvalidArgument if the address is malformed, or is not loopback and ca_file is
// empty; and the error of reading ca_file.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const Endpoint& endpoint);

// A channel to the first worker of a session, as MakeChannel makes it. Off loopback the server must have a certificate
// for kSessionHostName that `authority` (PEM) has signed.
inline constexpr char kSessionHostName[] = "xlad-session";
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeSessionChannel(const std::string& address,
                                                                  const std::string& authority);

// The token in a file, or "" if `token_file` is empty. InvalidArgument if the first line is empty.
absl::StatusOr<std::string> ReadToken(const std::string& token_file);

// Adds the token to a call unless it is empty, and a deadline unless timeout_ms is 0.
void PrepareCall(grpc::ClientContext* context, const std::string& token, int64_t timeout_ms);

}  // namespace xlad
