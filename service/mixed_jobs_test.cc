// Jobs that run on devices of several kinds at once.
#include <set>

#include "service/jobs/why.h"
#include "service/placement/device_mix.h"
#include "service/placement/placement.h"
#include "service/testing/cluster.h"
#include "service/testing/target.h"

namespace xlad::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns the last launch that was sent on a worker's connection.
LaunchTask LaunchOf(const Cluster& cluster, int64_t connection) {
  LaunchTask launch;
  for (const SendMessage& sent : cluster.sent) {
    if (sent.connection == ConnectionId(connection) && sent.message.has_launch()) launch = sent.message.launch();
  }
  return launch;
}

// Returns the mesh positions and executables of a launch as text: "0:digest 1:digest-1".
std::string DevicesOf(const LaunchTask& launch) {
  std::string text;
  for (const LaunchRecord& record : launch.devices()) {
    absl::StrAppend(&text, text.empty() ? "" : " ", record.device(), ":", record.executable_digest());
  }
  return text;
}

void Finish(Cluster* cluster, int64_t connection, const std::string& job,
            const std::vector<std::pair<std::string, int64_t>>& launches) {
  WorkerMessage message;
  cluster->Name(job, message.mutable_finished());
  for (const auto& [kind, count] : launches) {
    (*message.mutable_finished()->mutable_report()->mutable_launches())[kind] = count;
    (*message.mutable_finished()->mutable_report()->mutable_collectives())["memory of " + kind] = 10 * count;
  }
  cluster->Handle(connection, message);
}

TEST(MixedJobs, AJobThatNamesSeveralKindsIsBuiltForThemAtOnce) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu", "opaque"});
  cluster.Register(2, "w2", 1, {}, {"cpu", "opaque"});
  const std::string job = cluster.Submit(4, "key", 0, "opaque:2,cpu:2");
  ASSERT_EQ(cluster.builds.size(), 1);
  ASSERT_EQ(cluster.builds[0].targets.size(), 2);
  EXPECT_EQ(cluster.builds[0].targets[0].device_kind(), "opaque");
  EXPECT_EQ(cluster.builds[0].targets[1].device_kind(), "cpu");
  cluster.Built("of-opaque");
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
  const LaunchTask first = LaunchOf(cluster, 1), second = LaunchOf(cluster, 2);
  EXPECT_EQ(DevicesOf(first), "0:of-opaque 2:of-opaque-1") << "the kind that is named first has the lowest positions";
  EXPECT_EQ(DevicesOf(second), "1:of-opaque 3:of-opaque-1");
  ASSERT_EQ(first.peers_size(), 2) << "one for each worker";
  EXPECT_THAT(first.peers(0).devices(), ElementsAre(0, 2));
  EXPECT_THAT(first.peers(1).devices(), ElementsAre(1, 3));
}

TEST(MixedJobs, AJobRunsOnTheFirstKindThatHasEnoughDevices) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  cluster.Register(2, "w2", 1, {}, {"opaque"});
  cluster.Register(3, "w3", 1, {}, {"opaque"});
  cluster.Submit(2, "a", 0, "opaque,cpu");
  cluster.Submit(4, "b", 0, "cpu,opaque");
  ASSERT_EQ(cluster.builds.size(), 2);
  for (const StartBuild& build : cluster.builds) {
    ASSERT_EQ(build.targets.size(), 1);
    EXPECT_EQ(build.targets[0].device_kind(), "opaque");
  }
}

TEST(MixedJobs, CountsLimitHowManyDevicesAJobTakes) {
  Cluster cluster;
  for (int64_t w = 1; w <= 3; ++w) cluster.Register(w, absl::StrCat("w", w), 1, {}, {"cpu"});
  cluster.Register(4, "w4", 1, {}, {"opaque"});
  const std::string job = cluster.Submit(4, "key", 0, "cpu:3,opaque:2");
  cluster.Built();
  ASSERT_EQ(cluster.Status(job).state(), STARTING);
  EXPECT_EQ(DevicesOf(LaunchOf(cluster, 4)), "3:digest-1");
  const std::string too_many = cluster.Submit(8, "too many", 0, "cpu:3,opaque:2");
  cluster.RunFor(5000, {1, 2, 3, 4});
  EXPECT_EQ(cluster.Status(too_many).state(), FAILED);
  EXPECT_EQ(cluster.Status(too_many).reason(),
            "--device: found cpu:3,opaque:2, expected 8 or more devices for the mesh");
}

