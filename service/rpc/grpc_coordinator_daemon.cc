// The coordinator's server: gRPC with an AcceptGate in front. The gate sets limits that gRPC 1.51 does not have: on the
// number of unauthenticated connections, and on how long they stay open.
#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <chrono>
#include <optional>

#include "absl/synchronization/mutex.h"
#include "base/net/accept_gate.h"
#include "base/net/advertised.h"
#include "base/net/grpc_channel.h"
#include "base/net/network.h"
#include "service/credentials/managed_security.h"
#include "service/credentials/renewal.h"
#include "service/engine.h"
#include "service/http/http_pages.h"
#include "service/rpc/coordinator_daemon.h"
#include "service/rpc/grpc_methods.h"

namespace xlad::service {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
// The memory for all connections, and for all messages that are being received or sent. If it is used up, gRPC resets
// streams.
constexpr size_t kMaxGrpcBytes = size_t{128} << 20;
constexpr int kMaxStreamsPerConnection = 1024;
constexpr int kHandshakeMs = 5000;
constexpr int kLookaheadBytes = 1 << 20;
// This interval can be long, because workers and clients send often and detect broken connections themselves.
constexpr int kKeepaliveMs = 30'000;

// The server's credentials and the tokens that it accepts.
struct Protection {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  std::string shared_token;
  std::unique_ptr<security::TokenStore> tokens;  // Null if there are none.
  std::optional<ManagedCertificate> certificate;
};

// The files are read again when they change. Both may be the same file.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const std::string& certificate_file,
                                                        const std::string& key_file) {
  constexpr unsigned kRereadSeconds = 1;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(key_file, certificate_file, kRereadSeconds));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<Protection> Protect(const DaemonOptions& options) {
  XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(options.listen));
  Protection protection;
  XLAD_ASSIGN_OR_RETURN(protection.shared_token, ReadToken(options.token_file));
  if (!options.tls_cert_file.empty()) {
    // Reports an unreadable file now and not at each connection.
    XLAD_RETURN_IF_ERROR(RealFileSystem().Read(options.tls_cert_file).status());
    XLAD_RETURN_IF_ERROR(RealFileSystem().Read(options.tls_key_file).status());
    protection.credentials = TlsCredentials(options.tls_cert_file, options.tls_key_file);
    return protection;
  }
  if (IsLoopback(host_port.host)) {
    protection.credentials = grpc::InsecureServerCredentials();
    return protection;
  }
  XLAD_ASSIGN_OR_RETURN(
      protection.certificate,
      ManagedCertificate::Issue({options.data_folder, options.listen, options.advertise, options.certificate_clock}));
  protection.credentials = TlsCredentials(protection.certificate->file(), protection.certificate->file());
  protection.tokens = std::make_unique<security::TokenStore>(TokenFolder(options.data_folder), &RealClock());
  return protection;
}

void SetLimits(grpc::ServerBuilder* builder) {
  const std::pair<const char*, int> arguments[] = {
      {GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection},
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs},
      // Bandwidth probes would double the packets of a worker that only sends heartbeats. Instead, every stream may
      // send kLookaheadBytes ahead.
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes},
  };
  for (const auto& [name, value] : arguments) builder->AddChannelArgument(name, value);
  // Compression is disabled because a small compressed message could expand to a large one.
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetResourceQuota(grpc::ResourceQuota("coordinator").Resize(kMaxGrpcBytes));
}

class GrpcDaemon final : public CoordinatorDaemon {
 public:
  GrpcDaemon(std::unique_ptr<Engine> engine, Protection protection, int64_t message_ms)
      : protection_(std::move(protection)),
        engine_(std::move(engine)),
        message_limits_(std::chrono::milliseconds(message_ms)),
        router_(MakeCallTable({engine_.get(), &pools_, &worker_messages_, &followers_, &message_limits_}),
                [this](const std::string& peer, const std::string& owner) { gate_->MarkKnown(peer, owner); }) {
    engine_->SetChangeListener([this] { followers_.OnChange(); });
  }
  ~GrpcDaemon() override { Shutdown(); }

