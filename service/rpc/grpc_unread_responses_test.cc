// Responses that a client does not read, over TLS: the calls of the user end with an error while too much memory is
// occupied, and other users are not affected.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "service/testing/grpc_access_fixture.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;

constexpr int kCalls = 20, kKept = 16;
constexpr int kTries = 6000;                             // A try every 10 ms: at least a minute.
constexpr size_t kBlobBytes = (size_t{1} << 20) - 1024;  // kKept responses of this size have 16 MiB or less.

// A call whose response is not taken before Read.
struct UnreadCall {
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  grpc::Status status = grpc::Status(grpc::StatusCode::UNKNOWN, "the call has not ended");
  grpc::ByteBuffer response;
};

class UnreadResponses : public GrpcAccessTest {
 protected:
  // No call is canceled because it stalls: an hour is longer than the test.
  void Configure(DaemonOptions* options) override { options->message_ms = 3'600'000; }
  void SetUp() override {
    GrpcAccessTest::SetUp();
    PutBlobRequest put;
    put.set_chunk(std::string(kBlobBytes, 'x'));
    put.set_digest(Sha256Hex(put.chunk()));
    ASSERT_TRUE(Call(channel_, tokens_.at("submitter"), "PutBlob", put.SerializeAsString()).ok());
    GetBlobRequest get;
    get.set_digest(put.digest());
    request_ = get.SerializeAsString();
    // Without probes of the bandwidth, a stream takes 64 KiB before its first read.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = authority_;
    slow_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(daemon_->Address(), grpc::SslCredentials(options), arguments));
  }
  void TearDown() override {
    slow_ = nullptr;
    GrpcAccessTest::TearDown();
  }

  std::unique_ptr<UnreadCall> Begin() {
    auto call = std::make_unique<UnreadCall>();
    PrepareCall(&call->context, tokens_.at("submitter"), 600'000);
    call->context.set_initial_metadata_corked(true);  // StartCall must then have no tag.
    call->stream = slow_->PrepareCall(&call->context, PathOf("GetBlob"), &queue_);
    call->stream->StartCall(nullptr);
    const grpc::Slice slice(request_);
    call->stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    EXPECT_EQ(Next(), nullptr);
    return call;
  }
  // Returns the tag of the next operation that has ended.
  void* Next() {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
    return tag;
  }
  grpc::Status Get(const std::string& who) { return Call(channel_, tokens_.at(who), "GetBlob", request_); }

  std::string request_;
  std::unique_ptr<grpc::GenericStub> slow_;
  grpc::CompletionQueue queue_;
};

TEST_F(UnreadResponses, FurtherCallsOfTheUserAreRefused) {
  std::vector<std::unique_ptr<UnreadCall>> calls;
  for (int i = 0; i < kCalls; ++i) calls.push_back(Begin());
  for (const auto& call : calls) call->stream->Finish(&call->status, &call->status);
  for (int i = kKept; i < kCalls; ++i) {
    const auto* status = static_cast<const grpc::Status*>(Next());
    EXPECT_EQ(status->error_code(), grpc::UNAVAILABLE) << status->error_message();
    EXPECT_THAT(status->error_message(), HasSubstr("too many responses that user alice has not read"));
  }
  EXPECT_EQ(Get("submitter").error_code(), grpc::UNAVAILABLE) << "another connection of the same user";
  EXPECT_TRUE(Get("bob").ok());
  EXPECT_TRUE(Get("worker").ok());

  // The responses that were not refused can be read. Then calls of the user succeed again.
  std::erase_if(calls, [](const auto& call) { return call->status.error_code() == grpc::UNAVAILABLE; });
  ASSERT_EQ(calls.size(), kKept);
  for (const auto& call : calls) call->stream->Read(&call->response, nullptr);
  for (int i = 0; i < 2 * kKept; ++i) Next();
  for (const auto& call : calls) {
    EXPECT_TRUE(call->status.ok()) << call->status.error_message();
    EXPECT_GE(call->response.Length(), kBlobBytes);
  }
  // The calls may still be ending.
  grpc::Status again = Get("submitter");
  for (int tries = 0; again.error_code() == grpc::UNAVAILABLE && tries < kTries; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    again = Get("submitter");
  }
  EXPECT_TRUE(again.ok()) << again.error_message();
}

}  // namespace
}  // namespace xlad::service
