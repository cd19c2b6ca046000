#include "worker/grpc_session_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/support/method_handler.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/net/accept_gate.h"
#include "base/net/grpc_channel.h"
#include "base/net/grpc_peer.h"
#include "base/net/network.h"
#include "base/secret.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "security/certificates.h"
#include "security/session_keys.h"
#include "tensor/wire.h"
#include "worker/grpc_bounded.h"

namespace xlad::worker {
namespace {

using runtime::SessionHost;
using tensor::Array;

constexpr int kMaxMessageBytes = 64 << 20;
constexpr size_t kChunkBytes = 1 << 20;
// Memory for an upload is reserved up to this size, so that smaller uploads are never reallocated.
constexpr size_t kReservedBytes = size_t{1} << 30;
constexpr int64_t kMaxArrayBytes = int64_t{64} << 30;
constexpr int kMaxEntries = 1 << 20;  // The maximum number of entries in a repeated field.
constexpr int kMaxDimensions = 64;
constexpr int kMaxThreads = 256;  // Each waiting call occupies a thread.
// The memory for all messages that are being received or sent. If it is used up, gRPC resets streams.
constexpr size_t kMaxGrpcBytes = size_t{512} << 20;
constexpr char kNoKey[] = "found no key or a wrong key, expected the key of this session that LocateSession returns";

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

template <typename Writer>
void WriteChunks(absl::Span<const std::byte> bytes, Writer* writer) {
  Chunk chunk;
  for (size_t at = 0; at < bytes.size(); at += kChunkBytes) {
    const auto part = bytes.subspan(at, kChunkBytes);
    chunk.set_data(part.data(), part.size());
    if (!writer->Write(chunk)) return;  // The client has disconnected.
  }
}

// Reads the `expected` bytes of an upload, whose first message has been read. An upload of more than kReservedBytes
// reserves the rest of its memory once the client has sent that many. BeginUpload has counted all of it.
template <typename Request, typename Reader>
absl::StatusOr<std::vector<std::byte>> ReadChunks(Bounded<Request>* request, Reader* reader, size_t expected) {
  std::vector<std::byte> bytes;
  bytes.reserve(std::min(expected, kReservedBytes));
  do {
    XLAD_RETURN_IF_ERROR(request->status);
    const std::string& chunk = request->message.chunk();
    if (chunk.size() > expected - bytes.size()) {
      return absl::InvalidArgumentError(absl::StrCat("found more than ", expected, " bytes, expected ", expected,
                                                     ", the size of the array or box in the first message"));
    }
    if (bytes.size() + chunk.size() > bytes.capacity()) bytes.reserve(expected);
    const auto* const data = reinterpret_cast<const std::byte*>(chunk.data());
    bytes.insert(bytes.end(), data, data + chunk.size());
  } while (reader->Read(request));
  if (bytes.size() == expected) return bytes;
  return absl::InvalidArgumentError(absl::StrCat("found ", bytes.size(), " bytes, expected ", expected,
                                                 ", the size of the array or box in the first message"));
}

template <typename Request, typename Reader>
absl::Status ReadFirst(Reader* reader, Bounded<Request>* request) {
  if (!reader->Read(request)) return absl::InvalidArgumentError("found a call without a request, expected one");
  return request->status;
}

absl::StatusOr<tensor::Box> CheckedBox(const Box& wire) {
  if (wire.lo_size() != wire.hi_size() || wire.lo_size() > kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrCat("found a box with ", wire.lo_size(), " lower and ", wire.hi_size(),
                                                   " upper bounds, expected as many of both, at most ",
                                                   kMaxDimensions));
  }
  return tensor::BoxFromWire(wire);
}

absl::StatusOr<tensor::Shape> CheckedShape(const ArrayShape& wire) {
  if (wire.dims_size() > kMaxDimensions) {
    return absl::InvalidArgumentError(
        absl::StrCat("found an array with ", wire.dims_size(), " dimensions, expected at most ", kMaxDimensions));
  }
  XLAD_ASSIGN_OR_RETURN(tensor::Shape shape, tensor::CheckedShapeFromWire(wire));
  if (shape.bytes() <= kMaxArrayBytes) return shape;
  return absl::InvalidArgumentError(absl::StrCat("found an array of ", shape.bytes(), " bytes, ", shape.ToString(),
                                                 ", expected at most ", kMaxArrayBytes));
}

absl::Status CheckEntries(absl::string_view field, int entries) {
  if (entries <= kMaxEntries) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": found ", entries, " entries, expected at most ", kMaxEntries));
}

