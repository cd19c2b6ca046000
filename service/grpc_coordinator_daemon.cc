#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/grpc_channel.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/network.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "service/coordinator_daemon.h"
#include "service/engine.h"

namespace xlad::service {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
constexpr size_t kChunkBytes = 1 << 20;
constexpr int64_t kMaxBlobBytes = int64_t{64} << 30;

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

// Sends messages to one worker: the engine queues them, and one thread per stream writes them.
class StreamOutbox final : public Outbox {
 public:
  using Stream = grpc::ServerReaderWriter<CoordinatorMessage, WorkerMessage>;
  StreamOutbox(grpc::ServerContext* context, Stream* stream)
      : context_(context), writer_([this, stream] { Run(stream); }) {}
  ~StreamOutbox() override {
    Finish();
    writer_.join();
  }

  void Send(const CoordinatorMessage& message) override {
    const std::lock_guard lock(mutex_);
    queue_.push_back(message);
    ready_.notify_one();
  }
  void Close() override { context_->TryCancel(); }

 private:
  void Finish() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    ready_.notify_one();
  }
  void Run(Stream* stream) {
    std::unique_lock lock(mutex_);
    while (true) {
      ready_.wait(lock, [&] { return done_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const CoordinatorMessage message = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      const bool sent = stream->Write(message);
      lock.lock();
      if (!sent) queue_.clear();
    }
  }

  grpc::ServerContext* context_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<CoordinatorMessage> queue_;
  bool done_ = false;
  std::thread writer_;
};

class Server final : public Coordinator::Service {  // It has more than 25 methods: one for each request.
 public:
  Server(Engine* engine, std::string token) : engine_(engine), token_(std::move(token)) {}

  grpc::Status SubmitJob(grpc::ServerContext* context, const SubmitJobRequest* request,
                         SubmitJobResponse* response) override {
    return AnswerWith(context, response, [&] { return engine_->Submit(*request); });
  }
  grpc::Status ListJobs(grpc::ServerContext* context, const ListJobsRequest*, ListJobsResponse* response) override {
    return Answer(context, [&] {
      *response = engine_->ListJobs();
      return absl::OkStatus();
    });
  }
  grpc::Status GetJob(grpc::ServerContext* context, const GetJobRequest* request, JobStatus* response) override {
    return AnswerWith(context, response, [&] { return engine_->GetJob(request->job_id()); });
  }
  grpc::Status CancelJob(grpc::ServerContext* context, const CancelJobRequest* request, CancelJobResponse*) override {
    return Answer(context, [&] { return engine_->Cancel(request->job_id()); });
  }
  grpc::Status JobLog(grpc::ServerContext* context, const JobLogRequest* request, JobLogResponse* response) override {
    return AnswerWith(context, response, [&] { return engine_->Log(request->job_id()); });
  }
  grpc::Status ListWorkers(grpc::ServerContext* context, const ListWorkersRequest*,
                           ListWorkersResponse* response) override {
    return Answer(context, [&] {
      *response = engine_->ListWorkers();
      return absl::OkStatus();
    });
  }
  grpc::Status WatchJob(grpc::ServerContext* context, const WatchJobRequest* request,
                        grpc::ServerWriter<WatchJobResponse>* writer) override {
    return Answer(context, [&] {
      return engine_->Watch(*request, [&](const WatchJobResponse& update) {
        return !context->IsCancelled() && writer->Write(update);
      });
    });
  }
  grpc::Status HasBlobs(grpc::ServerContext* context, const HasBlobsRequest* request,
                        HasBlobsResponse* response) override {
    return Answer(context, [&] {
      for (const std::string& digest : request->digests()) {
        if (!engine_->blobs().Has(digest)) response->add_missing(digest);
      }
      return absl::OkStatus();
    });
  }
  grpc::Status PutBlob(grpc::ServerContext* context, grpc::ServerReader<PutBlobRequest>* reader,
                       PutBlobResponse*) override {
    return Answer(context, [&]() -> absl::Status {
      PutBlobRequest request;
      std::string digest, bytes;
      while (reader->Read(&request)) {
        if (digest.empty()) digest = request.digest();
        bytes += request.chunk();
        if (std::ssize(bytes) > kMaxBlobBytes) {
          return absl::ResourceExhaustedError(absl::StrCat("blob ", digest, " is larger than ", kMaxBlobBytes));
        }
      }
      if (Sha256Hex(bytes) != digest) {
        return absl::DataLossError(absl::StrCat("found ", bytes.size(), " bytes whose SHA-256 is not ", digest));
      }
      return engine_->blobs().Put(bytes).status();
    });
  }
  grpc::Status GetBlob(grpc::ServerContext* context, const GetBlobRequest* request,
                       grpc::ServerWriter<Chunk>* writer) override {
    return Answer(context, [&]() -> absl::Status {
      XLAD_ASSIGN_OR_RETURN(const std::string bytes, engine_->blobs().Get(request->digest()));
      return SendChunks(bytes, writer);
    });
  }
  grpc::Status GetShard(grpc::ServerContext* context, const GetShardRequest* request,
                        grpc::ServerWriter<Chunk>* writer) override {
    return Answer(context, [&]() -> absl::Status {
      XLAD_ASSIGN_OR_RETURN(const std::string bytes, engine_->ReadShard(*request));
      return SendChunks(bytes, writer);
    });
  }
  grpc::Status PutStateShard(grpc::ServerContext* context, grpc::ServerReader<PutStateShardRequest>* reader,
                             PutStateShardResponse*) override {
    return Answer(context, [&]() -> absl::Status {
      PutStateShardRequest header;
      std::string bytes;
      XLAD_RETURN_IF_ERROR(ReadChunks(context, reader, &header, &bytes));
      return engine_->PutStateShard(header, std::move(bytes));
    });
  }
  grpc::Status OpenSession(grpc::ServerContext* context, const OpenSessionRequest* request,
                           OpenSessionResponse* response) override {
    return AnswerWith(context, response, [&] { return engine_->OpenSession(*request); });
  }
  grpc::Status HoldSession(grpc::ServerContext* context, const HoldSessionRequest* request,
                           grpc::ServerWriter<JobStatus>* writer) override {
    return Answer(context, [&] {
      return engine_->HoldSession(*request, [&](const JobStatus& news) {
        return !context->IsCancelled() && (news.id().empty() || writer->Write(news));
      });
    });
  }
  grpc::Status LoadProgram(grpc::ServerContext* context, const LoadProgramRequest* request,
                           LoadProgramResponse* response) override {
    return AnswerWith(context, response, [&] { return engine_->LoadProgram(*request); });
  }
  grpc::Status PutArray(grpc::ServerContext* context, grpc::ServerReader<PutArrayRequest>* reader,
                        PutArrayResponse* response) override {
    return AnswerWith(context, response, [&]() -> absl::StatusOr<PutArrayResponse> {
      PutArrayRequest header;
      std::string bytes;
      XLAD_RETURN_IF_ERROR(ReadChunks(context, reader, &header, &bytes));
      return engine_->PutArray(header.session_id(), header.shape(), bytes);
    });
  }
  grpc::Status CallProgram(grpc::ServerContext* context, const CallProgramRequest* request,
                           CallProgramResponse* response) override {
    return AnswerWith(context, response, [&] { return engine_->CallProgram(*request); });
  }
  grpc::Status GetArray(grpc::ServerContext* context, const GetArrayRequest* request,
                        grpc::ServerWriter<Chunk>* writer) override {
    return Answer(context, [&]() -> absl::Status {
      XLAD_ASSIGN_OR_RETURN(const auto array, engine_->GetArray(*request));
      return SendArray(*array, writer);
    });
  }
  grpc::Status FreeArrays(grpc::ServerContext* context, const FreeArraysRequest* request,
                          FreeArraysResponse*) override {
    return Answer(context, [&] { return engine_->FreeArrays(*request); });
  }
  grpc::Status CloseSession(grpc::ServerContext* context, const CloseSessionRequest* request,
                            CloseSessionResponse*) override {
    return Answer(context, [&] { return engine_->CloseSession(request->session_id()); });
  }
  grpc::Status GetArrayShard(grpc::ServerContext* context, const GetArrayShardRequest* request,
                             grpc::ServerWriter<Chunk>* writer) override {
    return Answer(context, [&]() -> absl::Status {
      XLAD_ASSIGN_OR_RETURN(const tensor::Array part, engine_->ReadArrayShard(*request));
      return SendArray(part, writer);
    });
  }
  grpc::Status PutArrayShard(grpc::ServerContext* context, grpc::ServerReader<PutArrayShardRequest>* reader,
                             PutArrayShardResponse*) override {
    return Answer(context, [&]() -> absl::Status {
      PutArrayShardRequest header;
      std::string bytes;
      XLAD_RETURN_IF_ERROR(ReadChunks(context, reader, &header, &bytes));
      return engine_->PutArrayShard(header, bytes);
    });
  }
  grpc::Status Attach(grpc::ServerContext* context, StreamOutbox::Stream* stream) override {
    return Answer(context, [&] {
      StreamOutbox outbox(context, stream);
      const ConnectionId connection = engine_->Attach(&outbox);
      WorkerMessage message;
      while (stream->Read(&message)) engine_->OnMessage(connection, message);
      engine_->Detach(connection);
      return absl::OkStatus();
    });
  }

 private:
  template <typename Work>
  grpc::Status Answer(grpc::ServerContext* context, const Work& work) {
    if (!token_.empty()) {
      const auto range = context->client_metadata().equal_range("authorization");
      bool known = false;
      for (auto it = range.first; it != range.second; ++it) {
        known = known || std::string(it->second.data(), it->second.size()) == "Bearer " + token_;
      }
      if (!known) {
        return grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                            "found no token or a wrong one, expected the coordinator's (--token-file)");
      }
    }
    return ToGrpc(work());
  }

  // Answers a call that has one response message.
  template <typename Response, typename Work>
  grpc::Status AnswerWith(grpc::ServerContext* context, Response* response, const Work& work) {
    return Answer(context, [&]() -> absl::Status {
      XLAD_ASSIGN_OR_RETURN(*response, work());
      return absl::OkStatus();
    });
  }

  // Reads the first message of an upload into `header` and the chunks of all messages into `bytes`.
  template <typename Request>
  static absl::Status ReadChunks(grpc::ServerContext* context, grpc::ServerReader<Request>* reader, Request* header,
                                 std::string* bytes) {
    if (!reader->Read(header)) return absl::InvalidArgumentError("found an upload without a message");
    Request request = *header;
    do {
      *bytes += request.chunk();
    } while (reader->Read(&request));
    if (context->IsCancelled()) return absl::CancelledError("the upload was cut off");
    header->clear_chunk();
    return absl::OkStatus();
  }

  template <typename Writer>
  static absl::Status SendChunks(absl::string_view bytes, Writer* writer) {
    Chunk chunk;
    for (size_t offset = 0; offset < bytes.size(); offset += kChunkBytes) {
      chunk.set_data(std::string(bytes.substr(offset, kChunkBytes)));
      if (!writer->Write(chunk)) return absl::CancelledError("the reader has gone");
    }
    return absl::OkStatus();
  }
  template <typename Writer>
  static absl::Status SendArray(const tensor::Array& array, Writer* writer) {
    return SendChunks({reinterpret_cast<const char*>(array.bytes().data()), array.bytes().size()}, writer);
  }

  Engine* engine_;
  const std::string token_;
};

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Credentials(const DaemonOptions& options) {
  XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(options.listen));
  if (options.tls_cert_file.empty() != options.tls_key_file.empty()) {
    return absl::InvalidArgumentError("found only one of --tls-cert and --tls-key, expected both or none");
  }
  if (options.tls_cert_file.empty()) {
    if (!IsLoopback(host_port.host)) {
      return absl::InvalidArgumentError(absl::StrCat("found --listen ", options.listen, " off loopback without TLS "
                                                     "and a token, expected --tls-cert, --tls-key and --token-file"));
    }
    return grpc::InsecureServerCredentials();
  }
  if (options.token_file.empty() && !IsLoopback(host_port.host)) {
    return absl::InvalidArgumentError(absl::StrCat("found --listen ", options.listen,
                                                   " off loopback without a token, expected --token-file"));
  }
  grpc::SslServerCredentialsOptions ssl;
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  XLAD_ASSIGN_OR_RETURN(pair.cert_chain, RealFileSystem().Read(options.tls_cert_file));
  XLAD_ASSIGN_OR_RETURN(pair.private_key, RealFileSystem().Read(options.tls_key_file));
  ssl.pem_key_cert_pairs.push_back(pair);
  return grpc::SslServerCredentials(ssl);
}

