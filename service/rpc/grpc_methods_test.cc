// The handlers of the coordinator's calls, without a server.
#include "service/rpc/grpc_methods.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/testing/test_folder.h"
#include "proto/protocol.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "service/state/messages.h"
#include "service/testing/whole_message.h"

namespace xlad::service {
namespace {

// A call with one request. Calls of CheckClient return an error, beginning with call number `gone_from`. Before that,
// the client leaves only if Leave is called.
class StreamOfAGoneClient final : public CallStream {
 public:
  explicit StreamOfAGoneClient(const google::protobuf::Message& request, int gone_from = 1)
      : request_(request), gone_from_(gone_from) {}
  absl::StatusOr<bool> Read(google::protobuf::Message* message) override {
    message->CopyFrom(request_);
    return true;
  }
  void ReadAhead() override {}
  absl::Status Write(const google::protobuf::MessageLite&) override { return absl::OkStatus(); }
  absl::Status CheckClient() override {
    return ++checks < gone_from_ ? absl::OkStatus() : absl::CancelledError("the client left");
  }
  void SetOnGone(std::function<void()> on_gone) override {
    const std::lock_guard lock(mutex_);
    on_gone_ = std::move(on_gone);
  }
  const CallerAccess& access() const override { return access_; }
  absl::Status CheckJob(const std::string&) override { return absl::OkStatus(); }

  // The client leaves while the handler waits for another server. May be called on any thread.
  void Leave() {
    const std::lock_guard lock(mutex_);
    if (on_gone_) std::exchange(on_gone_, nullptr)();
  }

  int checks = 0;

 private:
  const google::protobuf::Message& request_;
  const int gone_from_;
  const CallerAccess access_;
  std::mutex mutex_;  // Guards on_gone_.
  std::function<void()> on_gone_;
};

// The first worker of a session. It does not answer FreeArrays.
class StuckWorker final : public Outbox, public SessionWorker::CallbackService {
 public:
  StuckWorker() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    XLAD_CHECK(server_ != nullptr);
  }
  // Registers with the engine, waits until a session is placed on this worker, and reports that the session runs.
  void ServeSession(Engine* engine) {
    const ConnectionId connection = engine->Attach(this);
    WorkerMessage registration;
    registration.mutable_register_()->set_worker_id("w");
    registration.mutable_register_()->set_incarnation(1);
    registration.mutable_register_()->set_devices(1);
    registration.mutable_register_()->set_protocol(kProtocol);
    engine->OnMessage(connection, registration);
    WorkerMessage ready;
    SetAttempt(launched_.get_future().get(), ready.mutable_ready());
    ready.mutable_ready()->set_session_address(absl::StrCat("127.0.0.1:", port_));
    engine->OnMessage(connection, ready);
  }

  void Send(const CoordinatorMessage& message, std::shared_ptr<const std::string> common) override {
    const CoordinatorMessage whole = WholeOf({ConnectionId(), message, std::move(common)});
    if (whole.has_launch() && !std::exchange(has_launched_, true)) launched_.set_value(AttemptOf(whole.launch()));
  }
  void Close() override {}

  grpc::ServerUnaryReactor* FreeArrays(grpc::CallbackServerContext*, const FreeArraysRequest*,
                                       FreeArraysResponse*) override {
    class Unanswered final : public grpc::ServerUnaryReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    on_call();
    return new Unanswered;
  }

  std::function<void()> on_call;  // Called when FreeArrays has arrived. Must be set before FreeArrays is called.