// Checks the tokens of calls and the seals of programs.
class Gate {
 public:
  using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

  explicit Gate(const SessionAccess& access) : access_(access) {
    for (const std::string& worker : access_.followers) {
      keys_[worker] = access_.secret.empty() ? access_.client_key : security::FollowerKey(access_.secret, worker);
    }
  }

  // Checks that the caller may make the call with this name.
  absl::Status Check(const grpc::ServerContext& context, absl::string_view call) const {
    for (const SessionCallRule& rule : SessionCallRules()) {
      if (rule.call != call) continue;
      return rule.caller == SessionCaller::kClient ? CheckClient(context) : CheckFollower(context, std::nullopt);
    }
    return absl::PermissionDeniedError(absl::StrCat("found call ", call, ", expected a call of the session protocol"));
  }
  absl::Status CheckClient(const grpc::ServerContext& context) const {
    if (HasToken(context.client_metadata(), access_.client_key)) return absl::OkStatus();
    return absl::UnauthenticatedError(kNoKey);
  }
  // Whether a call has the key of the client or of any other worker.
  bool HasAnyKey(const Metadata& metadata) const {
    return HasToken(metadata, access_.client_key) ||
           std::any_of(keys_.begin(), keys_.end(), [&](const auto& key) { return HasToken(metadata, key.second); });
  }
  // Accepts any other worker of the session, or only the one with this id.
  absl::Status CheckFollower(const grpc::ServerContext& context, std::optional<std::string> worker) const {
    for (const auto& [id, key] : keys_) {
      if ((!worker.has_value() || *worker == id) && HasToken(context.client_metadata(), key)) return absl::OkStatus();
    }
    return absl::UnauthenticatedError("found no key or a wrong key, expected that of another worker of this session");
  }
  absl::Status CheckSeal(const AddProgramRequest& request) const {
    if (access_.secret.empty()) return absl::OkStatus();
    const std::string expected = security::ProgramSeal(access_.secret, request.executable_digest(), request.plans());
    if (SameSecret(request.seal(), expected)) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(
        "found executable ", request.executable_digest(),
        request.seal().empty() ? " without a seal" : " with a wrong seal",
        ", expected digest, plans and seal of a response of LoadProgram for this session; a client that sends no seals "
        "has an older version of xlad"));
  }

 private:
  static bool HasToken(const Metadata& metadata, const std::string& key) {
    const auto range = metadata.equal_range("authorization");
    return std::any_of(range.first, range.second, [&](const auto& entry) {
      return SameSecret({entry.second.data(), entry.second.size()}, "Bearer " + key);
    });
  }

  const SessionAccess access_;
  std::map<std::string, std::string> keys_;  // Keyed by worker id.
};

// Refuses a call without a key of the session before its messages are read.
class KeyCheck final : public grpc::AuthMetadataProcessor {
 public:
  explicit KeyCheck(const SessionAccess& access) : gate_(access) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata*, OutputMetadata*) override {
    if (gate_.HasAnyKey(metadata)) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, kNoKey);
  }

 private:
  const Gate gate_;
};

// The service SessionWorker. It is not derived from the generated class, which parses requests of any size.
class Service final : public grpc::Service {
 public:
  // Calls `on_authenticated` with the peer of every call that is permitted: "127.0.0.1:4711".
  Service(const SessionAccess& access, SessionHost* host, SessionServer::ReadExecutable read,
          std::function<void(const std::string& peer)> on_authenticated)
      : gate_(access), host_(host), read_(std::move(read)), on_authenticated_(std::move(on_authenticated)) {
    AddUnary("/xlad.v1.SessionWorker/AddProgram", &Service::AddProgram);
    AddUnary("/xlad.v1.SessionWorker/CallProgram", &Service::CallProgram);
    AddUnary("/xlad.v1.SessionWorker/FreeArrays", &Service::FreeArrays);
    AddUpload("/xlad.v1.SessionWorker/PutArray", &Service::PutArray);
    AddUpload("/xlad.v1.SessionWorker/PutArrayShard", &Service::PutArrayShard);
    AddDownload("/xlad.v1.SessionWorker/GetArray", &Service::GetArray);
    AddDownload("/xlad.v1.SessionWorker/GetArrayShard", &Service::GetArrayShard);
    AddFollow("/xlad.v1.SessionWorker/Follow");
  }

