// The handlers of the coordinator's calls, without a server.
#include "service/rpc/grpc_methods.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/testing/test_folder.h"

namespace xlad::service {
namespace {

// A call with one request, whose client has left when the request has been read.
class StreamOfAGoneClient final : public CallStream {
 public:
  explicit StreamOfAGoneClient(const google::protobuf::Message& request) : request_(request) {}
  absl::StatusOr<bool> Read(google::protobuf::Message* message) override {
    message->CopyFrom(request_);
    return true;
  }
  void ReadAhead() override {}
  absl::Status Write(const google::protobuf::MessageLite&) override { return absl::OkStatus(); }
  absl::Status CheckClient() override {
    ++checks;
    return absl::CancelledError("the client left");
  }
  const CallerAccess& access() const override { return access_; }
  absl::Status CheckJob(const std::string&) override { return absl::OkStatus(); }

  int checks = 0;

 private:
  const google::protobuf::Message& request_;
  const CallerAccess access_;
};

std::unique_ptr<Engine> StartEngine(const std::string& data_folder) {
  EngineOptions options;
  options.data_folder = data_folder;
  options.program_path = "/bin/false";
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
  const std::pair<const char*, const google::protobuf::Message*> calls[] = {{"LoadProgram", &load},
                                                                            {"FreeArrays", &relayed}};
  for (const auto& [name, request] : calls) {
    StreamOfAGoneClient stream(*request);
    const absl::Status status = table.methods.at(name).handler(&stream);
    EXPECT_TRUE(absl::IsCancelled(status)) << name << ": " << status;
  }
  pools.Stop();
}

}  // namespace
}  // namespace xlad::service
