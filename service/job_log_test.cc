#include "service/job_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file_system.h"

namespace xlad::service {
namespace {

std::string TestPath() {
  return JoinPath(testing::TempDir(), absl::StrCat("job_log_test_", getpid(), ".sqlite"));
}

JobEvent Event(const std::string& job, const std::string& key) {
  JobEvent event;
  event.set_job_id(job);
  event.mutable_submitted()->set_client_key(key);
  return event;
}

class SqliteJobLogTest : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(TestPath() + suffix);
  }
};

TEST_F(SqliteJobLogTest, ReadsBackEventsAndMetrics) {
  {
    auto log = OpenSqliteJobLog(TestPath());
    ASSERT_TRUE(log.ok()) << log.status();
    for (int i = 0; i < 50; ++i) {
      std::vector<JobEvent> events = {Event("a", absl::StrCat(i)), Event("b", absl::StrCat(i))};
      ASSERT_TRUE((*log)->Append(&events).ok());
      EXPECT_EQ(events[1].sequence(), 2 * i + 2);
    }
    std::vector<StepMetrics> metrics(20);
    for (int i = 0; i < 20; ++i) metrics[i].set_step(i);
    ASSERT_TRUE((*log)->AppendMetrics("a", metrics).ok());
    metrics[0].set_step_ms(99);
    ASSERT_TRUE((*log)->AppendMetrics("a", metrics).ok());  // Recorded already: the first values stay.
  }
  auto log = OpenSqliteJobLog(TestPath());
  ASSERT_TRUE(log.ok()) << log.status();
  const auto events = *(*log)->ReadEvents();
  ASSERT_EQ(events.size(), 100u);
  EXPECT_EQ(events[99].submitted().client_key(), "49");
  const auto metrics = *(*log)->ReadMetrics("a", 5, 10);
  ASSERT_EQ(metrics.size(), 10u);
  EXPECT_EQ(metrics[0].step(), 5);
  EXPECT_EQ((*(*log)->ReadMetrics("a", 0, 1))[0].step_ms(), 0);
  EXPECT_EQ((*(*log)->LastMetrics("a"))->step(), 19);
  EXPECT_FALSE((*(*log)->LastMetrics("b")).has_value());
}

TEST_F(SqliteJobLogTest, SecondCoordinatorIsRefused) {
  auto log = OpenSqliteJobLog(TestPath());
  ASSERT_TRUE(log.ok());
  const auto second = OpenSqliteJobLog(TestPath());
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
}

TEST_F(SqliteJobLogTest, DamagedFileIsAnError) {
  ASSERT_TRUE(RealFileSystem().WriteAtomically(TestPath(), std::string(8192, 'x')).ok());
  EXPECT_TRUE(absl::IsDataLoss(OpenSqliteJobLog(TestPath()).status()));
}

}  // namespace
}  // namespace xlad::service
