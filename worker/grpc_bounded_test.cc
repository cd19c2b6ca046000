#include "worker/grpc_bounded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/net/grpc_channel.h"
#include "base/testing/grpc_first_answer.h"
#include "proto/worker.pb.h"
#include "worker/grpc_session_server.h"

namespace xlad::worker {
namespace {

// Two bytes would become an object of 64 bytes: 180 MB in all. The client of a stream gets the reason, too.
TEST(BoundedRequest, OfTooMuchMemoryIsNotParsed) {
  runtime::SessionHost host("job-1", "a", /*workers=*/1);
  const auto server = SessionServer::Start("127.0.0.1", {"client's", "", {"b"}}, &host, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = *MakeChannel({(*server)->address(), "", ""});
  std::string list;
  while (list.size() < 5'600'000) list.append("\x1a\0", 2);  // Empty elements of field 3.
  for (const char* call : {"CallProgram", "PutArray", "GetArray", "Follow"}) {
    const std::string path = absl::StrCat("/xlad.v1.SessionWorker/", call);
    const grpc::Status status = FirstAnswer(channel, "client's", path, list);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << path;
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr("takes more than 167772160 bytes of memory")) << path;
  }
  host.End("the test ends");
}

TEST(ParsedMemory, MessagesOfAllCallsHaveALimitTogether) {
  CallProgramRequest request;
  for (int i = 0; i < 1'500'000; ++i) request.add_free(-1);  // The estimate is 120 MB, and the memory 12 MB.
  const std::string serialized = request.SerializeAsString();
  const grpc::Slice slice(serialized);
  std::vector<std::unique_ptr<Bounded<CallProgramRequest>>> held;
  const auto parse = [&] {
    grpc::ByteBuffer buffer(&slice, 1);
    EXPECT_TRUE(grpc::SerializationTraits<Bounded<CallProgramRequest>>::Deserialize(&buffer, held.back().get()).ok());
    return held.back()->status;
  };
  absl::Status status;
  while (status.ok() && held.size() < 10) {
    held.push_back(std::make_unique<Bounded<CallProgramRequest>>());
    status = parse();
  }
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(held.size(), 5u);
  held.front() = nullptr;
  EXPECT_TRUE(parse().ok());
  EXPECT_TRUE(parse().ok()) << "the message before is freed";
}

}  // namespace
}  // namespace xlad::worker