class GrpcDaemon final : public CoordinatorDaemon {
 public:
  GrpcDaemon(std::unique_ptr<Engine> engine, std::string token)
      : engine_(std::move(engine)), service_(engine_.get(), std::move(token)) {}
  ~GrpcDaemon() override { Shutdown(); }

  absl::Status Serve(const std::string& listen, const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    XLAD_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(listen));
    if (host_port.port != 0) {  // TcpNetwork reports the reason if it cannot listen; gRPC does not.
      XLAD_RETURN_IF_ERROR(TcpNetwork().Listen(listen).status());
    }
    // Keeps gRPC initialized. Otherwise, gRPC shuts down together with its last user, which takes 10 s if a call was
    // interrupted at that moment.
    static const bool kept = (grpc_init(), true);
    (void)kept;
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(listen, credentials, &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 2000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", listen));
    }
    address_ = absl::StrCat(host_port.host, ":", port);
    return absl::OkStatus();
  }

  std::string Address() const override { return address_; }

  void Shutdown() override {
    if (server_ == nullptr) return;
    server_->GetHealthCheckService()->SetServingStatus(false);
    engine_->Stop();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_ = nullptr;
  }

 private:
  const std::unique_ptr<Engine> engine_;
  Server service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorDaemon>> CoordinatorDaemon::Start(const DaemonOptions& options) {
  XLAD_ASSIGN_OR_RETURN(const auto credentials, Credentials(options));
  XLAD_ASSIGN_OR_RETURN(std::string token, ReadToken(options.token_file));
  XLAD_ASSIGN_OR_RETURN(auto engine, Engine::Start({options.data_folder, options.program_path, options.cache_folder,
                                                    options.build_limits, options.coordinator}));
  auto daemon = std::make_unique<GrpcDaemon>(std::move(engine), std::move(token));
  XLAD_RETURN_IF_ERROR(daemon->Serve(options.listen, credentials));
  return daemon;
}

}  // namespace xlad::service
