// Calls that are open when their token is revoked or expires, and worker ids, over TLS.
#include <gmock/gmock.h>

#include <memory>
#include <thread>
#include <vector>

#include "proto/protocol.h"
#include "service/rpc/grpc_streams.h"
#include "service/testing/grpc_access_fixture.h"

namespace xlad::service {
namespace {

using security::Role;
using ::testing::HasSubstr;

class OpenStreams : public JobsOfTwoUsers {
 protected:
  using Stream = grpc::ClientReaderWriter<WorkerMessage, CoordinatorMessage>;

  // A worker's stream.
  struct Attached {
    grpc::ClientContext context;
    std::unique_ptr<Stream> stream;
    CoordinatorMessage answer;  // To the registration.
  };
  std::unique_ptr<Attached> Attach(const std::string& token, const std::string& id, uint64_t incarnation,
                                   const std::string& user = "") {
    auto attached = std::make_unique<Attached>();
    PrepareCall(&attached->context, token, 600'000);
    attached->stream = stub_->Attach(&attached->context);
    WorkerMessage message;
    message.mutable_register_()->set_worker_id(id);
    message.mutable_register_()->set_incarnation(incarnation);
    message.mutable_register_()->set_devices(1);
    message.mutable_register_()->set_protocol(kProtocol);
    message.mutable_register_()->set_user(user);
    attached->stream->Write(message);
    EXPECT_TRUE(attached->stream->Read(&attached->answer));
    return attached;
  }
  // Sends a clock probe and waits for its answer.
  static bool IsServed(Stream* stream) {
    WorkerMessage probe;
    probe.mutable_clock_probe();
    if (!stream->Write(probe)) return false;
    CoordinatorMessage answer;
    while (stream->Read(&answer)) {
      if (answer.has_clock()) return true;
    }
    return false;
  }
  template <typename Message, typename Reader>
  static grpc::Status End(Reader* reader) {
    Message message;
    while (reader->Read(&message)) {
    }
    return reader->Finish();
  }
  static void ExpectRefused(const grpc::Status& status, const std::string& why) {
    EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(why));
  }
  void Revoke(const std::string& token) {
    security::TokenStore tokens(TokenFolder(JoinPath(folder_, "data")), &RealClock());
    ASSERT_TRUE(tokens.Revoke(security::TokenId(token)).ok());
  }
};

TEST_F(OpenStreams, EndWhenTheirTokenIsRevoked) {
  const std::string workers_token = Token(Role::kWorker, "wendy");
  const auto revoked = Attach(workers_token, "revoked", 1), other = Attach(tokens_.at("worker"), "other", 2);
  grpc::ClientContext watch_context, hold_context, health_context, upload_context, reader_context;
  for (grpc::ClientContext* context : {&watch_context, &hold_context, &health_context, &upload_context}) {
    PrepareCall(context, tokens_.at("submitter"), 600'000);
  }
  WatchJobRequest watch;
  watch.set_job_id(session_);  // It does not end during the test.
  const auto watching = stub_->WatchJob(&watch_context, watch);
  HoldSessionRequest hold;
  hold.set_session_id(session_);
  const auto holding = stub_->HoldSession(&hold_context, hold);
  PutBlobResponse put;
  const auto upload = stub_->PutBlob(&upload_context, &put);
  PutBlobRequest chunk;
  chunk.set_digest(Sha256Hex("all"));
  chunk.set_chunk("a");
  EXPECT_TRUE(upload->Write(chunk));
  PrepareCall(&reader_context, tokens_.at("reader"), 600'000);
  const auto reading = stub_->WatchJob(&reader_context, watch);
  WatchJobResponse update;
  EXPECT_TRUE(watching->Read(&update));
  EXPECT_TRUE(reading->Read(&update));
  JobStatus session;
  EXPECT_TRUE(holding->Read(&session));

  Revoke(workers_token);
  Revoke(tokens_.at("submitter"));
  ExpectRefused(End<CoordinatorMessage>(revoked->stream.get()), "which was revoked");
  ExpectRefused(End<WatchJobResponse>(watching.get()), "which was revoked");
  ExpectRefused(End<JobStatus>(holding.get()), "which was revoked");
  chunk.Clear();
  while (upload->Write(chunk)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ExpectRefused(upload->Finish(), "which was revoked");
  // The streams of other tokens continue.
  EXPECT_TRUE(IsServed(other->stream.get()));
  EXPECT_TRUE(reading->Read(&update));
  reader_context.TryCancel();
  other->context.TryCancel();
}

TEST_F(OpenStreams, EndWhenTheirTokenExpires) {
  security::TokenStore tokens(TokenFolder(JoinPath(folder_, "data")), &RealClock());
  const std::unique_ptr<Random> random = SystemRandom();
  const std::string token = *tokens.Issue(Role::kWorker, "wendy", 8, random.get());
  const auto attached = Attach(token, "a", 1);
  ASSERT_TRUE(attached->answer.has_registered());
  ExpectRefused(End<CoordinatorMessage>(attached->stream.get()), "which has expired");
}

TEST_F(OpenStreams, AWorkerIdBelongsToTheUserOfItsToken) {
  const auto first = Attach(Token(Role::kWorker, "wendy"), "a", 7);
  EXPECT_EQ(first->answer.registered().refused(), "");
  // A worker of another user is refused, even with the right incarnation and the other user's name in the message.
  const auto thief = Attach(Token(Role::kWorker, "mallory"), "a", 7, "wendy");
  EXPECT_THAT(thief->answer.registered().refused(),
              HasSubstr("a different user than the token of this worker (mallory)"));
  EXPECT_TRUE(IsServed(first->stream.get()));
  // A new token of the same user takes the place of the old one.
  const auto again = Attach(Token(Role::kWorker, "wendy"), "a", 7);
  EXPECT_EQ(again->answer.registered().refused(), "");
  for (Attached* attached : {first.get(), thief.get(), again.get()}) attached->context.TryCancel();
}

// Each stream may have an update in memory that its client does not read.
TEST_F(OpenStreams, AUserCanFollowALimitedNumberOfJobs) {
  struct Watching {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<WatchJobResponse>> reader;
  };
  WatchJobRequest request;
  request.set_job_id(session_);  // It does not end during the test.
  const auto watch = [&](Coordinator::Stub* stub, const std::string& who) {
    auto watching = std::make_unique<Watching>();
    PrepareCall(&watching->context, tokens_.at(who), 600'000);
    watching->reader = stub->WatchJob(&watching->context, request);
    return watching;
  };
  const auto end = [](Watching* watching) {
    watching->context.TryCancel();
    return watching->reader->Finish();
  };
  std::vector<std::unique_ptr<Watching>> open;
  for (int i = 0; i < Followers::kMaxOfUser; ++i) open.push_back(watch(stub_.get(), "submitter"));
  WatchJobResponse update;
  for (const auto& watching : open) ASSERT_TRUE(watching->reader->Read(&update));
  // A connection has a limited number of streams, too.
  const auto other = Coordinator::NewStub(ChannelTo(JoinPath(folder_, "ca.pem"), authority_));
  const auto refused = watch(other.get(), "submitter");
  EXPECT_FALSE(refused->reader->Read(&update));
  const grpc::Status status = refused->reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("found 1024 open calls of alice"));
  const auto of_another_user = watch(other.get(), "reader");
  EXPECT_TRUE(of_another_user->reader->Read(&update));
  // When a stream ends, another one can begin.
  end(open.front().get());
  for (bool began = false; !began;) {
    const auto next = watch(other.get(), "submitter");
    began = next->reader->Read(&update);
    if (began) end(next.get());
    if (!began) ASSERT_EQ(next->reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  end(of_another_user.get());
  for (size_t i = 1; i < open.size(); ++i) end(open[i].get());
}

}  // namespace
}  // namespace xlad::service
