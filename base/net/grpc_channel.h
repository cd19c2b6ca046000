// gRPC channels: from clients and workers to a coordinator, and to the first worker of a session.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace xlad {

// The address of a coordinator and the files for authentication. A coordinator whose address is not loopback requires
// both files: the connection then uses TLS, and each call carries the token.
struct Endpoint {
  std::string address;  // HOST:PORT
  // The PEM certificate of the authority that signed the coordinator's certificate, or empty for plaintext.
  std::string ca_file;
  std::string token_file;  // A file whose first line is the bearer token, or empty if no token is sent.
};

// Returns a channel that connects when it is first used, detects dead connections within seconds (keepalive) and
// carries messages of up to 64 MiB. InvalidArgument if the address is malformed, or if it is not loopback and ca_file
// is empty. Otherwise the error of reading ca_file.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const Endpoint& endpoint);

// Returns the advice that follows the error of a coordinator that cannot be reached. It is empty unless the endpoint
// has no TLS and a program accepts connections at its address. A coordinator that serves other machines does, and
// closes connections without TLS.
std::string AdviceToJoin(const Endpoint& coordinator);

// The host name in the certificate of the first worker of a session.
inline constexpr char kSessionHostName[] = "xlad-session";

// Returns a channel to the first worker of a session, with the same properties as a channel of MakeChannel. If
// `authority` (PEM) is not empty, the channel uses TLS, and the server must have a certificate for kSessionHostName
// that this authority has signed. If it is empty, the channel is plaintext. InvalidArgument if the address is
// malformed, or if it is not loopback and `authority` is empty.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeSessionChannel(const std::string& address,
                                                                  const std::string& authority);

// Returns the token in a file, or "" if `token_file` is empty. InvalidArgument if the first line is empty.
absl::StatusOr<std::string> ReadToken(const std::string& token_file);

// The token in a file that may be replaced while the process runs. Thread-safe.
class TokenFile {
 public:
  // Reads the file. Errors as in ReadToken. With an empty path, the token is "".
  static absl::StatusOr<std::shared_ptr<TokenFile>> Open(const std::string& path);
  // A token without a file.
  explicit TokenFile(std::string token) : token_(std::move(token)) {}

  // The present token. The file is read again at most once per second. While it cannot be read, the last token remains.
  std::string Token();
  // Reads the file and returns whether its token differs from `refused`, which the server did not accept.
  bool HasOther(const std::string& refused);

 private:
  void Read();  // mutex_ must be held.

  std::string path_;
  std::mutex mutex_;  // Guards all following members.
  std::string token_;
  std::chrono::steady_clock::time_point read_;
};

// Adds the token to a call unless the token is empty, and a deadline unless timeout_ms is 0.
void PrepareCall(grpc::ClientContext* context, const std::string& token, int64_t timeout_ms);

}  // namespace xlad
