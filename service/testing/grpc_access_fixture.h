// A coordinator that other machines reach, over TLS, with a token for each role.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/net/grpc_channel.h"
#include "base/testing/grpc_first_answer.h"
#include "base/testing/test_folder.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "security/private_files.h"
#include "security/tokens.h"
#include "service/credentials/managed_security.h"
#include "service/rpc/coordinator_daemon.h"

namespace xlad::service {

class GrpcAccessTest : public testing::Test {
 protected:
  void SetUp() override {
    DaemonOptions options;
    options.listen = "0.0.0.0:0";
    options.advertise = "localhost";
    options.data_folder = JoinPath(folder_, "data");
    options.program_path = "/bin/false";
    Configure(&options);
    auto daemon = CoordinatorDaemon::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    using security::Role;
    for (const auto& [role, user] : std::vector<std::pair<Role, std::string>>{{Role::kReader, "rita"},
                                                                              {Role::kSubmitter, "alice"},
                                                                              {Role::kWorker, "worker"},
                                                                              {Role::kOperator, "otto"}}) {
      tokens_[std::string(RoleName(role))] = Token(role, user);
    }
    tokens_["bob"] = Token(Role::kSubmitter, "bob");
    channel_ = ChannelTo(JoinPath(folder_, "ca.pem"), authority_);
  }
  void TearDown() override {
    channel_ = nullptr;
    daemon_.reset();
  }

  virtual void Configure(DaemonOptions* options) {}

  std::string Token(security::Role role, const std::string& user) {
    const auto join = MakeJoinFile(JoinPath(folder_, "data"), {user, role}, 3600);
    EXPECT_TRUE(join.ok()) << join.status();
    if (!join.ok()) return "";
    EXPECT_EQ(join->address, daemon_->Address());
    authority_ = join->authority;
    return join->token;
  }

  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& file, const std::string& authority) {
    EXPECT_TRUE(security::WritePrivateFile(file, authority).ok());
    return *MakeChannel({daemon_->Address(), file, ""});
  }

  // Makes a call with one message, which may be malformed. `method` is a name of security/roles.h.
  static grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& token,
                           const std::string& method, const std::string& bytes = "") {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    PrepareCall(&context, token, /*timeout_ms=*/600'000);
    grpc::CompletionQueue queue;
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    const auto call = stub.PrepareUnaryCall(&context, PathOf(method), request, &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    queue.Shutdown();
    return status;
  }

  static std::string PathOf(const std::string& method) {
    return absl::StrCat(method.find('/') == std::string::npos ? "/xlad.v1.Coordinator/" : "/", method);
  }

  const TestFolder own_folder_;
  const std::string folder_ = own_folder_.path();
  std::string authority_;
  std::unique_ptr<CoordinatorDaemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::map<std::string, std::string> tokens_;  // By role. "bob" is a second submitter.
};

// Two submitters, each with a job. The first one has a session, too.
class JobsOfTwoUsers : public GrpcAccessTest {
 protected:
  void SetUp() override {
    GrpcAccessTest::SetUp();
    stub_ = Coordinator::NewStub(channel_);
    PutBlobRequest blob;
    blob.set_digest(Sha256Hex(kProgram));
    blob.set_chunk(kProgram);
    ASSERT_TRUE(Call(channel_, tokens_.at("submitter"), "PutBlob", blob.SerializeAsString()).ok());
    submit_.set_client_key("key");
    submit_.mutable_spec()->set_name("m");
    submit_.mutable_spec()->set_program_blob(blob.digest());
    submit_.mutable_spec()->set_steps(1);
    submit_.mutable_spec()->add_mesh()->set_name("dp");
    submit_.mutable_spec()->mutable_mesh(0)->set_size(1);
    for (const char* who : {"submitter", "bob"}) {  // The same client key of two users names two jobs.
      SubmitJobResponse response;
      const grpc::Status status =
          As(who, [&](grpc::ClientContext* context) { return stub_->SubmitJob(context, submit_, &response); });
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_FALSE(response.existed());
      jobs_[who] = response.job_id();
    }
    EXPECT_NE(jobs_["submitter"], jobs_["bob"]);
    OpenSessionRequest open;
    open.set_client_key("session");
    OpenSessionResponse session;
    ASSERT_TRUE(As("submitter", [&](grpc::ClientContext* c) { return stub_->OpenSession(c, open, &session); }).ok());
    session_ = session.session_id();
  }
  void TearDown() override {
    stub_ = nullptr;
    GrpcAccessTest::TearDown();
  }

  template <typename Work>
  grpc::Status As(const std::string& who, const Work& work) {
    grpc::ClientContext context;
    PrepareCall(&context, tokens_.at(who), 600'000);
    return work(&context);
  }

  static constexpr char kProgram[] = "HloModule m";
  std::unique_ptr<Coordinator::Stub> stub_;
  SubmitJobRequest submit_;
  std::map<std::string, std::string> jobs_;  // Job ids by user: "submitter" or "bob".
  std::string session_;                      // Belongs to "submitter".
};

}  // namespace xlad::service