 private:
  using Method = grpc::internal::RpcServiceMethod;
  using FollowStream = grpc::ServerReaderWriter<SessionCommand, Bounded<FollowSessionRequest>>;

  // The method is registered as an upload with one message, because gRPC reads the message of a unary call before it
  // calls the handler. Until the handler is called, the AcceptGate does not know that the call is permitted, and it
  // closes the connection after 2 MiB or 15 s.
  template <typename Request, typename Response>
  void AddUnary(const char* path, absl::Status (Service::*method)(const Request&, Response*)) {
    const auto run = [=](Service* service, grpc::ServerContext* context, grpc::ServerReader<Bounded<Request>>* reader,
                         Response* response) {
      return service->Run(context, path, [&]() -> absl::Status {
        Bounded<Request> request;
        XLAD_RETURN_IF_ERROR(ReadFirst(reader, &request));
        return (service->*method)(request.message, response);
      });
    };
    using Handler = grpc::internal::ClientStreamingHandler<Service, Bounded<Request>, Response>;
    AddMethod(new Method(path, Method::CLIENT_STREAMING, new Handler(run, this)));
  }
  template <typename Request, typename Response>
  void AddUpload(const char* path, absl::Status (Service::*method)(grpc::ServerReader<Bounded<Request>>*, Response*)) {
    const auto run = [=](Service* service, grpc::ServerContext* context, grpc::ServerReader<Bounded<Request>>* reader,
                         Response* response) {
      return service->Run(context, path, [&] { return (service->*method)(reader, response); });
    };
    using Handler = grpc::internal::ClientStreamingHandler<Service, Bounded<Request>, Response>;
    AddMethod(new Method(path, Method::CLIENT_STREAMING, new Handler(run, this)));
  }
  template <typename Request>
  void AddDownload(const char* path, absl::Status (Service::*method)(const Request&, grpc::ServerWriter<Chunk>*)) {
    const auto run = [=](Service* service, grpc::ServerContext* context, const Bounded<Request>* request,
                         grpc::ServerWriter<Chunk>* writer) {
      return service->Run(context, path, [&]() -> absl::Status {
        XLAD_RETURN_IF_ERROR(request->status);
        return (service->*method)(request->message, writer);
      });
    };
    using Handler = grpc::internal::ServerStreamingHandler<Service, Bounded<Request>, Chunk>;
    AddMethod(new Method(path, Method::SERVER_STREAMING, new Handler(run, this)));
  }
  void AddFollow(const char* path) {
    const auto run = [=](Service* service, grpc::ServerContext* context, FollowStream* stream) {
      return service->Run(context, path, [&] { return service->SendCommands(context, stream); });
    };
    using Handler = grpc::internal::BidiStreamingHandler<Service, Bounded<FollowSessionRequest>, SessionCommand>;
    AddMethod(new Method(path, Method::BIDI_STREAMING, new Handler(run, this)));
  }

  // Runs `work` if the caller may make the call.
  template <typename Work>
  grpc::Status Run(grpc::ServerContext* context, absl::string_view path, const Work& work) {
    const absl::Status permitted = gate_.Check(*context, path.substr(path.rfind('/') + 1));
    if (!permitted.ok()) return ToGrpc(permitted);
    on_authenticated_(PeerAddress(context->peer()));
    return ToGrpc(work());
  }

  absl::Status AddProgram(const AddProgramRequest& request, AddProgramResponse* response) {
    XLAD_RETURN_IF_ERROR(gate_.CheckSeal(request));
    XLAD_ASSIGN_OR_RETURN(const std::string bytes, read_(request.executable_digest()));
    Executable executable;
    if (!executable.ParseFromString(bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("found blob ", request.executable_digest(), ", which is not an executable"));
    }
    XLAD_ASSIGN_OR_RETURN(const int64_t program, host_->AddProgram(executable, request));
    response->set_program(program);
    return absl::OkStatus();
  }

