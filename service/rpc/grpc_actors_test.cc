// Who made a request is recorded in the log and shown to clients.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include "base/file_system.h"
#include "base/net/grpc_channel.h"
#include "base/testing/test_folder.h"
#include "proto/worker.grpc.pb.h"
#include "service/rpc/coordinator_daemon.h"
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr char kAlice[] = "alice (token 1a2b3c4d)";
constexpr char kOtto[] = "otto (token 5e6f7a8b)";

// Makes a request of `actor`.
void As(const std::string& actor, Cluster* cluster, const std::function<void(CoordinatorCore&)>& request) {
  cluster->Do([&](CoordinatorCore& coordinator) {
    const ActingFor acting(&coordinator, actor);
    request(coordinator);
  });
}

std::string SubmitAs(const std::string& actor, const std::string& key, const JobSpec& spec, Cluster* cluster) {
  SubmitJobRequest request;
  request.set_client_key(key);
  *request.mutable_spec() = spec;
  std::string id;
  As(actor, cluster, [&](CoordinatorCore& coordinator) { id = coordinator.Submit(request)->job_id(); });
  return id;
}

// The events of the log with an actor: "KIND of ACTOR: TEXT", in order.
std::vector<std::string> Requested(const MemoryJobStore& store) {
  std::vector<std::string> out;
  for (const JobEvent& event : store.events) {
    const JobLogResponse::Event shown = ForClients(event);
    EXPECT_EQ(shown.actor(), event.actor());
    if (!event.actor().empty()) out.push_back(absl::StrCat(shown.kind(), " of ", shown.actor(), ": ", shown.text()));
  }
  return out;
}

TEST(Actors, AreInTheRecordsOfTheirRequests) {
  Cluster cluster;
  cluster.Register(1, "a");
  cluster.Register(2, "b");
  const std::string job = SubmitAs(kAlice, "@alice/k", cluster.Spec(4), &cluster);
  cluster.Built();
  cluster.Start(job, {1, 2});
  EXPECT_EQ(cluster.Status(job).owner(), "alice");
  As(kOtto, &cluster, [](CoordinatorCore& c) { EXPECT_TRUE(c.Drain(WorkerId("b")).ok()); });
  As(kOtto, &cluster, [](CoordinatorCore& c) { EXPECT_TRUE(c.Undrain(WorkerId("b")).ok()); });
  ResizeJobRequest resize;
  resize.set_job_id(job);
  *resize.mutable_mesh() = cluster.Spec(2).mesh();
  As(kOtto, &cluster, [&](CoordinatorCore& c) { EXPECT_TRUE(c.Resize(resize).ok()); });
  As(kOtto, &cluster, [&](CoordinatorCore& c) { EXPECT_TRUE(c.Cancel(JobId(job)).ok()); });
  const std::vector<std::string> requested = Requested(cluster.store);
  ASSERT_EQ(requested.size(), 5u) << testing::PrintToString(requested);
  EXPECT_THAT(requested[0], AllOf(HasSubstr(absl::StrCat("submitted of ", kAlice, ": submitted")),
                                  EndsWith(absl::StrCat(" by ", kAlice))));
  EXPECT_EQ(requested[1], absl::StrCat("drain_changed of ", kOtto, ": worker b drained by ", kOtto));
  EXPECT_EQ(requested[2], absl::StrCat("drain_changed of ", kOtto, ": worker b undrained by ", kOtto));
  EXPECT_EQ(requested[3], absl::StrCat("resized of ", kOtto, ": resized to dp=2: ", kOtto, " asked for it"));
  EXPECT_EQ(requested[4], absl::StrCat("ended of ", kOtto, ": CANCELLED: canceled by ", kOtto));
  EXPECT_GT(cluster.store.events.size(), requested.size() + 3);  // The others have no actor.
  // After a restart of the coordinator, the same is known from the log.
  cluster.Restart();
  EXPECT_EQ(cluster.Status(job).owner(), "alice");
  EXPECT_EQ(cluster.Status(job).reason(), absl::StrCat("canceled by ", kOtto));
  const WhyJobResponse why = cluster.coordinator().Why(JobId(job)).value();
  EXPECT_EQ(why.submitted_by(), kAlice);
  EXPECT_THAT(why.text(), EndsWith(absl::StrCat(" It was submitted by ", kAlice, ".")));
}

