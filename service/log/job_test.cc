#include "service/log/job.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace xlad::service
