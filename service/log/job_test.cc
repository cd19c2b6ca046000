#include "service/log/job.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "proto/mesh.h"

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

}  // namespace
}  // namespace xlad::service