TEST(Actors, OfSessions) {
  Cluster cluster;
  cluster.Register(1, "a");
  OpenSessionRequest open;
  open.set_client_key("@alice/s");
  open.add_mesh()->set_size(2);
  std::string id;
  As(kAlice, &cluster, [&](CoordinatorCore& c) { id = c.OpenSession(open)->job_id(); });
  As(kAlice, &cluster, [&](CoordinatorCore& c) { EXPECT_TRUE(c.CloseSession(JobId(id)).ok()); });
  const std::vector<std::string> requested = Requested(cluster.store);
  ASSERT_EQ(requested.size(), 2u) << testing::PrintToString(requested);
  EXPECT_THAT(requested[0], EndsWith(absl::StrCat(" by ", kAlice)));
  EXPECT_EQ(requested[1], absl::StrCat("ended of ", kAlice, ": SUCCEEDED: closed by ", kAlice));
}

// The logs of older versions have no actors.
TEST(Actors, AreMissingInOldLogs) {
  Cluster cluster;
  cluster.Register(1, "a");
  const std::string job = cluster.Submit(2);
  cluster.Do([](CoordinatorCore& c) { EXPECT_TRUE(c.Drain(WorkerId("a")).ok()); });
  cluster.Do([&](CoordinatorCore& c) { EXPECT_TRUE(c.Cancel(JobId(job)).ok()); });
  EXPECT_TRUE(Requested(cluster.store).empty());
  std::string text;
  for (const JobEvent& event : cluster.store.events) absl::StrAppend(&text, Describe(event), "\n");
  EXPECT_THAT(text, AllOf(HasSubstr("worker a drained by an operator\n"), HasSubstr("canceled by a client\n"),
                          Not(HasSubstr(" by \n"))));
  EXPECT_EQ(cluster.Status(job).owner(), "");
  EXPECT_THAT(cluster.coordinator().Why(JobId(job))->text(), Not(HasSubstr("It was submitted by")));
}

// On loopback, the actor is the user who owns the client's connection, even if the client has the shared token.
TEST(Actors, OnLoopbackAreUsersOfTheMachine) {
  const passwd* const entry = getpwuid(geteuid());
  const std::string id = absl::StrCat("uid ", geteuid()), name = entry == nullptr ? "" : entry->pw_name;
  const std::string owner = name.empty() ? id : name;
  for (const bool has_token : {false, true}) {
    const TestFolder folder;
    DaemonOptions options;
    options.listen = "127.0.0.1:0";
    options.data_folder = JoinPath(folder.path(), "data");
    options.program_path = "/bin/false";
    if (has_token) {
      options.token_file = JoinPath(folder.path(), "token");
      ASSERT_TRUE(RealFileSystem().WriteAtomically(options.token_file, "a shared secret\n").ok());
    }
    const auto daemon = CoordinatorDaemon::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    const auto channel = MakeChannel({(*daemon)->Address(), "", options.token_file});
    ASSERT_TRUE(channel.ok()) << channel.status();
    const auto stub = Coordinator::NewStub(*channel);
    OpenSessionRequest open;
    open.set_client_key("session");
    open.add_mesh()->set_size(1);
    OpenSessionResponse session;
    grpc::ClientContext opening, reading, listing;
    for (grpc::ClientContext* context : {&opening, &reading, &listing}) {
      PrepareCall(context, has_token ? "a shared secret" : "", /*timeout_ms=*/600'000);
    }
    ASSERT_TRUE(stub->OpenSession(&opening, open, &session).ok());
    JobLogRequest request;
    request.set_job_id(session.session_id());
    JobLogResponse log;
    ASSERT_TRUE(stub->JobLog(&reading, request, &log).ok());
    ASSERT_GE(log.events_size(), 1);
    const std::string how = has_token ? "shared token" : "";
    const std::string actor = name.empty() ? absl::StrCat(id, how.empty() ? "" : absl::StrCat(" (", how, ")"))
                                           : absl::StrCat(name, " (", id, how.empty() ? "" : ", ", how, ")");
    EXPECT_EQ(log.events(0).actor(), actor);
    EXPECT_THAT(log.events(0).text(), EndsWith(absl::StrCat(" by ", actor)));
    ListJobsResponse jobs;
    ASSERT_TRUE(stub->ListJobs(&listing, {}, &jobs).ok());
    ASSERT_EQ(jobs.jobs_size(), 1);
    EXPECT_EQ(jobs.jobs(0).owner(), owner);
  }
}

}  // namespace
}  // namespace xlad::service
