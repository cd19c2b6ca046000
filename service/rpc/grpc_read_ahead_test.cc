// Handlers that read ahead, handlers whose client goes away, and handlers that keep large messages.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/net/grpc_channel.h"
#include "base/status.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "service/access.h"
#include "service/rpc/grpc_calls.h"
#include "service/rpc/grpc_message_limits.h"

namespace xlad::service {
namespace {

constexpr int64_t kReadAheadMs = 600'000;  // Longer than the test takes, however busy the machine is.

// Serves the calls of a table to callers with kSharedToken.
constexpr char kSharedToken[] = "the shared token";
class TableServer {
 public:
  explicit TableServer(CallTable table)
      : router_(std::move(table), [](const std::string&, const std::string&) {}),
        access_({"127.0.0.1:1", kSharedToken, nullptr}) {
    router_.SetAccess(&access_);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // Otherwise the window may grow.
    builder.RegisterCallbackGenericService(&router_);
    server_ = builder.BuildAndStart();
    XLAD_CHECK(server_ != nullptr);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  void Shutdown() { server_->Shutdown(); }

 private:
  CallRouter router_;
  AccessControl access_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// The second message is larger than the HTTP/2 window of a call, so the client can send it only if it is read.
TEST(ReadAhead, TheNextMessageArrivesWhileTheHandlerIsBusy) {
  std::promise<void> second_sent;
  std::future<void> sent = second_sent.get_future();
  std::string received;
  HandlerPool pool(1, 1);
  MessageLimits limits(std::chrono::hours(1));
  CallTable table;
  table.message_limits = &limits;
  table.methods["PutBlob"] = {
      &pool, 64 << 20, [&](CallStream* stream) -> absl::Status {
        XLAD_ASSIGN_OR_RETURN(auto request, ReadRequest<PutBlobRequest>(stream));
        received += request.chunk();
        stream->ReadAhead();
        if (sent.wait_for(std::chrono::milliseconds(kReadAheadMs)) != std::future_status::ready) {
          return absl::InternalError("the second message was not read");
        }
        XLAD_RETURN_IF_ERROR(stream->Read(&request).status());
        received += request.chunk();
        return stream->Write(PutBlobResponse());
      }};
  TableServer server(std::move(table));
  const auto stub = Coordinator::NewStub(*MakeChannel({server.address(), "", ""}));
  grpc::ClientContext context;
  PrepareCall(&context, kSharedToken, kReadAheadMs);
  PutBlobResponse response;
  const auto upload = stub->PutBlob(&context, &response);
  PutBlobRequest request;
  request.set_digest(std::string(64, '0'));
  request.set_chunk("first, ");
  EXPECT_TRUE(upload->Write(request));
  const std::string large(3 << 20, 'x');
  request.set_chunk(large);
  EXPECT_TRUE(upload->Write(request));
  second_sent.set_value();
  upload->WritesDone();
  const grpc::Status status = upload->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(received == "first, " + large);
  server.Shutdown();
  pool.Stop();
}

// Calls `handler`. The client leaves as soon as `began` has a value.
void CallAndLeave(std::promise<void>* began, Handler handler) {
  HandlerPool pool(1, 1);
  MessageLimits limits(std::chrono::hours(1));
  CallTable table;
  table.message_limits = &limits;
  table.methods["HasBlobs"] = {&pool, 64 << 20, std::move(handler)};
  TableServer server(std::move(table));
  const auto stub = Coordinator::NewStub(*MakeChannel({server.address(), "", ""}));
  grpc::ClientContext context;
  PrepareCall(&context, kSharedToken, kReadAheadMs);
  std::thread client([&] {
    HasBlobsResponse response;
    EXPECT_EQ(stub->HasBlobs(&context, HasBlobsRequest(), &response).error_code(), grpc::StatusCode::CANCELLED);
  });
  began->get_future().wait();
  context.TryCancel();
  client.join();
  server.Shutdown();
  pool.Stop();
}

// Work that takes long and sends no messages must end with its client.
TEST(GoneClient, EndsTheWorkOfItsHandler) {
  std::promise<void> began;
  absl::Status status;
  CallAndLeave(&began, [&](CallStream* stream) -> absl::Status {
    XLAD_RETURN_IF_ERROR(ReadRequest<HasBlobsRequest>(stream).status());
    status = stream->CheckClient();
    EXPECT_TRUE(status.ok()) << "the client still waits: " << status;
    began.set_value();
    while (status.ok()) {
      std::this_thread::yield();
      status = stream->CheckClient();
    }
    return status;
  });
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST(GoneClient, IsReportedToAHandlerThatWaitsForAnotherServer) {
  std::promise<void> began;
  CallAndLeave(&began, [&](CallStream* stream) -> absl::Status {
    XLAD_RETURN_IF_ERROR(ReadRequest<HasBlobsRequest>(stream).status());
    std::promise<void> gone;
    stream->SetOnGone([&] { gone.set_value(); });
    began.set_value();
    gone.get_future().wait();
    bool is_told_at_once = false;
    stream->SetOnGone([&] { is_told_at_once = true; });
    EXPECT_TRUE(is_told_at_once);
    stream->SetOnGone(nullptr);
    return absl::CancelledError("the client left");
  });
}

// Each message has 1.8 MB and takes 58 MB of memory.
TEST(LargeMessages, AreRefusedWhileOthersOfTheUserTakeTooMuchMemory) {
  std::atomic<int> kept = 0;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  HandlerPool pool(4, 4);
  MessageLimits limits(std::chrono::hours(1));
  CallTable table;
  table.message_limits = &limits;
  table.methods["CallProgram"] = {&pool, 64 << 20, [&](CallStream* stream) -> absl::Status {
                                    CallProgramRequest request;
                                    XLAD_RETURN_IF_ERROR(stream->Read(&request).status());
                                    if (request.arguments_size() > 1) {
                                      ++kept;
                                      released.wait();
                                    }
                                    return stream->Write(CallProgramResponse());
                                  }};
  TableServer server(std::move(table));
  const auto stub = Coordinator::NewStub(*MakeChannel({server.address(), "", ""}));
  const auto call = [&](int arguments) {
    CallProgramRequest request;
    for (int i = 0; i < arguments; ++i) request.add_arguments();
    CallProgramResponse response;
    grpc::ClientContext context;
    PrepareCall(&context, kSharedToken, kReadAheadMs);
    return stub->CallProgram(&context, request, &response);
  };
  constexpr int kMany = 900'000;
  std::thread first([&] { EXPECT_TRUE(call(kMany).ok()); });
  std::thread second([&] { EXPECT_TRUE(call(kMany).ok()); });
  while (kept < 2) std::this_thread::yield();
  EXPECT_EQ(call(kMany).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(call(1).ok());
  release.set_value();
  first.join();
  second.join();
  const grpc::Status later = call(kMany);
  EXPECT_TRUE(later.ok()) << later.error_message();
  server.Shutdown();
  pool.Stop();
}

// The memory of a large message is reserved until the next one is read, so the object must not keep it any longer.
TEST(LargeMessages, AreFreedBeforeTheNextOneIsRead) {
  std::promise<size_t> kept;
  HandlerPool pool(1, 1);
  MessageLimits limits(std::chrono::hours(1));
  CallTable table;
  table.message_limits = &limits;
  table.methods["PutBlob"] = {&pool, 64 << 20, [&](CallStream* stream) -> absl::Status {
                                PutBlobRequest request;
                                XLAD_RETURN_IF_ERROR(stream->Read(&request).status());
                                EXPECT_GT(request.SpaceUsedLong(), 3 << 20);
                                XLAD_RETURN_IF_ERROR(stream->Read(&request).status());
                                EXPECT_EQ(request.chunk(), "small");
                                kept.set_value(request.SpaceUsedLong());
                                return stream->Write(PutBlobResponse());
                              }};
  TableServer server(std::move(table));
  const auto stub = Coordinator::NewStub(*MakeChannel({server.address(), "", ""}));
  grpc::ClientContext context;
  PrepareCall(&context, kSharedToken, kReadAheadMs);
  PutBlobResponse response;
  const auto upload = stub->PutBlob(&context, &response);
  PutBlobRequest request;
  for (const std::string& chunk : {std::string(3 << 20, 'x'), std::string("small")}) {
    request.set_chunk(chunk);
    EXPECT_TRUE(upload->Write(request));
  }
  upload->WritesDone();
  const grpc::Status status = upload->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  if (status.ok()) EXPECT_LT(kept.get_future().get(), 1000);
  server.Shutdown();
  pool.Stop();
}

// An upload waits for its client without the last chunk, so waiting uploads do not use up the memory for messages.
TEST(LargeMessages, AreFreedWhileTheNextOneIsAwaited) {
  HandlerPool pool(1, 1);
  MessageLimits limits(std::chrono::hours(1));
  // Whether no memory is reserved for messages: whether another user can reserve all of it.
  const auto is_free = [&limits] {
    constexpr int64_t kAll = 512 << 20;
    const bool reserved = limits.ReserveParsed("another user", kAll);
    if (reserved) limits.ReleaseParsed("another user", kAll);
    return reserved;
  };
  std::promise<bool> was_free;  // When the handler had the first message.
  CallTable table;
  table.message_limits = &limits;
  table.methods["PutBlob"] = {&pool, 64 << 20, [&](CallStream* stream) -> absl::Status {
                                PutBlobRequest request;
                                XLAD_RETURN_IF_ERROR(stream->Read(&request).status());
                                was_free.set_value(is_free());
                                XLAD_RETURN_IF_ERROR(stream->Read(&request).status());
                                EXPECT_EQ(request.chunk(), "small");
                                return stream->Write(PutBlobResponse());
                              }};
  TableServer server(std::move(table));
  const auto stub = Coordinator::NewStub(*MakeChannel({server.address(), "", ""}));
  grpc::ClientContext context;
  PrepareCall(&context, kSharedToken, kReadAheadMs);
  PutBlobResponse response;
  const auto upload = stub->PutBlob(&context, &response);
  PutBlobRequest request;
  request.set_chunk(std::string(3 << 20, 'x'));
  EXPECT_TRUE(upload->Write(request));
  EXPECT_FALSE(was_free.get_future().get());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!is_free() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(is_free());
  request.set_chunk("small");
  EXPECT_TRUE(upload->Write(request));
  upload->WritesDone();
  const grpc::Status status = upload->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  server.Shutdown();
  pool.Stop();
}

}  // namespace
}  // namespace xlad::service