TEST(MixedJobs, DevicesOfEachKindAreUsedUntilTheJobEnds) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu", "opaque"});
  const std::string first = cluster.Submit(2, "first", 0, "cpu:1,opaque:1");
  cluster.Built();
  cluster.Start(first, {1});
  const std::string second = cluster.Submit(1, "second", 0, "opaque");
  cluster.Built("second");
  EXPECT_EQ(cluster.Status(second).reason(), "waits for 1 device, 0 are free of 1");
  cluster.Do([&](CoordinatorCore& c) { ASSERT_TRUE(c.Cancel(JobId(first)).ok()); });
  EXPECT_EQ(cluster.Status(second).state(), STARTING);
}

TEST(MixedJobs, AKindThatNoWorkerHasIsNamed) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  const std::string job = cluster.Submit(4, "key", 0, "cpu:2,tpu_sim:v5e:2");
  EXPECT_TRUE(cluster.builds.empty());
  EXPECT_EQ(cluster.Status(job).state(), PENDING) << "another worker may still register";
  const Context& context = cluster.coordinator().context();
  EXPECT_THAT(WhyJob(context, *context.jobs.Find(JobId(job)), "").text(),
              HasSubstr("start workers with 2 more devices"));
  cluster.RunFor(5000, {1});
  EXPECT_EQ(cluster.Status(job).state(), FAILED);
  EXPECT_EQ(cluster.Status(job).reason(),
            "no worker has devices of kind tpu_sim:v5e; the workers have cpu: 2 on w1; start a worker with --device "
            "tpu_sim:v5e");
}

TEST(MixedJobs, AJobWaitsForDevicesOfTheKindsThatItNames) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu", "opaque"});
  const std::string job = cluster.Submit(4, "key", 0, "cpu,opaque");
  EXPECT_EQ(cluster.Status(job).reason(),
            "waits for 4 devices of cpu,opaque; the workers have cpu: 1 on w1; opaque: 1 on w1");
  cluster.RunFor(10'000, {1});
  EXPECT_EQ(cluster.Status(job).state(), PENDING);
  cluster.Register(2, "w2", 1, {}, {"opaque"});
  ASSERT_EQ(cluster.builds.size(), 1);
  EXPECT_EQ(cluster.builds[0].targets.size(), 2);
}

TEST(MixedJobs, AJobThatNamesNoKindsTakesSeveralAsALastResort) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  cluster.Register(2, "w2", 1, {}, {"opaque"});
  const std::string job = cluster.Submit(4);
  EXPECT_EQ(cluster.Status(job).reason(),
            "waits for 4 devices of the same kind; later it accepts a mix; the workers have cpu: 2 on w1; "
            "opaque: 2 on w2");
  cluster.RunFor(2000, {1, 2});
  EXPECT_TRUE(cluster.builds.empty());
  cluster.RunFor(2000, {1, 2});
  ASSERT_EQ(cluster.builds.size(), 1);
  EXPECT_EQ(cluster.builds[0].targets.size(), 2);
  cluster.Built();
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
}

TEST(MixedJobs, ARestartedCoordinatorPlacesTheJobOnItsKinds) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu", "opaque"});
  const std::string job = cluster.Submit(2, "key", 0, "cpu:1,opaque:1");
  cluster.Built();
  cluster.Start(job, {1});
  cluster.Gone(1);
  cluster.Advance(60'000);
  EXPECT_EQ(cluster.Status(job).state(), PENDING);
  cluster.Restart();
  cluster.Register(2, "w1", 2, {}, {"cpu", "opaque"});
  ASSERT_THAT(cluster.loads, ElementsAre("digest"));
  cluster.Do([](CoordinatorCore& c) { c.OnPlanLoaded("digest", PlannedProgram{TargetOf("cpu", ""), {}}); });
  EXPECT_EQ(cluster.Status(job).state(), STARTING);
  EXPECT_EQ(DevicesOf(LaunchOf(cluster, 2)), "0:digest 1:digest-1");
  EXPECT_EQ(cluster.builds.size(), 1) << "the program is not built again";
}

