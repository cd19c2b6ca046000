// The real SQLite log on a disk that fails: after every crash, the log has all acknowledged events in order, and only
// events that were appended.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/numbers.h"
#include "base/testing/case_count.h"
#include "service/log/job_log.h"
#include "tests/simulation/simulated_disk.h"

namespace xlad::simulation {
namespace {

constexpr int kAppends = 16;
constexpr char kPath[] = "/data/jobs.sqlite";

// Returns event number `serial` of one job. Some events have contents of many pages.
JobEvent EventOf(int serial) {
  JobEvent event;
  event.set_job_id("job");
  event.mutable_submitted()->set_client_key(absl::StrCat(serial));
  event.mutable_submitted()->mutable_spec()->set_name(std::string(serial % 7 == 0 ? 20000 : 10, 'n'));
  return event;
}

// Returns an event of the job that compactions remove.
JobEvent OldEvent() {
  JobEvent event;
  event.set_job_id("old");
  event.mutable_submitted()->mutable_spec()->set_name(std::string(3000, 'o'));
  return event;
}

struct History {
  std::vector<int> acknowledged;  // Serials of acknowledged appends.
  int next = 0;                   // The serial of the next append.
};

// Opens the log, appends, and sometimes removes the old job, until an operation fails. Returns whether all of them
// succeeded.
bool AppendAll(History* run) {
  const auto log = service::OpenSqliteJobLog(kPath);
  if (!log.ok()) return false;
  while (run->next < kAppends) {
    const int serial = run->next++;
    service::LogBatch batch{{EventOf(serial), OldEvent(), EventOf(serial)}, {}};
    if (!(*log)->Append(&batch).ok()) return false;
    run->acknowledged.push_back(serial);
    if (serial % 4 != 3) continue;
    if (!(*log)->Compact({{service::JobId("old")}, {}}).ok()) {
      service::LogBatch next{{EventOf(serial)}, {}};
      EXPECT_FALSE((*log)->Append(&next).ok()) << "after a failed compaction the log must be opened again";
      return false;
    }
  }
  return true;
}

// Checks that the log has both events of every acknowledged append, in order, and both or neither of the events of any
// other append.
void CheckLog(const History& run, const std::string& where) {
  const auto log = service::OpenSqliteJobLog(kPath);
  ASSERT_TRUE(log.ok()) << where << ": " << log.status();
  std::vector<JobEvent> events;
  const absl::Status read = (*log)->ReadEvents([&](const JobEvent& event) {
    if (event.job_id() == "job") events.push_back(event);
    return absl::OkStatus();
  });
  ASSERT_TRUE(read.ok()) << where << ": " << read;
  std::vector<int> found;
  ASSERT_EQ(events.size() % 2, 0) << where << ": half of a batch";
  for (size_t i = 0; i < events.size(); i += 2) {
    int first = 0, second = 0;
    ASSERT_TRUE(absl::SimpleAtoi(events[i].submitted().client_key(), &first)) << where;
    ASSERT_TRUE(absl::SimpleAtoi(events[i + 1].submitted().client_key(), &second)) << where;
    ASSERT_EQ(first, second) << where;
    ASSERT_LT(first, run.next) << where << ": an event that was never appended";
    found.push_back(first);
  }
  ASSERT_TRUE(std::is_sorted(found.begin(), found.end())) << where;
  ASSERT_EQ(std::set<int>(found.begin(), found.end()).size(), found.size()) << where << ": an append occurs twice";
  ASSERT_TRUE(std::includes(found.begin(), found.end(), run.acknowledged.begin(), run.acknowledged.end()))
      << where << ": an acknowledged append is lost; " << found.size() << " found of " << run.acknowledged.size();
}

int64_t OperationsOfARun() {
  SimulatedDisk disk(0);
  const SqliteOnDisk sqlite(&disk);
  History run;
  EXPECT_TRUE(AppendAll(&run));
  CheckLog(run, "no faults");
  EXPECT_TRUE((*service::OpenSqliteJobLog(kPath))->ReadEventsOf(service::JobId("old"), 0, 1)->empty());
  return disk.operations();
}

TEST(LogOnDisk, NothingAcknowledgedIsLostByACrashBeforeAnyOperation) {
  const int64_t operations = OperationsOfARun();
  ASSERT_GT(operations, 2 * kAppends);
  int noticed = 0;
  for (int64_t at = 0; at <= operations; ++at) {
    for (uint64_t seed = 1; seed <= CaseCount(1, 2); ++seed) {
      SimulatedDisk disk(seed);
      const SqliteOnDisk sqlite(&disk);
      disk.CrashAt(at);
      History run;
      noticed += AppendAll(&run) ? 0 : 1;
      disk.Restart();
      CheckLog(run, absl::StrCat("crash at ", at, ", seed ", seed));
      EXPECT_TRUE(AppendAll(&run)) << "the log works again";
      disk.Restart();
      CheckLog(run, absl::StrCat("second crash after ", at, ", seed ", seed));
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(noticed, 2 * kAppends) << "crashes happen during appends";
}

TEST(LogOnDisk, NothingAcknowledgedIsLostByAnyFailure) {
  const int64_t operations = OperationsOfARun();
  int64_t number = 0, failed = 0;
  const std::pair<DiskFault, const char*> faults[] = {{DiskFault::kNoSpace, "no space"},
                                                      {DiskFault::kIoError, "I/O error"},
                                                      {DiskFault::kTornWrite, "torn write"},
                                                      {DiskFault::kLostSync, "lost sync"},
                                                      {DiskFault::kAmbiguousSync, "ambiguous sync"}};
  for (const auto& [fault, name] : faults) {
    ++number;
    for (int64_t at = 1; at <= operations; ++at) {
      for (const int64_t count : {1, 5}) {
        // By default, half of the faults are tried at each operation, alternately as one failure and as 5 failures.
        const int64_t own_count = at / 2 % 2 == 1 ? 1 : 5;
        if (!AllCases() && ((at + number) % 2 != 0 || count != own_count)) continue;
        SimulatedDisk disk(at);
        const SqliteOnDisk sqlite(&disk);
        disk.FailAt(at, fault, count);
        History run;
        const std::string where = absl::StrCat(name, " at ", at, ", ", count, " times");
        // After a failure the log is reopened, as the coordinator does, until the disk works.
        bool succeeds = AppendAll(&run);
        if (!succeeds) ++failed;
        for (int tries = 1; tries < 20 && !succeeds; ++tries) succeeds = AppendAll(&run);
        EXPECT_EQ(run.next, kAppends) << where << ": the log could not be reopened";
        disk.Restart();
        CheckLog(run, where);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(failed, 2 * kAppends) << "faults happen during appends";
}

// If a file of the log was cut off, the coordinator reads a beginning of the log, or refuses it.
TEST(LogOnDisk, ALogThatWasCutOffIsRefusedOrABeginning) {
  const std::string kWal = std::string(kPath) + "-wal";
  const auto run_until_killed = [&](SimulatedDisk* disk, History* run) {
    const auto log = service::OpenSqliteJobLog(kPath);
    for (; run->next < kAppends; ++run->next) {
      service::LogBatch batch{{EventOf(run->next), OldEvent(), EventOf(run->next)}, {}};
      ASSERT_TRUE((*log)->Append(&batch).ok());
    }
    disk->CrashAt(disk->operations());  // The process dies without closing the log.
  };
  int refused = 0, shorter = 0;
  for (const bool cuts_wal : {true, false}) {
    const std::string path = cuts_wal ? kWal : kPath;
    for (int64_t size = 0;; size += cuts_wal ? 1000 : 2048) {
      SimulatedDisk disk(1);
      const SqliteOnDisk sqlite(&disk);
      History run;
      run_until_killed(&disk, &run);
      disk.Restart();
      if (!cuts_wal) (void)service::OpenSqliteJobLog(kPath);  // Copies the write-ahead log into the database.
      if (size >= disk.Size(path)) break;
      disk.CutOff(path, size);
      const auto log = service::OpenSqliteJobLog(kPath);
      std::vector<JobEvent> events;
      absl::Status read = log.status();
      if (read.ok()) {
        read = (*log)->ReadEvents([&](const JobEvent& event) {
          events.push_back(event);
          return absl::OkStatus();
        });
      }
      if (!read.ok()) {
        ++refused;
        EXPECT_TRUE(absl::IsDataLoss(read)) << path << " of " << size << " bytes: " << read;
        continue;
      }
      shorter += std::ssize(events) < 3 * kAppends;
      EXPECT_EQ(events.size() % 3, 0) << path << " of " << size << " bytes: a part of a batch";
      for (int64_t i = 0; i < std::ssize(events); ++i) {
        ASSERT_EQ(events[i].sequence(), i + 1) << path << " of " << size << " bytes: an event is missing";
      }
    }
  }
  EXPECT_GT(refused, 5) << "a database that was cut off";
  EXPECT_GT(shorter, 5) << "a write-ahead log that was cut off";
}

// A coordinator acts on the records that it has read, so these must not be missing later, even if their sync failed.
TEST(LogOnDisk, WhatHasBeenReadAfterAFailureIsDurable) {
  const int64_t operations = OperationsOfARun();
  int failed_but_written = 0;
  for (int64_t at = 1; at <= operations; ++at) {
    for (const int64_t count : {1, 2, 3}) {
      if (!AllCases() && count != 1 + at % 3) continue;
      SimulatedDisk disk(at);
      const SqliteOnDisk sqlite(&disk);
      disk.FailAt(at, DiskFault::kLostSync, count);
      History run;
      AppendAll(&run);
      std::vector<std::string> keys;
      {
        const auto log = service::OpenSqliteJobLog(kPath);
        if (!log.ok()) continue;  // The disk still fails.
        const auto note = [&](const JobEvent& event) {
          keys.push_back(event.submitted().client_key());
          return absl::OkStatus();
        };
        ASSERT_TRUE((*log)->ReadEvents(note).ok());
        disk.CrashAt(disk.operations());  // The process dies without closing the log.
      }
      disk.Restart();
      for (const std::string& key : keys) {
        int serial = 0;
        if (absl::SimpleAtoi(key, &serial) && (run.acknowledged.empty() || serial > run.acknowledged.back())) {
          ++failed_but_written;
          run.acknowledged.push_back(serial);
        }
      }
      CheckLog(run, absl::StrCat("lost sync at ", at, ", ", count, " times"));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_GT(failed_but_written, 0) << "some appends are in the log although they failed";
}

}  // namespace
}  // namespace xlad::simulation
