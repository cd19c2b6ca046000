// Every call of the coordinator with every kind of caller, over TLS: access follows security/roles.h.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/net/grpc_channel.h"
#include "base/testing/test_folder.h"
#include "proto/protocol.h"
#include "proto/reflection.pb.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"
#include "security/certificates.h"
#include "security/private_files.h"
#include "security/tokens.h"
#include "service/access.h"
#include "service/credentials/managed_security.h"
#include "service/rpc/coordinator_daemon.h"
#include "service/testing/grpc_access_fixture.h"

namespace xlad::service {
namespace {

using security::Access;
using security::Role;
using ::testing::HasSubstr;

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

// The outcome of a call that the caller may make.
struct Outcome {
  grpc::StatusCode code = grpc::OK;
  std::string text;  // Part of the message.
};

// Makes calls that reach their handlers. For each call about a job or a session, user "submitter" starts a new one.
class EveryCall : public JobsOfTwoUsers {
 protected:
  std::string NewJob() {
    submit_.set_client_key(absl::StrCat("job-", ++made_));
    SubmitJobResponse response;
    EXPECT_TRUE(As("submitter", [&](grpc::ClientContext* c) { return stub_->SubmitJob(c, submit_, &response); }).ok());
    return response.job_id();
  }
  std::string NewSession(bool ended) {
    OpenSessionRequest open;
    open.set_client_key(absl::StrCat("session-", ++made_));
    OpenSessionResponse response;
    EXPECT_TRUE(As("submitter", [&](grpc::ClientContext* c) { return stub_->OpenSession(c, open, &response); }).ok());
    CloseSessionRequest close;
    close.set_session_id(response.session_id());
    CloseSessionResponse closed;
    if (!ended) return response.session_id();
    EXPECT_TRUE(As("submitter", [&](grpc::ClientContext* c) { return stub_->CloseSession(c, close, &closed); }).ok());
    return response.session_id();
  }

  // The request of a call about a job or a session: its id is field 1 of all these requests. A session has ended if the
  // call would wait for its workers.
  std::string RequestAbout(const std::string& call, bool is_session) {
    GetJobRequest named;
    named.set_job_id(is_session ? NewSession(call != "HoldSession" && call != "CloseSession") : NewJob());
    LoadProgramRequest load;
    load.set_program_blob(submit_.spec().program_blob());
    AddProgramRequest add;
    add.set_executable_digest(submit_.spec().program_blob());
    ResizeJobRequest resize;
    *resize.mutable_mesh() = submit_.spec().mesh();
    PutArrayRequest put;
    put.mutable_shape()->set_element_type(11);  // f32
    PutBatchRequest batch;
    batch.set_last(true);
    const std::map<std::string, std::string> further = {{"LoadProgram", load.SerializeAsString()},
                                                        {"AddProgram", add.SerializeAsString()},
                                                        {"ResizeJob", resize.SerializeAsString()},
                                                        {"PutArray", put.SerializeAsString()},
                                                        {"PutBatch", batch.SerializeAsString()}};
    const auto found = further.find(call);
    return named.SerializeAsString() + (found == further.end() ? "" : found->second);
  }