  absl::Status PutArray(grpc::ServerReader<Bounded<PutArrayRequest>>* reader, PutArrayResponse* response) {
    Bounded<PutArrayRequest> request;
    XLAD_RETURN_IF_ERROR(ReadFirst(reader, &request));
    XLAD_ASSIGN_OR_RETURN(const tensor::Shape shape, CheckedShape(request.message.shape()));
    const std::string key = request.message.request_key();
    XLAD_ASSIGN_OR_RETURN(auto upload, host_->BeginUpload(shape.bytes()));
    XLAD_ASSIGN_OR_RETURN(auto bytes, ReadChunks(&request, reader, shape.bytes()));
    auto array = std::make_shared<Array>(shape, std::move(bytes));
    upload.reset();  // The bytes of `array` are counted from here on, in place of the upload.
    XLAD_ASSIGN_OR_RETURN(const int64_t number, host_->PutArray(std::move(array), key));
    response->set_array(number);
    return absl::OkStatus();
  }

  absl::Status CallProgram(const CallProgramRequest& request, CallProgramResponse* response) {
    XLAD_RETURN_IF_ERROR(CheckEntries("free", request.free_size()));
    XLAD_ASSIGN_OR_RETURN(const std::vector<int64_t> results, host_->Call(request));
    response->mutable_results()->Assign(results.begin(), results.end());
    return absl::OkStatus();
  }

  absl::Status GetArray(const GetArrayRequest& request, grpc::ServerWriter<Chunk>* writer) {
    XLAD_ASSIGN_OR_RETURN(const auto array, host_->GetArray(request.array()));
    WriteChunks(array->bytes(), writer);
    return absl::OkStatus();
  }

  absl::Status FreeArrays(const FreeArraysRequest& request, FreeArraysResponse*) {
    XLAD_RETURN_IF_ERROR(CheckEntries("arrays", request.arrays_size()));
    return host_->FreeArrays({request.arrays().begin(), request.arrays().end()});
  }

  absl::Status GetArrayShard(const GetArrayShardRequest& request, grpc::ServerWriter<Chunk>* writer) {
    XLAD_ASSIGN_OR_RETURN(const tensor::Box box, CheckedBox(request.box()));
    XLAD_ASSIGN_OR_RETURN(const Array part, host_->ReadBox(request.array(), box));
    WriteChunks(part.bytes(), writer);
    return absl::OkStatus();
  }

  absl::Status PutArrayShard(grpc::ServerReader<Bounded<PutArrayShardRequest>>* reader, PutArrayShardResponse*) {
    Bounded<PutArrayShardRequest> request;
    XLAD_RETURN_IF_ERROR(ReadFirst(reader, &request));
    XLAD_ASSIGN_OR_RETURN(const tensor::Box box, CheckedBox(request.message.box()));
    const int64_t array = request.message.array();
    const absl::StatusOr<int64_t> bytes = host_->BytesOf(array, box);
    // The request was a repeated one, so the array is no longer needed.
    if (absl::IsNotFound(bytes.status())) return absl::OkStatus();
    XLAD_RETURN_IF_ERROR(bytes.status());
    XLAD_ASSIGN_OR_RETURN(const auto part, ReadChunks(&request, reader, *bytes));
    host_->WriteBox(array, box, part);
    return absl::OkStatus();
  }

  // Reads the answers of a worker on a separate thread, while this thread sends commands.
  absl::Status SendCommands(grpc::ServerContext* context, FollowStream* stream) {
    Bounded<FollowSessionRequest> request;
    XLAD_RETURN_IF_ERROR(ReadFirst(stream, &request));
    const std::string worker = request.message.worker_id();
    int64_t sent = request.message.received();
    XLAD_RETURN_IF_ERROR(gate_.CheckFollower(*context, worker));
    std::atomic<bool> gone = false;
    host_->Answer(worker, request.message.done());
    std::thread answers([&] {
      while (stream->Read(&request) && request.status.ok()) host_->Answer(worker, request.message.done());
      gone = true;
      host_->Wake();
    });
    absl::Status status;
    while (!gone && status.ok()) {
      const auto commands = host_->CommandsAfter(sent, gone);
      status = commands.status();
      for (size_t i = 0; status.ok() && i < commands->size() && !gone; ++i) {
        if (!stream->Write((*commands)[i])) gone = true;
        sent = (*commands)[i].sequence();
      }
    }
    context->TryCancel();  // Ends the thread's read.
    answers.join();
    return status.ok() ? request.status : status;
  }

  const Gate gate_;
  SessionHost* const host_;
  const SessionServer::ReadExecutable read_;
  const std::function<void(const std::string&)> on_authenticated_;
};

