#include "service/trace_store.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/testing/limited_child.h"
#include "base/testing/test_folder.h"
#include "observe/alignment.h"

namespace xlad::service {
namespace {

class TraceStoreTest : public testing::Test {
 protected:
  std::function<std::string(const std::string&)> Path() {
    return [this](const std::string& job) { return JoinPath(JoinPath(folder_.path(), job), "trace.records"); };
  }
  static TraceRecord Record(int64_t step) {
    TraceRecord record;
    record.set_worker_id("w");
    record.set_attempt(1);
    record.mutable_trace()->add_steps()->set_step(step);
    return record;
  }

  const TestFolder folder_;
};

TEST_F(TraceStoreTest, KeepsRecordsOfEachJobAcrossRestarts) {
  {
    TraceStore store(Path());
    EXPECT_EQ(store.Read("a").value(), "");
    store.Add("a", Record(1));
    store.Flush();
    store.Add("b", Record(2));
    store.Add("a", Record(3));
    EXPECT_EQ(observe::ReadTraces(store.Read("a").value()).steps.size(), 2u);
  }
  TraceStore store(Path());
  store.Add("a", Record(4));
  const observe::Traces a = observe::ReadTraces(store.Read("a").value());
  ASSERT_EQ(a.steps.size(), 3u);
  EXPECT_EQ(a.steps[0].step.step(), 1);
  EXPECT_EQ(a.steps[2].step.step(), 4);
  EXPECT_FALSE(a.full);
  EXPECT_EQ(observe::ReadTraces(store.Read("b").value()).steps.size(), 1u);
}

TEST_F(TraceStoreTest, StopsAtItsLimitAndSaysSo) {
  TraceStore store(Path(), /*max_file_bytes=*/1000);
  for (int64_t step = 0; step < 1000; ++step) {
    store.Add("a", Record(step));
    store.Flush();
  }
  const std::string file = store.Read("a").value();
  EXPECT_LT(file.size(), 1100u);
  const observe::Traces traces = observe::ReadTraces(file);
  EXPECT_TRUE(traces.full);
  EXPECT_GT(traces.steps.size(), 10u);
}

TEST_F(TraceStoreTest, RecordsAfterOneThatDidNotFitOnTheDiskCanBeRead) {
  const int status = RunWithFileLimit(/*limit=*/2000, /*is_killed=*/false, [this] {
    TraceStore store(Path());
    for (const size_t bytes : {1, 5000, 1}) {
      TraceRecord record = Record(1);
      record.set_worker_id(std::string(bytes, 'w'));
      store.Add("a", record);
      store.Flush();
    }
    return true;
  });
  ASSERT_EQ(status, 0);
  TraceStore store(Path());
  EXPECT_EQ(observe::ReadTraces(store.Read("a").value()).steps.size(), 2u);
}

TEST_F(TraceStoreTest, SaysWhatTheLastStepWasSpentOn) {
  TraceStore store(Path());
  TraceRecord record = Record(5);
  for (const char* kind : {"kernel", "collective", "loop"}) {
    record.mutable_trace()->mutable_program()->add_instructions()->set_kind(kind);
  }
  TracedStep* step = record.mutable_trace()->mutable_steps(0);
  step->set_device(3);
  step->set_end_ns(10'000'000);
  for (const auto& [instruction, ms] : std::vector<std::pair<int, int64_t>>{{2, 7}, {0, 4}, {1, 3}, {9, 100}}) {
    step->add_instruction(instruction);
    step->add_span_ns(ms * 1'000'000);
  }
  store.Add("a", record);
  const auto shares = store.Shares("a");
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_EQ(shares.at(3).step, 5);
  EXPECT_EQ(shares.at(3).compute_ms, 4);
  EXPECT_EQ(shares.at(3).collective_ms, 3);
  EXPECT_EQ(shares.at(3).other_ms, 3);
  TraceRecord next = Record(0);  // A record of the next attempt, whose program has not been added.
  next.set_attempt(2);
  store.Add("a", next);
  EXPECT_EQ(store.Shares("a").count(3), 0u);
  EXPECT_TRUE(store.Shares("b").empty());
}

// A record with the program of its worker, which has a kernel and a collective.
TraceRecord WithProgram() {
  TraceRecord record;
  record.set_worker_id("w");
  record.set_attempt(1);
  for (const char* kind : {"kernel", "collective"}) {
    record.mutable_trace()->mutable_program()->add_instructions()->set_kind(kind);
  }
  return record;
}
// A record with one step of that program. The kernel takes 4 ms, and the collective takes 3 ms.
TraceRecord WithStep(int64_t number) {
  TraceRecord record;
  record.set_worker_id("w");
  record.set_attempt(1);
  TracedStep* step = record.mutable_trace()->add_steps();
  step->set_step(number);
  step->set_end_ns(10'000'000);
  for (const int instruction : {0, 1}) {
    step->add_instruction(instruction);
    step->add_span_ns((4 - instruction) * 1'000'000);
  }
  return record;
}

TEST_F(TraceStoreTest, TheProgramsOfManyRunningJobsAreKept) {
  TraceStore store(Path());
  constexpr int kJobs = 300;
  for (int job = 0; job < kJobs; ++job) store.Add(absl::StrCat(job), WithProgram());
  for (int job = 0; job < kJobs; ++job) store.Add(absl::StrCat(job), WithStep(5));
  for (int job = 0; job < kJobs; ++job) {
    const auto shares = store.Shares(absl::StrCat(job));
    ASSERT_EQ(shares.size(), 1u) << job;
    EXPECT_EQ(shares.at(0).compute_ms, 4);
    EXPECT_EQ(shares.at(0).collective_ms, 3);
  }
}

TEST_F(TraceStoreTest, WhenMemoryIsFullTheJobWithTheOldestRecordIsRemoved) {
  TraceStore store(Path(), TraceStore::kMaxFileBytes, /*max_live_bytes=*/10'000);
  store.Add("running", WithProgram());
  for (int job = 0; job < 1000; ++job) {
    store.Add(absl::StrCat(job), WithProgram());
    store.Add(absl::StrCat(job), WithStep(5));
    store.Add("running", WithStep(job));
  }
  EXPECT_EQ(store.Shares("running").at(0).step, 999);
  EXPECT_EQ(store.Shares("running").at(0).compute_ms, 4);
  EXPECT_EQ(store.Shares("999").size(), 1u);
  EXPECT_TRUE(store.Shares("0").empty());
  store.Add("0", WithStep(6));
  EXPECT_TRUE(store.Shares("0").empty()) << "without its program the step would have no parts";
}

TEST_F(TraceStoreTest, ManyThreads) {
  TraceStore store(Path());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 100; ++i) {
        store.Add("a", Record(100 * t + i));
        if (i % 7 == 0) store.Flush();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(observe::ReadTraces(store.Read("a").value()).steps.size(), 400u);
}

TEST_F(TraceStoreTest, IfTheFolderCannotBeMadeOnlyTheTraceIsLost) {
  TraceStore store([](const std::string&) { return std::string("/dev/null/job/trace.records"); });
  store.Add("a", Record(1));
  store.Flush();
  EXPECT_FALSE(store.Read("a").ok() && !store.Read("a")->empty());
}

}  // namespace
}  // namespace xlad::service