 private:
  int port_ = 0;
  bool has_launched_ = false;
  std::promise<AttemptId> launched_;
  std::unique_ptr<grpc::Server> server_;
};

std::unique_ptr<Engine> StartEngine(const std::string& data_folder) {
  EngineOptions options;
  options.data_folder = data_folder;
  options.program_path = "/bin/false";
  options.coordinator.lost_ms = 600'000;  // The workers of these tests send no heartbeats.
  auto engine = Engine::Start(options);
  XLAD_CHECK(engine.ok());
  (*engine)->SetChangeListener([] {});
  return *std::move(engine);
}

// All of a blob without checksums is read before its first byte is sent.
TEST(GoneClient, EndsTheReadingOfABlobWithoutChecksums) {
  const TestFolder folder;
  const std::string data_folder = JoinPath(folder.path(), "data");
  const auto engine = StartEngine(data_folder);
  const std::string digest = *engine->blobs().Put(std::string(1000, 'x'));
  const std::string sums = JoinPath(data_folder, absl::StrCat("blobs/", digest, ".sums"));
  ASSERT_TRUE(RealFileSystem().Exists(sums));
  ASSERT_TRUE(RealFileSystem().WriteAtomically(sums, "damaged").ok());
  HandlerPools pools;
  const CallTable table = MakeCallTable({.engine = engine.get(), .pools = &pools});
  GetBlobRequest whole;
  whole.set_digest(digest);
  GetBlobRangeRequest range;
  range.set_digest(digest);
  range.set_size(10);
  const std::pair<const char*, const google::protobuf::Message*> calls[] = {{"GetBlob", &whole},
                                                                            {"GetBlobRange", &range}};
  for (const auto& [name, request] : calls) {
    StreamOfAGoneClient stream(*request);
    const absl::Status status = table.methods.at(name).handler(&stream);
    EXPECT_TRUE(absl::IsCancelled(status)) << name << ": " << status;
    EXPECT_EQ(stream.checks, 1) << name;
  }
  EXPECT_TRUE(engine->blobs().Has(digest)) << "an undamaged blob is kept";
  pools.Stop();
}

TEST(GoneClient, EndsTheWaitForASession) {
  const TestFolder folder;
  const auto engine = StartEngine(JoinPath(folder.path(), "data"));
  OpenSessionRequest open;  // There is no worker, so the session does not run.
  open.set_client_key("waits");
  const auto session = engine->OpenSession(open);
  ASSERT_TRUE(session.ok()) << session.status();
  HandlerPools pools;
  const CallTable table = MakeCallTable({.engine = engine.get(), .pools = &pools});
  LoadProgramRequest load;
  load.set_session_id(session->session_id());
  load.set_program_blob(std::string(64, '0'));
  FreeArraysRequest relayed;
  relayed.set_session_id(session->session_id());
  StreamOfAGoneClient gone(relayed);
  const absl::Status relaying = table.methods.at("FreeArrays").handler(&gone);
  EXPECT_TRUE(absl::IsCancelled(relaying)) << relaying;
  // This client leaves while the call waits. Nothing changes in the engine then.
  StreamOfAGoneClient leaving(load, /*gone_from=*/2);
  const absl::Status loading = table.methods.at("LoadProgram").handler(&leaving);
  EXPECT_TRUE(absl::IsCancelled(loading)) << loading;
  pools.Stop();
}

// A worker answers late if its queue of calls is full, or if an array is the result of a long program.
TEST(GoneClient, EndsACallThatItsWorkerDoesNotAnswer) {
  const TestFolder folder;
  StuckWorker worker;
  const auto engine = StartEngine(JoinPath(folder.path(), "data"));
  OpenSessionRequest open;
  open.set_client_key("key");
  open.add_mesh()->set_size(1);
  const auto session = engine->OpenSession(open);
  ASSERT_TRUE(session.ok()) << session.status();
  int64_t term = 0;
  ASSERT_TRUE(engine->HoldSession(session->session_id(), &term).ok());
  worker.ServeSession(engine.get());
  HandlerPools pools;
  const CallTable table = MakeCallTable({.engine = engine.get(), .pools = &pools});
  FreeArraysRequest request;
  request.set_session_id(session->session_id());
  StreamOfAGoneClient stream(request, /*gone_from=*/std::numeric_limits<int>::max());
  worker.on_call = [&] { stream.Leave(); };
  const absl::Status status = table.methods.at("FreeArrays").handler(&stream);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  pools.Stop();
}

}  // namespace
}  // namespace xlad::service
