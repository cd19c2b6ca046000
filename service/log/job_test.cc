#include "service/log/job.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/mesh.h"
#include "service/log/jobs.h"

namespace xlad::service {
namespace {

TEST(NoteLoss, FindsTheLossAmongTheMetrics) {
  using Result = JobSpec::Result;
  struct Case {
    std::vector<Result::Kind> results;
    bool has_loss;
    float loss;
  };
  const std::vector<Case> cases = {{{Result::STATE, Result::LOSS}, true, 10},
                                   {{Result::STATE, Result::METRIC, Result::LOSS}, true, 20},
                                   {{Result::METRIC, Result::STATE, Result::METRIC, Result::LOSS}, true, 30},
                                   {{Result::LOSS, Result::METRIC}, true, 10},
                                   {{Result::METRIC}, false, 0},
                                   {{}, false, 0}};
  for (const Case& c : cases) {
    Job job;
    StepMetrics metrics;
    for (const Result::Kind kind : c.results) {
      job.spec.add_results()->set_kind(kind);
      if (kind != Result::STATE) metrics.add_values(10 * static_cast<float>(metrics.values_size() + 1));
    }
    NoteLoss(metrics, &job);
    EXPECT_EQ(job.has_loss, c.has_loss);
    EXPECT_EQ(job.loss, c.loss);
  }
}

TEST(MeshText, HasTheAxesInOrder) {
  Mesh mesh;
  EXPECT_EQ(MeshText(mesh), "single");
  for (const auto& [name, size] : {std::pair("dp", 4), std::pair("tp", 2)}) {
    MeshAxis* const axis = mesh.Add();
    axis->set_name(name);
    axis->set_size(size);
  }
  EXPECT_EQ(MeshText(mesh), "dp=4,tp=2");
  EXPECT_EQ(MeshText(std::vector<MeshAxis>(mesh.begin(), mesh.end())), "dp=4,tp=2");
}

TEST(Apply, TheWarningsOfTheBuildAreThoseOfTheCurrentExecutable) {
  Job job;
  const auto apply = [&](const JobEvent& event) { Apply(event, &job); };
  JobEvent built;
  built.mutable_built()->set_executable_digest("0123456789abcdef");
  built.mutable_built()->set_compile_ms(12);
  apply(built);
  EXPECT_TRUE(job.warnings.empty());
  EXPECT_EQ(Describe(built), "built executable 0123456789ab in 12 ms");
  built.mutable_built()->add_warnings("3 operations are repeated");
  built.mutable_built()->add_warnings("an axis is unused");
  apply(built);
  EXPECT_EQ(job.warnings, std::vector<std::string>({"3 operations are repeated", "an axis is unused"}));
  EXPECT_EQ(Describe(built), "built executable 0123456789ab in 12 ms; 3 operations are repeated; an axis is unused");
  EXPECT_EQ(ForClients(built).text(), Describe(built));
  JobEvent resized;
  resized.mutable_resized()->add_mesh()->set_size(2);
  apply(resized);
  EXPECT_TRUE(job.warnings.empty());
}

// The last job of a page is removed before the next page is requested.
TEST(Jobs, APageCanFollowARemovedJob) {
  std::vector<JobEvent> events;
  for (int i = 0; i < 6; ++i) {
    events.emplace_back().set_job_id(absl::StrCat("job-", i));
    events.back().mutable_submitted()->set_client_key(absl::StrCat("key-", i));
  }
  JobEvent& removed = events.emplace_back();
  for (const char* id : {"job-0", "job-1", "job-4", "job-unknown"}) removed.mutable_removed()->add_job_ids(id);
  Jobs jobs;
  for (const JobEvent& event : events) jobs.Apply(event);
  jobs.Apply(removed);  // Events may be applied again after a restart.
  const auto after = [&](const char* id) {
    std::vector<std::string> ids;
    for (const Job* job : jobs.Page(JobId(id), 2)) ids.push_back(job->id.str());
    return ids;
  };
  using Ids = std::vector<std::string>;
  EXPECT_EQ(after("job-1"), Ids({"job-2", "job-3"}));
  EXPECT_EQ(after("job-2"), Ids({"job-3", "job-5"}));
  EXPECT_EQ(after("job-4"), Ids({"job-5"}));
  EXPECT_EQ(after(""), Ids({"job-2", "job-3"}));
  EXPECT_EQ(after("job-unknown"), Ids({"job-2", "job-3"}));
}

}  // namespace
}  // namespace xlad::service