// An AcceptGate accepts the connections, because gRPC 1.51 stops accepting when it has no file descriptor left, and
// does not limit how long a connection may stay without an authenticated call.
class GrpcSessionServer final : public SessionServer {
 public:
  GrpcSessionServer(const SessionAccess& access, SessionHost* host, ReadExecutable read)
      : key_check_(std::make_shared<KeyCheck>(access)),
        service_(access, host, std::move(read), [this](const std::string& peer) { gate_->MarkKnown(peer, ""); }) {}
  ~GrpcSessionServer() override {
    // A server that shuts down prints an error for each connection that it gets.
    if (gate_ != nullptr) gate_->StopAccepting();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    gate_.reset();
  }

  absl::Status Listen(const std::string& listen_host) {
    grpc::ServerBuilder builder;
    XLAD_ASSIGN_OR_RETURN(const auto credentials, CredentialsFor(listen_host));
    credentials->SetAuthMetadataProcessor(key_check_);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetResourceQuota(grpc::ResourceQuota("session").SetMaxThreads(kMaxThreads).Resize(kMaxGrpcBytes));
    const std::pair<const char*, int> arguments[] = {
        // Clients send pings to detect dead connections, and so does this server.
        {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
        {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
        {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
        {GRPC_ARG_KEEPALIVE_TIME_MS, 30'000},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000},
        {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5000},
    };
    for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("the gRPC server of the session did not start");
    auto gate = AcceptGate::Listen(JoinHostPort(listen_host, 0), AcceptGateOptions(), [this](int fd) { Take(fd); });
    if (!gate.ok()) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", listen_host, " for the session: ", gate.status().message()));
    }
    gate_ = *std::move(gate);
    XLAD_ASSIGN_OR_RETURN(const HostPort bound, ParseHostPort(gate_->Address()));
    address_ = JoinHostPort(listen_host, bound.port);
    gate_->Begin();
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }
  std::string authority() const override { return authority_; }

 private:
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CredentialsFor(const std::string& listen_host) {
    // Connections of these credentials are not encrypted. In contrast to insecure credentials, these accept only
    // connections of local addresses, and can check keys before messages are read. Connections of other addresses of
    // loopback, such as 127.0.0.2, use TLS.
    const bool is_local = listen_host == "127.0.0.1" || listen_host == "::1" || listen_host == "localhost";
    if (is_local) return grpc::experimental::LocalServerCredentials(LOCAL_TCP);
    const int64_t now_unix_s = RealClock().WallNs() / kNsPerSecond;
    XLAD_ASSIGN_OR_RETURN(const security::KeyPair authority, security::MakeAuthority(now_unix_s));
    XLAD_ASSIGN_OR_RETURN(const security::KeyPair own,
                          security::IssueServer(authority, {kSessionHostName}, now_unix_s));
    authority_ = authority.certificate;
    grpc::SslServerCredentialsOptions options;
    options.pem_key_cert_pairs.push_back({own.key, own.certificate});
    return grpc::SslServerCredentials(options);
  }

  void Take(int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor_->HandleNewConnection(&connection);
  }

  const std::shared_ptr<KeyCheck> key_check_;
  Service service_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<AcceptGate> gate_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_, authority_;
};

}  // namespace

const std::vector<SessionCallRule>& SessionCallRules() {
  static const auto* const rules = new std::vector<SessionCallRule>{
      {"AddProgram", SessionCaller::kClient},      {"PutArray", SessionCaller::kClient},
      {"CallProgram", SessionCaller::kClient},     {"GetArray", SessionCaller::kClient},
      {"FreeArrays", SessionCaller::kClient},      {"Follow", SessionCaller::kFollower},
      {"GetArrayShard", SessionCaller::kFollower}, {"PutArrayShard", SessionCaller::kFollower},
  };
  return *rules;
}

SessionAccess AccessOf(const LaunchTask& launch, const std::string& worker_id) {
  SessionAccess access{launch.session_key(), launch.session_secret(), {}};
  for (const Peer& peer : launch.peers()) {
    if (peer.worker_id() != worker_id) access.followers.push_back(peer.worker_id());
  }
  return access;
}

absl::StatusOr<std::unique_ptr<SessionServer>> SessionServer::Start(const std::string& listen_host,
                                                                    const SessionAccess& access, SessionHost* host,
                                                                    ReadExecutable read) {
  auto server = std::make_unique<GrpcSessionServer>(access, host, std::move(read));
  XLAD_RETURN_IF_ERROR(server->Listen(listen_host));
  return server;
}

}  // namespace xlad::worker
