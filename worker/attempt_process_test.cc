// Processes that run shell scripts: messages, how processes end, and deadlines.
#include "worker/attempt_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "storage/testing/memory_files.h"

namespace xlad::worker {
namespace {

using ::testing::HasSubstr;

// A process and what the daemon receives from it.
struct Started {
  explicit Started(const std::string& script) {
    AttemptSetup setup;
    setup.set_progress_limit_ms(7);
    process = *AttemptProcess::Start({"/bin/sh", "-c", script}, setup);
  }
  ProcessEnd Wait() {
    ProcessEnd end;
    process->Listen([this](const AttemptReport& report) { reports.push_back(report); },
                    [&end](const ProcessEnd& e) { end = e; });
    process->WaitForEnd();
    return end;
  }
  std::unique_ptr<AttemptProcess> process;
  std::vector<AttemptReport> reports;
};

TEST(AttemptProcess, ReportsHowTheProcessEnded) {
  ProcessEnd end = Started("exit 3").Wait();
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.how, "exit code 3");
  EXPECT_FALSE(end.out_of_memory);
  EXPECT_GT(end.peak_bytes, 0);
  end = Started("kill -SEGV $$").Wait();
  EXPECT_EQ(end.exit_code, -1);
  EXPECT_EQ(end.signal, SIGSEGV);
  EXPECT_FALSE(end.killed_here);
  end = Started(absl::StrCat("exit ", kExitOutOfMemory)).Wait();
  EXPECT_TRUE(end.out_of_memory);
  end = Started("kill -KILL $$").Wait();
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_FALSE(end.killed_here);
}

TEST(AttemptProcess, AKillIsNotALackOfMemoryIfTheCountOfTheKernelIsUnknown) {
  storage::MemoryFiles files;
  ASSERT_TRUE(files.WriteAtomically("/proc/vmstat", "nr_free_pages 1\noom_kill 12\noom_kill_disable 0\n").ok());
  EXPECT_EQ(OomKills(files), 12);
  EXPECT_TRUE(HasNewOomKills(11, files));
  EXPECT_FALSE(HasNewOomKills(12, files));
  EXPECT_FALSE(HasNewOomKills(std::nullopt, files)) << "no descriptor was free when the process started";
  files.fail_read_after = files.reads;
  EXPECT_FALSE(HasNewOomKills(11, files)) << "no descriptor is free";
  // Some sandboxes hide the count.
  const bool has_count = absl::StrContains(RealFileSystem().Read("/proc/vmstat").value_or(""), "\noom_kill ");
  EXPECT_EQ(OomKills(RealFileSystem()).has_value(), has_count);
}

// The daemon may read the end of the socket's stream before the process kills itself.
TEST(AttemptProcess, AProcessThatClosesItsSocketHasTimeToEnd) {
  const ProcessEnd end = Started("exec 3>&-; kill -KILL $$").Wait();
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_FALSE(end.killed_here);
}

TEST(AttemptProcess, KeepsTheLastOutputThatIsNotALogLine) {
  testing::internal::CaptureStderr();
  const ProcessEnd end =
      Started("echo '{\"ts\":\"1\",\"msg\":\"a line of the log\"}' >&2; echo 'check failed: x > 0' >&2; exit 1").Wait();
  EXPECT_EQ(end.last_output, "check failed: x > 0");
  EXPECT_EQ(Started("echo 20 >&2; echo 2026-01-01 a line of the log >&2; echo 2026 >&2; exit 1").Wait().last_output,
            "20\n2026");
  const std::string copied = testing::internal::GetCapturedStderr();
  EXPECT_THAT(copied, HasSubstr("a line of the log"));
  EXPECT_THAT(copied, HasSubstr("check failed: x > 0"));
}

TEST(AttemptProcess, AStuckProcessIsKilled) {
  Started stuck("trap '' TERM INT; while :; do sleep 1; done");
  stuck.process->KillAfter(60'000);
  stuck.process->KillAfter(50);
  stuck.process->KillAfter(60'000);
  const ProcessEnd end = stuck.Wait();
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_TRUE(end.killed_here);
}

TEST(AttemptProcess, AStoppedProcessIsKilledToo) {
  Started stopped("kill -STOP $$");
  AttemptCommand command;
  command.mutable_abort()->set_error(std::string(1 << 20, 'x'));  // More bytes than fit into the socket's buffer.
  stopped.process->Send(command);
  stopped.process->KillAfter(50);
  EXPECT_TRUE(stopped.Wait().killed_here);
}

// The coordinator must not mistake the error for one of the program, which would end the job.
TEST(AttemptProcess, WithoutFreeDescriptorsNoneIsStartedNow) {
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  ProcessEnd end;
  absl::StatusOr<std::unique_ptr<AttemptProcess>> started = absl::UnavailableError("LimitNOFILE");
  int errors = 0;
  for (rlim_t most = 3; !started.ok(); ++most) {
    ASSERT_TRUE(absl::IsUnavailable(started.status())) << started.status();
    EXPECT_THAT(std::string(started.status().message()), HasSubstr("LimitNOFILE"));
    ++errors;
    const rlimit few{most, usual.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    started = AttemptProcess::Start({"/bin/sh", "-c", "sleep 30"}, AttemptSetup());
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  }
  EXPECT_GT(errors, 5);
  (*started)->Listen([](const AttemptReport&) {}, [&end](const ProcessEnd& found) { end = found; });
  (*started)->KillAfter(0);
  (*started)->WaitForEnd();
  EXPECT_TRUE(end.killed_here) << "a process that was started has all that it needs";
}

TEST(AttemptProcess, TheDestructorEndsTheProcess) {
  pid_t pid = 0;
  {
    Started started("sleep 60");
    pid = started.process->pid();
  }
  EXPECT_EQ(kill(pid, 0), -1) << "it has ended and is reaped";
}

// /bin/cat returns the daemon's messages, which are valid reports with unknown fields.
TEST(AttemptProcess, ExchangesMessages) {
  Started echo("exec cat <&3 >&3");
  AttemptCommand command;
  command.mutable_message()->mutable_renew()->set_lease_until_step(7);
  for (int i = 0; i < 100; ++i) echo.process->Send(command);
  std::mutex mutex;
  std::condition_variable changed;
  int received = 0;
  echo.process->Listen(
      [&](const AttemptReport& report) {
        std::lock_guard<std::mutex> lock(mutex);
        ++received;
        changed.notify_all();
      },
      [](const ProcessEnd&) {});
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return received == 101; });
}

// Some reports arrive before the listener is set, and others after it.
TEST(AttemptProcess, ReportsKeepTheirOrder) {
  constexpr int kReports = 1000;
  std::string frames;
  for (int i = 1; i <= kReports; ++i) {
    AttemptReport report;
    report.mutable_progress()->set_finished_steps(i);
    const std::string bytes = report.SerializeAsString();
    const char size[] = {static_cast<char>(bytes.size()), 0, 0, 0};
    for (const char c : std::string(size, sizeof size) + bytes) {
      const int code = static_cast<unsigned char>(c);
      frames += {'\\', static_cast<char>('0' + code / 64), static_cast<char>('0' + code / 8 % 8),
                 static_cast<char>('0' + code % 8)};
    }
  }
  for (int round = 0; round < 30; ++round) {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<int64_t> steps;
    Started started(absl::StrCat("printf '", frames, "' >&3"));
    for (int i = 0; i < 100 * round; ++i) (void)started.process->HasEnded();  // A longer delay in each round.
    started.process->Listen(
        [&](const AttemptReport& report) {
          const std::lock_guard lock(mutex);
          steps.push_back(report.progress().finished_steps());
          changed.notify_all();
        },
        [](const ProcessEnd&) {});
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return steps.size() == kReports; });
    ASSERT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  }
}

TEST(AttemptProcess, ReportsBeforeTheEndArrive) {
  // A frame of 4 bytes: report {progress: {finished_steps: 5}}.
  Started started("printf '\\004\\000\\000\\000\\022\\002\\010\\005' >&3; exit 9");
  started.process->WaitForEnd();  // Waits for the end before Listen is called.
  EXPECT_EQ(started.Wait().exit_code, 9);
  ASSERT_EQ(started.reports.size(), 1u);
  EXPECT_EQ(started.reports[0].progress().finished_steps(), 5);
}

TEST(AttemptProcess, AProcessThatViolatesTheProtocolIsKilled) {
  Started started("printf '\\004\\000\\000\\000abcd' >&3; sleep 60");
  EXPECT_TRUE(started.Wait().killed_here);
}

}  // namespace
}  // namespace xlad::worker