  absl::Status Serve(const DaemonOptions& options) {
    const std::string& listen = options.listen;
    XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(listen));
    // Keeps gRPC initialized. Otherwise, gRPC would shut down with the last object that uses it, which takes 10 s if a
    // call was interrupted at that moment.
    static const bool kept = (grpc_init(), true);
    (void)kept;
    // gRPC takes many locks, and Abseil as packaged by Linux distributions would check for deadlocks at each one.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    grpc::ServerBuilder builder;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, protection_.credentials);
    SetLimits(&builder);
    builder.RegisterCallbackGenericService(&router_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("the gRPC server did not start");
    XLAD_ASSIGN_OR_RETURN(gate_, AcceptGate::Listen(listen, AcceptGateOptions(), [this](int fd) { Take(fd); }));
    access_.emplace(AccessControl::Options{gate_->Address(), protection_.shared_token, protection_.tokens.get()});
    router_.SetAccess(&*access_);
    XLAD_ASSIGN_OR_RETURN(const HostPort bound, ParseHostPort(gate_->Address()));
    address_ = JoinHostPort(host_port.host, bound.port);
    if (protection_.tokens != nullptr) {
      XLAD_ASSIGN_OR_RETURN(address_, AddressForOthers(gate_->Address(), options.advertise));
      XLAD_RETURN_IF_ERROR(StoreAddress(options.data_folder, address_));
      renewal_ = std::make_unique<Renewal>(
          "certificate", protection_.certificate->file(), options.certificate_check_ms,
          [certificate = *protection_.certificate]() mutable { return certificate.RenewIfDue(); });
    }
    gate_->Begin();
    return absl::OkStatus();
  }

  // Also serves metrics, health and the dashboard.
  absl::Status ServePages(const std::string& address) {
    XLAD_ASSIGN_OR_RETURN(pages_, ServeHttp(address, engine_.get()));
    return absl::OkStatus();
  }

  std::string Address() const override { return address_; }
  std::string HttpAddress() const override { return pages_ == nullptr ? "" : pages_->Address(); }

  void Shutdown() override {
    if (server_ == nullptr) return;
    renewal_.reset();
    pages_.reset();
    engine_->Stop();
    // A server that shuts down prints an error for each connection that it gets.
    if (gate_ != nullptr) gate_->StopAccepting();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    gate_.reset();
    pools_.Stop();
    server_ = nullptr;
  }

 private:
  void Take(int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor_->HandleNewConnection(&connection);
  }

  // The order of the members matters, because each member may use those declared before it.
  const Protection protection_;
  std::optional<AccessControl> access_;
  const std::unique_ptr<Engine> engine_;
  HandlerPools pools_;
  SerialQueue worker_messages_;
  MessageLimits message_limits_;
  Followers followers_{&message_limits_};
  CallRouter router_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<AcceptGate> gate_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<Renewal> renewal_;            // Null if the daemon did not make the certificate.
  std::unique_ptr<observe::HttpServer> pages_;  // Null without --http.
};

}  // namespace

absl::Status CheckProtection(const DaemonOptions& options) {
  XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(options.listen));
  if (options.tls_cert_file.empty() != options.tls_key_file.empty()) {
    return absl::InvalidArgumentError("found only one of --tls-cert and --tls-key, expected both or neither");
  }
  if (options.tls_cert_file.empty() || !options.token_file.empty() || IsLoopback(host_port.host)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found --tls-cert without --token-file for --listen ", options.listen,
                   ", which is not a loopback address, expected both flags or neither; add --token-file, or remove "
                   "--tls-cert and --tls-key so that xlad makes certificates and tokens itself"));
}

absl::StatusOr<std::unique_ptr<CoordinatorDaemon>> CoordinatorDaemon::Start(const DaemonOptions& options) {
  XLAD_RETURN_IF_ERROR(CheckProtection(options));
  // The engine fails if another coordinator uses the data folder. The certificate there must then not be replaced.
  XLAD_ASSIGN_OR_RETURN(auto engine, Engine::Start({.data_folder = options.data_folder,
                                                    .program_path = options.program_path,
                                                    .keep_idle_build = options.keep_idle_build,
                                                    .cache_folder = options.cache_folder,
                                                    .build_limits = options.build_limits,
                                                    .coordinator = options.coordinator}));
  XLAD_ASSIGN_OR_RETURN(Protection protection, Protect(options));
  auto daemon = std::make_unique<GrpcDaemon>(std::move(engine), std::move(protection), options.message_ms);
  XLAD_RETURN_IF_ERROR(daemon->Serve(options));
  if (!options.http.empty()) XLAD_RETURN_IF_ERROR(daemon->ServePages(options.http));
  return daemon;
}

}  // namespace xlad::service
