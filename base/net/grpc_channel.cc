#include "base/net/grpc_channel.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdlib>

#include "absl/strings/strip.h"
#include "base/file_system.h"
#include "base/net/network.h"

namespace xlad {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
constexpr std::chrono::seconds kRereadAfter{1};  // The age at which a token is read again.
constexpr int64_t kDialMs = 200;                 // Only for addresses on loopback.
// The time limit of one attempt to connect. gRPC calls it the minimum reconnect backoff.
constexpr int kConnectTimeoutMs = 2000;

// While no call is pending, only gRPC's backup poller notices that a connection has been made. With the poller's
// default interval of 5 s, a channel needs 4 to 8 s to recover after connections were refused for a moment. The
// variable must be set before gRPC is first used.
void PollOften() {
  static const bool once = (setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "50", /*overwrite=*/0), true);
  (void)once;
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // If the coordinator does not answer, a worker notices within these times that the connection is broken. This is
  // before the coordinator counts the worker as lost (10 s). Sent data must be acknowledged within the timeout, which
  // gRPC also sets as TCP_USER_TIMEOUT.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

// gRPC requires the brackets of IPv6.
std::string TargetOf(const HostPort& address) { return JoinHostPort(address.host, address.port); }

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const Endpoint& endpoint) {
  PollOften();
  XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(endpoint.address));
  const std::string target = TargetOf(host_port);
  if (endpoint.ca_file.empty()) {
    if (!IsLoopback(host_port.host)) {
      return absl::InvalidArgumentError(absl::StrCat("found coordinator ", endpoint.address,
                                                     ", which is not on loopback, without TLS, expected --join FILE "
                                                     "(of `xlad token`), or --tls-ca FILE and --token-file FILE"));
    }
    return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), Arguments());
  }
  grpc::SslCredentialsOptions options;
  XLAD_ASSIGN_OR_RETURN(options.pem_root_certs, RealFileSystem().Read(endpoint.ca_file));
  return grpc::CreateCustomChannel(target, grpc::SslCredentials(options), Arguments());
}

std::string AdviceToJoin(const Endpoint& coordinator) {
  if (!coordinator.ca_file.empty() || !TcpNetwork().Dial(coordinator.address, kDialMs).ok()) return "";
  return "; a program accepts connections there, and a coordinator that serves other machines expects --join FILE (of "
         "`xlad token`)";
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeSessionChannel(const std::string& address,
                                                                  const std::string& authority) {
  XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  if (authority.empty() && !IsLoopback(host_port.host)) {
    return absl::InvalidArgumentError(absl::StrCat("found the first worker of a session at ", address,
                                                   ", which is not on loopback, without its authority's certificate, "
                                                   "expected both"));
  }
  if (authority.empty()) return MakeChannel({address, "", ""});
  PollOften();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = authority;
  grpc::ChannelArguments arguments = Arguments();
  arguments.SetSslTargetNameOverride(kSessionHostName);
  return grpc::CreateCustomChannel(TargetOf(host_port), grpc::SslCredentials(options), arguments);
}

absl::StatusOr<std::string> ReadToken(const std::string& token_file) {
  if (token_file.empty()) return std::string();
  XLAD_ASSIGN_OR_RETURN(std::string token, RealFileSystem().Read(token_file));
  token = token.substr(0, token.find('\n'));
  if (token.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the first line of ", token_file, " is empty, expected a token"));
  }
  return token;
}

absl::StatusOr<std::shared_ptr<TokenFile>> TokenFile::Open(const std::string& path) {
  XLAD_ASSIGN_OR_RETURN(std::string token, ReadToken(path));
  auto file = std::make_shared<TokenFile>(std::move(token));
  file->path_ = path;
  file->read_ = std::chrono::steady_clock::now();
  return file;
}

void TokenFile::Read() {
  if (path_.empty()) return;
  read_ = std::chrono::steady_clock::now();
  absl::StatusOr<std::string> token = ReadToken(path_);
  if (token.ok()) token_ = *std::move(token);
}

std::string TokenFile::Token() {
  const std::lock_guard lock(mutex_);
  if (std::chrono::steady_clock::now() - read_ >= kRereadAfter) Read();
  return token_;
}

bool TokenFile::HasOther(const std::string& refused) {
  const std::lock_guard lock(mutex_);
  Read();
  return token_ != refused;
}

void PrepareCall(grpc::ClientContext* context, const std::string& token, int64_t timeout_ms) {
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
  if (timeout_ms > 0) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms));
  }
}

}  // namespace xlad
