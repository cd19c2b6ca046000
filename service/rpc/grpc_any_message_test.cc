// Every call of the coordinator with arbitrary bytes and with messages that are valid protos with odd values, from
// callers of every role. The coordinator must answer, and serve as before. XLAD_ANY_MESSAGES is the number of calls of
// each method (default 12), XLAD_SEED the seed.
#include <gmock/gmock.h>

#include "absl/strings/match.h"
#include "base/random.h"
#include "base/testing/case_count.h"
#include "service/testing/grpc_access_fixture.h"
#include "service/testing/odd_messages.h"

namespace xlad::service {
namespace {

// Streams that have nothing to say are ended after this time.
constexpr int64_t kStreamMs = 300;

class AnyMessage : public JobsOfTwoUsers {
 protected:
  // Sends the messages, and reads the answers until the call ends. Returns its status.
  grpc::Status Send(const std::string& token, const std::string& path, const std::vector<std::string>& messages) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    PrepareCall(&context, token, kStreamMs);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(&context, path, &queue);
    call->StartCall(nullptr);
    bool is_open = NextSucceeds(&queue);
    for (size_t m = 0; m < messages.size() && is_open; ++m) {
      const grpc::Slice slice(messages[m]);
      call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
      is_open = NextSucceeds(&queue);
    }
    if (is_open) {
      call->WritesDone(nullptr);
      NextSucceeds(&queue);
    }
    for (bool more = true; more;) {
      grpc::ByteBuffer response;
      call->Read(&response, nullptr);
      more = NextSucceeds(&queue);
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    NextSucceeds(&queue);
    queue.Shutdown();
    return status;
  }

  // Returns a message of the type: valid with odd values, mutated, or arbitrary bytes.
  std::string Message(const google::protobuf::Descriptor* type) {
    const Choose choose = [this](uint64_t below) { return random_->Below(below); };
    const uint64_t kind = choose(4);
    std::string bytes;
    if (kind == 0) {
      for (uint64_t left = choose(200); left > 0; --left) bytes += static_cast<char>(choose(256));
      return bytes;
    }
    const std::unique_ptr<google::protobuf::Message> message(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
    MakeOdd(choose, message.get());
    if (choose(4) != 0) FillIn("job_id", jobs_.at(choose(2) == 0 ? "submitter" : "bob"), message.get());
    if (choose(4) != 0) FillIn("session_id", session_, message.get());
    bytes = message->SerializeAsString();
    if (kind == 1 && !bytes.empty()) bytes[choose(bytes.size())] = static_cast<char>(choose(256));
    return bytes;
  }

  const uint64_t seed_ = NumberFrom("XLAD_SEED", 1);
  const std::unique_ptr<Random> random_ = SeededRandom(seed_);
};

TEST_F(AnyMessage, IsAnsweredAndChangesNothingForOthers) {
  const uint64_t calls = NumberFrom("XLAD_ANY_MESSAGES", 12);
  std::vector<std::string> tokens = {""};
  for (const auto& [role, token] : tokens_) tokens.push_back(token);
  std::map<int, int64_t> codes;
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  for (const char* name : {"xlad.v1.Coordinator", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"}) {
    const auto* service = pool->FindServiceByName(name);
    ASSERT_NE(service, nullptr) << name;
    for (int m = 0; m < service->method_count(); ++m) {
      const auto* method = service->method(m);
      if (method->name() == "Backup") continue;  // It writes to the folder that the operator names.
      for (uint64_t c = 0; c < calls; ++c) {
        std::vector<std::string> messages;
        const uint64_t most = method->client_streaming() ? 4 : 1;
        for (uint64_t left = random_->Below(most + 1); left > 0; --left) {
          messages.push_back(Message(method->input_type()));
        }
        const std::string& token = tokens[random_->Below(tokens.size())];
        const grpc::Status status = Send(token, absl::StrCat("/", name, "/", method->name()), messages);
        ++codes[status.error_code()];
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNKNOWN) << method->name() << ": " << status.error_message();
        // gRPC itself reports INTERNAL if a stream is reset when its time is over.
        const bool is_reset = absl::StrContains(status.error_message(), "RST_STREAM");
        const bool is_internal = status.error_code() == grpc::StatusCode::INTERNAL && !is_reset;
        EXPECT_FALSE(is_internal) << method->name() << ": " << status.error_message();
      }
    }
  }
  for (const auto& [code, count] : codes) {
    std::printf("gRPC code %d: %lld\n", code, static_cast<long long>(count));
  }
  for (const auto& [who, job] : jobs_) {
    JobStatus found;
    GetJobRequest request;
    request.set_job_id(job);
    const grpc::Status status =
        As("operator", [&](grpc::ClientContext* context) { return stub_->GetJob(context, request, &found); });
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(found.name(), "m") << "the job of " << who;
  }
}

}  // namespace
}  // namespace xlad::service
