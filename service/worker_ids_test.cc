// The worker of a refused token is lost like any other.
#include "service/testing/cluster.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;

TEST(WorkerIds, AJobWhoseWorkerIsRefusedGoesOnByItsPolicy) {
  Cluster cluster;
  JobSpec spec = cluster.Spec(4);
  spec.set_on_loss(JobSpec::SHRINK);
  const std::string job = cluster.RunningJob(spec);
  cluster.Gone(1, "found token 0123456789ab, which was revoked");
  cluster.RunFor(CoordinatorOptions().lost_ms + 200, {2});
  EXPECT_EQ(cluster.Status(job).state(), PENDING);
  const std::string lost =
      "it was refused: found token 0123456789ab, which was revoked; it has not been connected for 10000 ms";
  EXPECT_THAT(cluster.Status(job).reason(), HasSubstr(lost));
  EXPECT_THAT(cluster.coordinator().workers().List().workers(0).reason(), HasSubstr(lost));
  cluster.RunFor(4000, {2});
  EXPECT_EQ(cluster.Status(job).state(), COMPILING);
  EXPECT_EQ(cluster.Status(job).mesh(0).size(), 2);
}

}  // namespace
}  // namespace xlad::service