TEST(MixedJobs, AResizedJobIsBuiltForTheKindsThatItNeeds) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu", "opaque"});
  const std::string job = cluster.Submit(2, "key", 0, "cpu:1,opaque:1");
  ResizeJobRequest request;
  request.set_job_id(job);
  *request.mutable_mesh() = cluster.Spec(1).mesh();
  cluster.Do([&](CoordinatorCore& c) { ASSERT_TRUE(c.Resize(request).ok()); });
  ASSERT_EQ(cluster.builds.size(), 2);
  EXPECT_EQ(cluster.builds[1].targets.size(), 1);
  cluster.Built("small");
  EXPECT_EQ(DevicesOf(LaunchOf(cluster, 1)), "0:");
  EXPECT_EQ(LaunchOf(cluster, 1).executable_digest(), "small");
}

TEST(MixedJobs, ASessionThatNeedsSeveralKindsIsRefused) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  cluster.Register(2, "w2", 1, {}, {"opaque"});
  JobSpec spec = cluster.Spec(4);
  spec.set_session(true);
  const std::string session = cluster.Submit(spec);
  cluster.RunFor(5000, {1, 2});
  EXPECT_EQ(cluster.Status(session).state(), FAILED);
  EXPECT_THAT(cluster.Status(session).reason(), HasSubstr("jobs can run on several kinds, sessions cannot"));
}

TEST(MixedJobs, TheReportOfAJobIsTheSumOfItsWorkersReports) {
  Cluster cluster;
  cluster.Register(1, "w1", 1, {}, {"cpu"});
  cluster.Register(2, "w2", 1, {}, {"cpu", "opaque"});
  JobSpec spec = cluster.Spec(4, 0, "cpu:3,opaque:1");
  spec.set_keep_final_state(false);
  const std::string job = cluster.Submit(spec);
  cluster.Built();
  cluster.Start(job, {1, 2});
  Finish(&cluster, 1, job, {{"cpu", 5}});
  Finish(&cluster, 1, job, {{"cpu", 7}});  // The worker repeats the message, which counts only once.
  EXPECT_TRUE(cluster.Status(job).report().launches().empty());
  Finish(&cluster, 2, job, {{"cpu", 20}, {"opaque", 3}});
  cluster.Restart();
  const JobStatus status = cluster.Status(job);
  EXPECT_EQ(status.state(), SUCCEEDED);
  EXPECT_EQ(status.report().launches().size(), 2);
  EXPECT_EQ(status.report().launches().at("cpu"), 27);
  EXPECT_EQ(status.report().launches().at("opaque"), 3);
  EXPECT_EQ(status.report().collectives().size(), 2);
  EXPECT_EQ(status.report().collectives().at("memory of cpu"), 270);
  EXPECT_EQ(status.report().collectives().at("memory of opaque"), 30);
}