  std::string RequestFor(const security::CallRule& rule) {
    const std::string call = rule.call;
    const bool is_about_a_job = call == "GetBatchRange" || (rule.submitter == Access::kOwn && call != "ListJobs");
    if (is_about_a_job) {
      const bool is_session = call.find("Session") != std::string::npos || call.find("Program") != std::string::npos ||
                              call.find("Array") != std::string::npos;
      return RequestAbout(call, is_session);
    }
    if (call == "SubmitJob") {
      submit_.set_client_key(absl::StrCat("own-", ++made_));
      return submit_.SerializeAsString();
    }
    if (call == "OpenSession") {
      OpenSessionRequest open;
      open.set_client_key(absl::StrCat("own-", ++made_));
      return open.SerializeAsString();
    }
    WorkerMessage attach;
    attach.mutable_register_()->set_worker_id("w");
    attach.mutable_register_()->set_devices(1);
    attach.mutable_register_()->set_protocol(kProtocol + 1);  // The worker is refused, so no job runs.
    BackupRequest backup;
    backup.set_folder(JoinPath(folder_, absl::StrCat("backup-", ++made_)));
    DrainWorkerRequest drain;
    drain.set_worker_id("absent");
    PutBlobRequest put;
    put.set_digest(submit_.spec().program_blob());
    put.set_chunk(kProgram);
    GetBlobRequest get;  // Its digest is field 1 of all requests about blobs.
    get.set_digest(submit_.spec().program_blob());
    grpc::reflection::v1::ServerReflectionRequest reflection;
    reflection.set_list_services("");
    const std::map<std::string, std::string> requests = {
        {"Attach", attach.SerializeAsString()},
        {"Backup", backup.SerializeAsString()},
        {"DrainWorker", drain.SerializeAsString()},
        {"UndrainWorker", drain.SerializeAsString()},
        {"PutBlob", put.SerializeAsString()},
        {"HasBlobs", get.SerializeAsString()},
        {"GetBlob", get.SerializeAsString()},
        {"GetBlobRange", get.SerializeAsString()},
        {"grpc.reflection.v1.ServerReflection/ServerReflectionInfo", reflection.SerializeAsString()},
        {"grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", reflection.SerializeAsString()}};
    const auto found = requests.find(call);
    return found == requests.end() ? "" : found->second;
  }

  // What the handler answers to RequestFor.
  static Outcome Allowed(const std::string& call) {
    const Outcome ended = {grpc::ABORTED, "session"}, no_stream = {grpc::FAILED_PRECONDITION, "is not a stream"};
    const std::map<std::string, Outcome> outcomes = {{"DrainWorker", {grpc::NOT_FOUND, "no worker absent"}},
                                                     {"UndrainWorker", {grpc::FAILED_PRECONDITION, "is not drained"}},
                                                     {"PutBatch", no_stream},
                                                     {"GetBatchRange", no_stream},
                                                     {"LocateSession", ended},
                                                     {"LoadProgram", ended},
                                                     {"AddProgram", ended},
                                                     {"CallProgram", ended},
                                                     {"FreeArrays", ended},
                                                     {"PutArray", ended},
                                                     {"GetArray", ended}};
    const auto found = outcomes.find(call);
    return found == outcomes.end() ? Outcome() : found->second;
  }

  static Outcome Expected(const security::CallRule& rule, Access access, bool owns) {
    if (access == Access::kDenied) return {grpc::PERMISSION_DENIED, absl::StrCat("which may not call ", rule.call)};
    // The error code is the same as for a job that does not exist.
    const bool is_own = access == Access::kOwn && std::string(rule.call) != "ListJobs";
    return is_own && !owns ? Outcome{grpc::NOT_FOUND, "of user bob"} : Allowed(rule.call);
  }

  void Check(const std::shared_ptr<grpc::Channel>& channel, const std::string& who, const std::string& token,
             const security::CallRule& rule, const Outcome& expected) {
    const grpc::Status status = FirstAnswer(channel, token, PathOf(rule.call), RequestFor(rule));
    EXPECT_EQ(status.error_code(), expected.code) << rule.call << " as " << who << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(expected.text)) << rule.call << " as " << who;
  }

