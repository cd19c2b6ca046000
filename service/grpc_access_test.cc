// Every call of the coordinator with every kind of caller, over TLS: access follows security/roles.h.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/file_system.h"
#include "base/grpc_channel.h"
#include "base/hash.h"
#include "base/testing/test_folder.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "security/certificates.h"
#include "security/private_files.h"
#include "security/tokens.h"
#include "service/access.h"
#include "service/coordinator_daemon.h"
#include "service/managed_security.h"

namespace xlad::service {
namespace {

using security::Access;
using security::Role;
using ::testing::HasSubstr;

class GrpcAccessTest : public testing::Test {
 protected:
  void SetUp() override {
    DaemonOptions options;
    options.listen = "0.0.0.0:0";
    options.advertise = "localhost";
    options.data_folder = JoinPath(folder_, "data");
    options.program_path = "/bin/false";
    auto daemon = CoordinatorDaemon::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
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

  std::string Token(Role role, const std::string& user) {
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
    const std::string service = method.find('/') == std::string::npos ? "xlad.v1.Coordinator/" : "";
    const auto call = stub.PrepareUnaryCall(&context, absl::StrCat("/", service, method), request, &queue);
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

  const TestFolder own_folder_;
  const std::string folder_ = own_folder_.path();
  std::string authority_;
  std::unique_ptr<CoordinatorDaemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::map<std::string, std::string> tokens_;  // By role. "bob" is a second submitter.
};

TEST_F(GrpcAccessTest, TheTableHasEveryCallOfTheService) {
  std::set<std::string> known;
  // Health/Check is not in the table because every caller may make this call.
  std::set<std::string> named = {"grpc.health.v1.Health/Watch",
                                 "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                                 "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
  for (const security::CallRule& rule : security::CallRules()) known.insert(rule.call);
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  const auto* service = pool->FindServiceByName("xlad.v1.Coordinator");
  ASSERT_NE(service, nullptr);
  for (int m = 0; m < service->method_count(); ++m) named.insert(service->method(m)->name());
  EXPECT_EQ(known, named);
}

// Makes every call without a token, with an invalid, an expired and a revoked token, and with a token of each role.
TEST_F(GrpcAccessTest, EveryCallWithEveryCaller) {
  const ManualClock past{1'000'000'000 * kNsPerSecond};
  security::TokenStore old(TokenFolder(JoinPath(folder_, "data")), &past);
  const std::unique_ptr<Random> random = SystemRandom();
  const std::string expired = *old.Issue(Role::kOperator, "otto", 60, random.get());
  const std::string revoked = Token(Role::kOperator, "otto");
  ASSERT_TRUE(old.Revoke(security::TokenId(revoked)).ok());
  for (const security::CallRule& rule : security::CallRules()) {
    for (const std::string& token : {std::string(), std::string("x"), expired, revoked}) {
      const grpc::Status status = Call(channel_, token, rule.call);
      EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED) << rule.call << ": " << status.error_message();
    }
    const std::pair<const char*, Access> roles[] = {
        {"reader", rule.reader}, {"submitter", rule.submitter}, {"worker", rule.worker}, {"operator", rule.op}};
    for (const auto& [role, access] : roles) {
      // Health/Watch does not end after a valid request, so the request is malformed.
      const std::string request = std::string(rule.call).find("Health") == std::string::npos ? "" : "\xff";
      const grpc::Status status = Call(channel_, tokens_.at(role), rule.call, request);
      EXPECT_NE(status.error_code(), grpc::UNAUTHENTICATED) << rule.call << " as " << role;
      EXPECT_EQ(status.error_code() == grpc::PERMISSION_DENIED, access == Access::kDenied)
          << rule.call << " as " << role << ": " << status.error_code() << " " << status.error_message();
    }
  }
  EXPECT_EQ(Call(channel_, "", "NoSuchCall").error_code(), grpc::UNAUTHENTICATED);
  for (const char* none :
       {"NoSuchCall", "grpc.health.v1.Health/NoSuchCall", "Attach/Attach", "other.Coordinator/Attach"}) {
    for (const auto& [who, token] : tokens_) {
      EXPECT_EQ(Call(channel_, token, none).error_code(), grpc::UNIMPLEMENTED) << none << " as " << who;
    }
  }
}

TEST(GrpcChannel, ASessionOffLoopbackWithoutAnAuthorityIsReportedAsASession) {
  const absl::Status status = MakeSessionChannel("192.0.2.1:7", "").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("found the first worker of a session at 192.0.2.1:7"));
}

TEST_F(GrpcAccessTest, ACoordinatorOfAnotherAuthorityIsNotTrusted) {
  const auto other = security::MakeAuthority(RealClock().WallNs() / kNsPerSecond);
  const auto channel = ChannelTo(JoinPath(folder_, "other.pem"), other->certificate);
  EXPECT_EQ(Call(channel, tokens_.at("operator"), "GetStatus").error_code(), grpc::UNAVAILABLE);
  // Calls without TLS are not answered either.
  const auto plain = grpc::CreateChannel(daemon_->Address(), grpc::InsecureChannelCredentials());
  EXPECT_EQ(Call(plain, tokens_.at("operator"), "GetStatus").error_code(), grpc::UNAVAILABLE);
}

// All files of a folder, with their contents.
std::map<std::string, std::string> FilesIn(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path()] = RealFileSystem().Read(entry.path()).value_or("unreadable");
  }
  return files;
}

// A coordinator that finds the data folder in use changes nothing there: neither the certificate, whose names would be
// those of another address, nor uploads that have not ended.
TEST_F(GrpcAccessTest, ASecondCoordinatorOnTheSameFolderIsFenced) {
  DaemonOptions options;
  options.listen = "0.0.0.0:0";
  options.advertise = "elsewhere.example";
  options.data_folder = JoinPath(folder_, "data");
  options.program_path = "/bin/false";
  const auto stub = Coordinator::NewStub(channel_);
  grpc::ClientContext context;
  PrepareCall(&context, tokens_.at("submitter"), 600'000);
  PutBlobResponse response;
  PutBlobRequest request;
  request.set_digest(Sha256Hex("first, second"));
  request.set_chunk("first, ");
  const auto upload = stub->PutBlob(&context, &response);
  ASSERT_TRUE(upload->Write(request));
  const auto count = [&] { return FilesIn(JoinPath(options.data_folder, "blobs")).size(); };
  while (count() == 0) std::this_thread::yield();
  const std::string security = JoinPath(options.data_folder, "security");
  const auto before = FilesIn(security);
  EXPECT_TRUE(before.contains(JoinPath(security, "server.pem")));
  EXPECT_TRUE(absl::IsAlreadyExists(CoordinatorDaemon::Start(options).status()));
  EXPECT_EQ(FilesIn(security), before);
  request.Clear();
  request.set_chunk("second");
  EXPECT_TRUE(upload->Write(request));
  upload->WritesDone();
  const grpc::Status status = upload->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// Returns the certificate that the server presents to a new connection.
std::string CertificateOf(const std::string& address, const std::string& ca_file, const std::string& token) {
  const auto stub = Coordinator::NewStub(*MakeChannel({address, ca_file, ""}));
  grpc::ClientContext context;
  PrepareCall(&context, token, 600'000);
  CoordinatorStatus status;
  const grpc::Status called = stub->GetStatus(&context, GetStatusRequest(), &status);
  EXPECT_TRUE(called.ok()) << called.error_message();
  const auto found = context.auth_context()->FindPropertyValues("x509_pem_cert");
  return found.empty() ? "" : std::string(found[0].data(), found[0].size());
}

TEST(GrpcCertificateTest, IsRenewedWithoutARestart) {
  const TestFolder folder;
  constexpr int64_t kDayNs = 24 * 3600 * kNsPerSecond;
  ManualClock clock(RealClock().WallNs() - 300 * kDayNs);  // The time at which the first certificate is made.
  DaemonOptions options;
  options.listen = "0.0.0.0:0";
  options.advertise = "localhost";
  options.data_folder = JoinPath(folder.path(), "data");
  options.program_path = "/bin/false";
  options.certificate_clock = &clock;
  options.certificate_check_ms = 5;
  auto daemon = CoordinatorDaemon::Start(options);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const auto join = MakeJoinFile(options.data_folder, {"otto", Role::kOperator}, 3600);
  ASSERT_TRUE(join.ok()) << join.status();
  const std::string ca_file = JoinPath(folder.path(), "ca.pem");
  ASSERT_TRUE(security::WritePrivateFile(ca_file, join->authority).ok());
  const auto open = Coordinator::NewStub(*MakeChannel({(*daemon)->Address(), ca_file, ""}));
  const auto call = [&] {
    grpc::ClientContext context;
    PrepareCall(&context, join->token, 600'000);
    CoordinatorStatus status;
    return open->GetStatus(&context, GetStatusRequest(), &status).ok();
  };
  EXPECT_TRUE(call());
  const std::string first = CertificateOf((*daemon)->Address(), ca_file, join->token);
  EXPECT_NE(first, "");
  clock.Advance(200 * kDayNs);
  EXPECT_EQ(CertificateOf((*daemon)->Address(), ca_file, join->token), first)
      << "more than a third of the certificate's validity is left";
  clock.Advance(100 * kDayNs);
  while (CertificateOf((*daemon)->Address(), ca_file, join->token) == first) EXPECT_TRUE(call());
  EXPECT_TRUE(call()) << "connections that are open stay open";
  daemon->reset();
}

class JobsOfTwoUsers : public GrpcAccessTest {
 protected:
  void SetUp() override {
    GrpcAccessTest::SetUp();
    stub_ = Coordinator::NewStub(channel_);
    const std::string program = "HloModule m";
    PutBlobRequest blob;
    blob.set_digest(Sha256Hex(program));
    blob.set_chunk(program);
    ASSERT_TRUE(Call(channel_, tokens_.at("submitter"), "PutBlob", blob.SerializeAsString()).ok());
    submit_.set_client_key("key");
    submit_.mutable_spec()->set_name("m");
    submit_.mutable_spec()->set_program_blob(blob.digest());
    submit_.mutable_spec()->set_steps(1);
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

  std::unique_ptr<Coordinator::Stub> stub_;
  SubmitJobRequest submit_;
  std::map<std::string, std::string> jobs_;  // Job ids by user: "submitter" or "bob".
  std::string session_;                      // Belongs to "submitter".
};

// Makes all calls about a job or a session as a submitter who does not own it.
TEST_F(JobsOfTwoUsers, AnotherUsersJobsAreNotFound) {
  GetJobRequest named;  // The id is field 1 of all these requests.
  LoadProgramRequest load;
  load.set_program_blob(submit_.spec().program_blob());
  AddProgramRequest add;
  add.set_executable_digest(submit_.spec().program_blob());
  ResizeJobRequest resize;
  resize.add_mesh()->set_size(1);
  PutArrayRequest put;
  put.mutable_shape()->set_element_type(11);  // f32
  // The fields without which a request is refused before its job is looked up.
  std::map<std::string, std::string> further = {{"LoadProgram", load.SerializeAsString()},
                                                {"AddProgram", add.SerializeAsString()},
                                                {"ResizeJob", resize.SerializeAsString()},
                                                {"PutArray", put.SerializeAsString()}};
  int checked = 0;
  for (const security::CallRule& rule : security::CallRules()) {
    if (rule.submitter != Access::kOwn || std::string(rule.call) == "ListJobs") continue;
    const bool is_session = std::string(rule.call).find("Session") != std::string::npos ||
                            std::string(rule.call).find("Program") != std::string::npos ||
                            std::string(rule.call).find("Array") != std::string::npos;
    named.set_job_id(is_session ? session_ : jobs_["submitter"]);
    const std::string bytes = named.SerializeAsString() + further[rule.call];
    const grpc::Status status = Call(channel_, tokens_.at("bob"), rule.call, bytes);
    ++checked;
    // The error code is the same as for a job that does not exist.
    EXPECT_EQ(status.error_code(), grpc::NOT_FOUND) << rule.call << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("of user bob")) << rule.call;
  }
  EXPECT_GE(checked, 14);
}

TEST_F(JobsOfTwoUsers, OwnersReadersAndOperatorsSeeTheJobs) {
  GetJobRequest named;
  named.set_job_id(jobs_["submitter"]);
  for (const char* call : {"GetJob", "JobLog", "WhyJob", "CancelJob"}) {
    EXPECT_EQ(Call(channel_, tokens_.at("bob"), call, named.SerializeAsString()).error_code(), grpc::NOT_FOUND) << call;
    for (const char* who : {"submitter", "operator"}) {
      const grpc::StatusCode code = Call(channel_, tokens_.at(who), call, named.SerializeAsString()).error_code();
      EXPECT_TRUE(code != grpc::NOT_FOUND && code != grpc::PERMISSION_DENIED) << call << " as " << who;
    }
  }
  const auto listed = [&](const std::string& who) {
    std::set<std::string> ids;
    ListJobsResponse response;
    EXPECT_TRUE(As(who, [&](grpc::ClientContext* c) { return stub_->ListJobs(c, {}, &response); }).ok());
    for (const JobStatus& job : response.jobs()) ids.insert(job.id());
    return ids;
  };
  EXPECT_EQ(listed("bob"), std::set<std::string>{jobs_["bob"]});
  EXPECT_EQ(listed("submitter"), (std::set<std::string>{jobs_["submitter"], session_}));
  EXPECT_EQ(listed("reader").size(), 3u);
  EXPECT_EQ(listed("operator").size(), 3u);
}

TEST_F(JobsOfTwoUsers, AnotherUsersStateAndFilesAreNotRead) {
  // A submitter can neither resume another user's state nor read files of the workers' machines.
  submit_.set_client_key("resume");
  submit_.mutable_spec()->set_resume(jobs_["submitter"]);
  SubmitJobResponse ignored;
  EXPECT_EQ(As("bob", [&](grpc::ClientContext* c) { return stub_->SubmitJob(c, submit_, &ignored); }).error_code(),
            grpc::NOT_FOUND);
  submit_.mutable_spec()->clear_resume();
  submit_.mutable_spec()->set_data_uri("file:/etc/passwd");
  EXPECT_EQ(As("bob", [&](grpc::ClientContext* c) { return stub_->SubmitJob(c, submit_, &ignored); }).error_code(),
            grpc::PERMISSION_DENIED);
}

TEST(Owners, AreAPartOfTheKey) {
  EXPECT_EQ(OwnedKey({"alice", Role::kSubmitter}, "k/1"), "@alice/k/1");
  EXPECT_EQ(OwnerOfKey("@alice/k/1"), "alice");
  EXPECT_EQ(OwnedKey({"", Role::kOwner}, "k"), "k");
  for (const char* none : {"", "k", "alice/k", "@", "@/k", "@alice", "@Al ice/k", "@a\n/k"}) {
    EXPECT_EQ(OwnerOfKey(none), "") << none;
  }
  const CallerAccess bob = {{"bob", Role::kSubmitter}, true};
  EXPECT_TRUE(CheckOwner(bob, "j", "@bob/k").ok());
  for (const char* others : {"k", "@alice/k", "@bobby/k", "bob/k", ""}) {
    EXPECT_TRUE(absl::IsNotFound(CheckOwner(bob, "j", others))) << others;
  }
  EXPECT_TRUE(CheckOwner({{"otto", Role::kOperator}, false}, "j", "@alice/k").ok());
}

// The table in docs/reference/security.md is the same as the program's.
TEST(Roles, AreDocumented) {
  const auto page = RealFileSystem().Read("docs/reference/security.md");
  ASSERT_TRUE(page.ok()) << page.status();
  const auto text = [](Access access) {
    return access == Access::kAll ? "yes" : access == Access::kOwn ? "own" : "no";
  };
  for (const security::CallRule& rule : security::CallRules()) {
    const std::string row = absl::StrCat("| ", rule.call, " | ", text(rule.reader), " | ", text(rule.submitter), " | ",
                                         text(rule.worker), " | ", text(rule.op), " |\n");
    EXPECT_THAT(*page, HasSubstr(row));
  }
}

}  // namespace
}  // namespace xlad::service