TEST(AllowedDevices, AreReadFromText) {
  const auto text_of = [](const std::string& text) {
    const auto parsed = ParseAllowedDevices(text);
    if (!parsed.ok()) return std::string(parsed.status().message());
    std::string out;
    for (const AllowedDevices& devices : *parsed) {
      const bool any = devices.most == std::numeric_limits<int64_t>::max();
      absl::StrAppend(&out, "[", devices.name, any ? "" : absl::StrCat(" ", devices.most), "]");
    }
    return out;
  };
  EXPECT_EQ(text_of(""), "");
  EXPECT_EQ(text_of("cpu"), "[cpu]");
  EXPECT_EQ(text_of("cpu:4,gpu_sim:2,tpu_sim:v5e:2"), "[cpu 4][gpu_sim 2][tpu_sim:v5e 2]");
  EXPECT_EQ(text_of("tpu_sim:/chips/my.toml"), "[tpu_sim:/chips/my.toml]");
  EXPECT_EQ(text_of("cpu,"), "found \"\", expected KIND[:MODEL][:COUNT]");
  EXPECT_EQ(text_of(":3"), "found \":3\", expected KIND[:MODEL][:COUNT]");
  EXPECT_EQ(text_of("cpu:0"), "found count 0 in \"cpu:0\", expected 1 to 1048576");
  EXPECT_EQ(text_of("cpu:99999999999999999999"),
            "found count 99999999999999999999 in \"cpu:99999999999999999999\", expected 1 to 1048576");
  EXPECT_EQ(text_of("cpu:1,cpu"), "found cpu twice in \"cpu:1,cpu\", expected each kind and model once");
}

// A program with one collective outside a loop and one inside.
Executable Program(const Target& target) {
  Executable executable;
  *executable.mutable_target() = target;
  executable.set_program_hash("hash");
  executable.add_collectives()->set_collective_id(1);
  executable.add_collectives()->set_collective_id(2);
  EntryValue* parameter = executable.add_parameters();
  parameter->set_name("w");
  parameter->add_boxes()->add_hi(4);
  parameter->mutable_buffer()->set_allocation(3);
  *executable.add_results() = *parameter;
  executable.add_steps()->mutable_collective()->set_spec(0);
  Step* loop = executable.add_steps();
  loop->mutable_while_()->add_body()->mutable_collective()->set_spec(1);
  loop->mutable_while_()->add_condition()->mutable_kernel()->set_symbol("c");
  return executable;
}

TEST(CheckSameProgram, MemoryAndOtherStepsMayDiffer) {
  const Executable first = Program(TargetOf("cpu", "znver3"));
  Executable other = Program(TargetOf("opaque", "znver5"));
  other.mutable_parameters(0)->mutable_buffer()->set_allocation(7);
  other.mutable_parameters(0)->set_donated(true);
  other.add_steps()->mutable_kernel()->set_symbol("k");
  other.add_steps()->mutable_while_()->add_body()->mutable_kernel()->set_symbol("inner");
  other.set_object_code("other code");
  EXPECT_TRUE(CheckSameProgram(first, other).ok());
}

TEST(CheckSameProgram, EachDifferenceThatMattersIsNamed) {
  const Executable first = Program(TargetOf("cpu", "znver3"));
  const auto message = [&](const std::function<void(Executable*)>& change) {
    Executable other = Program(TargetOf("opaque", "znver3"));
    change(&other);
    return std::string(CheckSameProgram(first, other).message());
  };
  EXPECT_THAT(message([](Executable* e) { e->set_program_hash("other"); }), HasSubstr("the partitioned program"));
  EXPECT_THAT(message([](Executable* e) { e->mutable_collectives(1)->set_collective_id(3); }),
              HasSubstr("the collectives"));
  EXPECT_THAT(message([](Executable* e) { e->mutable_steps()->SwapElements(0, 1); }),
              HasSubstr("the order of collectives: found while()(1) 0, expected 0 while()(1)"));
  EXPECT_THAT(message([](Executable* e) {
                Step step = e->steps(1).while_().body(0);
                *e->mutable_steps(1) = step;
              }),
              HasSubstr("found 0 1, expected 0 while()(1)"));
  EXPECT_THAT(message([](Executable* e) { e->mutable_parameters(0)->mutable_boxes(0)->set_hi(0, 5); }),
              HasSubstr("the sharding of the parameters"));
  EXPECT_THAT(message([](Executable* e) { e->clear_results(); }), HasSubstr("the sharding of the results"));
  EXPECT_THAT(message([](Executable* e) { e->clear_steps(); }), HasSubstr("cpu (znver3) and opaque (znver3)"));
}

}  // namespace
}  // namespace xlad::service