  int made_ = 0;
};

TEST_F(EveryCall, WithEveryCaller) {
  const ManualClock past{1'000'000'000 * kNsPerSecond};
  security::TokenStore old(TokenFolder(JoinPath(folder_, "data")), &past);
  const std::unique_ptr<Random> random = SystemRandom();
  const std::string expired = *old.Issue(Role::kOperator, "otto", 60, random.get());
  const std::string revoked = Token(Role::kOperator, "otto");
  ASSERT_TRUE(old.Revoke(security::TokenId(revoked)).ok());
  const auto authority = security::MakeAuthority(RealClock().WallNs() / kNsPerSecond);
  const auto untrusting = ChannelTo(JoinPath(folder_, "other.pem"), authority->certificate);
  for (const security::CallRule& rule : security::CallRules()) {
    const std::pair<const char*, std::string> invalid[] = {{"", "found no token"},
                                                           {"x", "found a token that is not of the form"},
                                                           {expired.c_str(), "which has expired"},
                                                           {revoked.c_str(), "does not exist or was revoked"}};
    for (const auto& [token, why] : invalid) Check(channel_, why, token, rule, {grpc::UNAUTHENTICATED, why});
    // The caller trusts another authority, so the call is not sent.
    Check(untrusting, "wrong CA", tokens_.at("operator"), rule, {grpc::UNAVAILABLE, ""});
    Check(channel_, "reader", tokens_.at("reader"), rule, Expected(rule, rule.reader, /*owns=*/false));
    Check(channel_, "the owner", tokens_.at("submitter"), rule, Expected(rule, rule.submitter, /*owns=*/true));
    Check(channel_, "bob", tokens_.at("bob"), rule, Expected(rule, rule.submitter, /*owns=*/false));
    Check(channel_, "worker", tokens_.at("worker"), rule, Expected(rule, rule.worker, /*owns=*/false));
    Check(channel_, "operator", tokens_.at("operator"), rule, Expected(rule, rule.op, /*owns=*/false));
  }
}

TEST_F(GrpcAccessTest, CallsThatDoNotExist) {
  EXPECT_EQ(Call(channel_, "", "NoSuchCall").error_code(), grpc::UNAUTHENTICATED);
  for (const char* none :
       {"NoSuchCall", "grpc.health.v1.Health/NoSuchCall", "Attach/Attach", "other.Coordinator/Attach"}) {
    for (const auto& [who, token] : tokens_) {
      EXPECT_EQ(Call(channel_, token, none).error_code(), grpc::UNIMPLEMENTED) << none << " as " << who;
    }
  }
}

TEST(GrpcChannel, ASessionOnAnotherMachineWithoutAnAuthorityIsReportedAsASession) {
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

// The pages have one job each. Jobs of both users alternate: submitter, bob, the submitter's session, bob.
TEST_F(JobsOfTwoUsers, PagesNameOnlyJobsOfTheirReader) {
  submit_.set_client_key("second");
  SubmitJobResponse second;
  ASSERT_TRUE(As("bob", [&](grpc::ClientContext* c) { return stub_->SubmitJob(c, submit_, &second); }).ok());
  const auto pages = [&](const std::string& who) {
    std::vector<std::string> ids;
    ListJobsRequest request;
    request.set_limit(1);
    do {
      ListJobsResponse response;
      EXPECT_TRUE(As(who, [&](grpc::ClientContext* c) { return stub_->ListJobs(c, request, &response); }).ok());
      for (const JobStatus& job : response.jobs()) ids.push_back(job.id());
      request.set_after(response.next());
      if (!response.next().empty()) EXPECT_EQ(response.next(), ids.empty() ? "" : ids.back()) << who;
    } while (!request.after().empty());
    return ids;
  };
  EXPECT_EQ(pages("bob"), (std::vector<std::string>{jobs_["bob"], second.job_id()}));
  EXPECT_EQ(pages("submitter"), (std::vector<std::string>{jobs_["submitter"], session_}));
  EXPECT_EQ(pages("operator").size(), 4u);
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

// The log names the token of the caller, and clients cannot choose the name.
TEST_F(JobsOfTwoUsers, TheLogNamesTheCallers) {
  GetJobRequest named;
  named.set_job_id(jobs_["bob"]);
  ASSERT_TRUE(Call(channel_, tokens_.at("operator"), "CancelJob", named.SerializeAsString()).ok());
  JobLogRequest request;
  request.set_job_id(jobs_["bob"]);
  JobLogResponse log;
  ASSERT_TRUE(As("bob", [&](grpc::ClientContext* c) { return stub_->JobLog(c, request, &log); }).ok());
  ASSERT_GE(log.events_size(), 2);
  const auto actor = [&](const std::string& user, const std::string& who) {
    return absl::StrCat(user, " (token ", security::TokenId(tokens_.at(who)), ")");
  };
  EXPECT_EQ(log.events(0).actor(), actor("bob", "bob"));
  const JobLogResponse::Event& last = log.events(log.events_size() - 1);
  EXPECT_EQ(last.actor(), actor("otto", "operator"));
  EXPECT_EQ(last.text(), absl::StrCat("CANCELLED: canceled by ", last.actor()));
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
