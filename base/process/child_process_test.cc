// Child processes: their streams, descriptors, limits and ends.
#include "base/process/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/testing/no_free_descriptors.h"
#include "base/testing/test_folder.h"

namespace xlad {
namespace {

TEST(Subprocess, ReturnsOutputCrashesAndTimeouts) {
  const auto echo = RunChild({"/bin/cat"}, std::string(300'000, 'z'));
  ASSERT_TRUE(echo.ok());
  EXPECT_EQ(echo->output, std::string(300'000, 'z'));
  EXPECT_EQ(RunChild({"/bin/sh", "-c", "echo no >&2; exit 3"}, "")->exit_code, 3);
  EXPECT_EQ(RunChild({"/bin/sh", "-c", "kill -SEGV $$"}, "")->signal, 11);
  EXPECT_EQ(RunChild({"/no/such/program"}, "")->exit_code, 127);
  ChildLimits limits;
  limits.timeout_ms = 50;
  EXPECT_TRUE(absl::IsDeadlineExceeded(RunChild({"/bin/sleep", "1000"}, "", limits).status()));
}

// A child that has closed its outputs still receives its input, and can still time out or be canceled.
TEST(Subprocess, WaitsForTheEndOfAChildThatClosesItsOutputs) {
  const TestFolder folder;
  const std::string path = JoinPath(folder.path(), "input_of_child");
  const std::string input(300'000, 'z');
  const auto copied = RunChild({"/bin/sh", "-c", "exec >&- 2>&-; /bin/cat > '" + path + "'; exit 5"}, input);
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->exit_code, 5);
  EXPECT_EQ(*RealFileSystem().Read(path), input);
  const std::vector<std::string> sleeps = {"/bin/sh", "-c", "exec >&- 2>&-; exec /bin/sleep 60"};
  ChildLimits limits;
  limits.timeout_ms = 50;
  EXPECT_TRUE(absl::IsDeadlineExceeded(RunChild(sleeps, "", limits).status()));
  CancelSignal cancel;
  cancel.Raise();
  EXPECT_TRUE(absl::IsCancelled(RunChild(sleeps, "", {.cancel = &cancel}).status()));
}

// The limit on open files leaves no descriptor for the pidfd.
TEST(Subprocess, AFailedStartLeavesNoProcess) {
  const absl::Status status = [] {
    const NoFreeDescriptors none;
    return Spawn({.argv = {"/bin/true"}}).status();
  }();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD) << "no child is left, neither running nor a zombie";
}

TEST(Subprocess, CanBeCanceledAndHasALimitOfProcessorTime) {
  CancelSignal cancel;
  ChildLimits limits;
  limits.cancel = &cancel;
  std::thread canceler([&] { cancel.Raise(); });
  EXPECT_TRUE(absl::IsCancelled(RunChild({"/bin/sleep", "1000"}, "", limits).status()));
  canceler.join();
  EXPECT_TRUE(absl::IsCancelled(RunChild({"/bin/sleep", "1000"}, "", limits).status())) << "it stays raised";
  limits = {};
  limits.cpu_seconds = 1;
  EXPECT_EQ(RunChild({"/bin/sh", "-c", "while :; do :; done"}, "", limits)->signal, 9);
}

TEST(Subprocess, HasALimitOfOutput) {
  ChildLimits limits;
  limits.output_bytes = 100'000;
  EXPECT_EQ(RunChild({"/usr/bin/head", "-c", "100000", "/dev/zero"}, "", limits)->output.size(), 100'000u);
  const absl::Status endless = RunChild({"/bin/cat", "/dev/zero"}, "", limits).status();
  EXPECT_EQ(endless, absl::ResourceExhaustedError(
                         "/bin/cat was killed because it wrote more than 100000 bytes to standard output"));
}

// A child that reads its input before it tells how it is limited. The same limits hold if they are set while it waits.
TEST(Subprocess, AnIdleChildGetsItsLimitsLater) {
  const std::vector<std::string> argv = {"/bin/sh", "-c", "read line; echo $line; ulimit -v; ulimit -t; nice"};
  for (const ChildLimits& limits : {ChildLimits{},
                                    ChildLimits{.memory_bytes = int64_t{100} << 20},
                                    ChildLimits{.cpu_seconds = 9},
                                    ChildLimits{.nice = 3},
                                    ChildLimits{.memory_bytes = int64_t{200} << 20, .cpu_seconds = 8, .nice = 2}}) {
    const auto usual = RunChild(argv, "hello\n", limits);
    ASSERT_TRUE(usual.ok()) << usual.status();
    const auto idle = IdleChild::Start(argv);
    ASSERT_TRUE(idle.ok()) << idle.status();
    ASSERT_TRUE((*idle)->Limit(limits).ok());
    const auto later = (*idle)->Run("hello\n", limits);
    ASSERT_TRUE(later.ok()) << later.status();
    EXPECT_EQ(later->output, usual->output);
    EXPECT_EQ(later->output.substr(0, 6), "hello\n");
  }
}

// The second process stands for a second thread. The FIFO is opened when it runs.
TEST(Subprocess, ALaterNicenessIsThatOfAllThreadsOfAnIdleChild) {
  const TestFolder folder;
  const std::string fifo = JoinPath(folder.path(), "fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string script =
      absl::StrCat("sleep 1000 & : >'", fifo, "'; read line; nice; cut -d' ' -f19 /proc/$!/stat; kill $!");
  const auto idle = IdleChild::Start({"/bin/sh", "-c", script});
  ASSERT_TRUE(idle.ok()) << idle.status();
  ASSERT_TRUE(RealFileSystem().Read(fifo).ok());
  ASSERT_TRUE((*idle)->Limit({.nice = 3}).ok());
  const int nice = std::min(getpriority(PRIO_PROCESS, 0) + 3, 19);  // 19 is the largest niceness.
  EXPECT_EQ((*idle)->Run("\n", {})->output, absl::StrCat(nice, "\n", nice, "\n"));
}

// A limit that is set later does not exceed one that the child already has.
TEST(Subprocess, AnIdleChildKeepsLowerLimits) {
  const auto idle = IdleChild::Start({"/bin/sh", "-c", "read line; ulimit -t"}, {.cpu_seconds = 5});
  ASSERT_TRUE(idle.ok()) << idle.status();
  ASSERT_TRUE((*idle)->Limit({.cpu_seconds = 7}).ok());
  EXPECT_EQ((*idle)->Run("\n", {})->output, "5\n");
}

TEST(Subprocess, AnIdleChildIsKilledLikeAnyOther) {
  const auto start = [](const char* script) { return *IdleChild::Start({"/bin/sh", "-c", script}); };
  EXPECT_TRUE(absl::IsDeadlineExceeded(start("exec sleep 1000")->Run("", {.timeout_ms = 50}).status()));
  CancelSignal cancel;
  const auto canceled = start("exec sleep 1000");
  std::thread canceler([&] { cancel.Raise(); });
  EXPECT_TRUE(absl::IsCancelled(canceled->Run("", {.cancel = &cancel}).status()));
  canceler.join();
  const ChildLimits limits = {.cpu_seconds = 1, .output_bytes = 100'000};
  EXPECT_TRUE(absl::IsResourceExhausted(start("exec cat /dev/zero")->Run("", limits).status()));
  const auto busy = start("read line; while :; do :; done");
  ASSERT_TRUE(busy->Limit(limits).ok());
  EXPECT_EQ(busy->Run("\n", limits)->signal, SIGKILL);
}

TEST(Subprocess, AnIdleChildThatHasEndedTakesNoInput) {
  auto idle = IdleChild::Start({"/bin/cat"});
  ASSERT_TRUE(idle.ok()) << idle.status();
  EXPECT_TRUE((*idle)->Limit({}).ok());
  ASSERT_EQ(kill((*idle)->pid(), SIGKILL), 0);
  siginfo_t end{};
  ASSERT_EQ(waitid(P_PID, (*idle)->pid(), &end, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(absl::IsUnavailable((*idle)->Limit({})));
  const pid_t waits = (*(idle = IdleChild::Start({"/bin/cat"})))->pid();
  EXPECT_EQ(kill(waits, 0), 0);
  idle->reset();
  EXPECT_NE(kill(waits, 0), 0) << "the destructor kills and reaps it";
}

// A copy of this test program replaces its own file, as an upgrade does while a daemon runs, and then starts a child.
TEST(Subprocess, TheOwnProgramIsThatOfTheProcessAndNotThatOfTheFile) {
  const std::string path = OwnExecutablePath();
  const std::string name = "Subprocess.TheOwnProgramIsThatOfTheProcessAndNotThatOfTheFile";
  if (std::getenv("XLAD_IS_REPLACED") == nullptr) {
    const TestFolder folder;
    const std::string copy = JoinPath(folder.path(), "copy");
    ASSERT_TRUE(std::filesystem::copy_file(path, copy));
    const auto ran = RunChild({"/usr/bin/env", "XLAD_IS_REPLACED=1", copy, "--gtest_filter=" + name}, "");
    ASSERT_TRUE(ran.ok()) << ran.status();
    EXPECT_EQ(ran->exit_code, 0) << ran->output << ran->errors;
    return;
  }
  ASSERT_TRUE(RealFileSystem().WriteAtomically(path, "#!/bin/sh\nexit 9\n").ok());
  ASSERT_EQ(chmod(path.c_str(), 0700), 0);
  EXPECT_EQ(RunChild({path}, "")->exit_code, 9);
  const auto child = RunChild({kOwnProgram, "--gtest_list_tests", "--gtest_filter=" + name}, "");
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(child->exit_code, 0);
  EXPECT_NE(child->output.find(name.substr(name.find('.') + 1)), std::string::npos) << child->output;
  const std::string script = "test \"$0\" = '" + path + " (deleted)'";
  const auto shell = Spawn({.argv = {kOwnProgram, "-c", script}, .program = "/bin/sh"});
  ASSERT_TRUE(shell.ok()) << shell.status();
  int status = 0;
  ASSERT_EQ(waitpid(shell->pid, &status, 0), shell->pid);
  EXPECT_EQ(status, 0);
}

TEST(Subprocess, InheritsNoOtherDescriptor) {
  const int inheritable = dup(0);
  const auto listed = RunChild({"/bin/ls", "/proc/self/fd"}, "");
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(listed->output, "0\n1\n2\n3\n") << "3 is the folder that ls reads";
  close(inheritable);
}

// The script prints argv[0] and writes to another descriptor.
TEST(Subprocess, MayInheritDescriptorsAndHaveAnotherName) {
  for (const bool keeps : {false, true}) {
    Pipe pipe = *Pipe::Make();
    const int inheritable = dup(pipe.write_end.get());
    const std::string script = absl::StrCat("exec 2>/dev/null; echo more > /proc/self/fd/", inheritable, "; echo $0");
    const auto child = Spawn({.argv = {"name", "-c", script},
                              .program = "/bin/sh",
                              .output = pipe.write_end.get(),
                              .keeps_descriptors = keeps});
    ASSERT_TRUE(child.ok()) << child.status();
    pipe.write_end.Close();
    close(inheritable);
    std::string text;
    char c = 0;
    while (read(pipe.read_end.get(), &c, 1) == 1) text += c;
    EXPECT_EQ(text, keeps ? "more\nname\n" : "name\n");
    EXPECT_EQ(waitpid(child->pid, nullptr, 0), child->pid);
  }
}

// `env` prints all variables, including any that getenv does not find because an earlier one has its name.
TEST(Subprocess, VariablesOfTheChildReplaceThoseOfTheProcess) {
  setenv("XLAD_SPAWN", "old", 1);
  setenv("XLAD_SPAWN_2", "kept", 1);
  Pipe pipe = *Pipe::Make();
  const auto child = Spawn(
      {.argv = {"/usr/bin/env"}, .output = pipe.write_end.get(), .variables = {"XLAD_SPAWN=new", "XLAD_SPAWN_3=more"}});
  ASSERT_TRUE(child.ok()) << child.status();
  pipe.write_end.Close();
  std::string text;
  char c = 0;
  while (read(pipe.read_end.get(), &c, 1) == 1) text += c;
  EXPECT_EQ(waitpid(child->pid, nullptr, 0), child->pid);
  std::vector<std::string> found;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "XLAD_SPAWN")) found.emplace_back(line);
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, (std::vector<std::string>{"XLAD_SPAWN=new", "XLAD_SPAWN_2=kept", "XLAD_SPAWN_3=more"}));
  unsetenv("XLAD_SPAWN");
  unsetenv("XLAD_SPAWN_2");
}

TEST(ChildProcess, ReportsHowItEnded) {
  const TestFolder folder;
  const auto child = *ChildProcess::Start({"/bin/sh", "-c", "exit 4"}, JoinPath(folder.path(), "log"));
  EXPECT_TRUE(child->WaitFor(600'000));
  EXPECT_EQ(child->HowEnded(), "exit code 4");
  const auto long_child = *ChildProcess::Start({"/bin/sleep", "1000"}, "");
  long_child->Signal(9);
  EXPECT_TRUE(long_child->WaitFor(600'000));
  EXPECT_NE(long_child->HowEnded().find("signal 9"), std::string::npos);
}

// The descriptors of the log and of /dev/null then have the numbers of standard streams.
TEST(ChildProcess, HasItsStreamsIfItsParentHasNone) {
  const TestFolder folder;
  for (int closed = 0; closed < 8; ++closed) {
    const std::string log = JoinPath(folder.path(), absl::StrCat("log", closed));
    const auto work = [&] {
      for (int stream = 0; stream < 3; ++stream) {
        if ((closed >> stream) % 2 == 1) close(stream);
      }
      const auto child = ChildProcess::Start({"/bin/sh", "-c", "cat; echo out; echo errors >&2"}, log);
      const bool ended = child.ok() && (*child)->WaitFor(600'000);
      const auto result = RunChild({"/bin/sh", "-c", "cat; echo errors >&2"}, "text");
      _exit(ended && result.ok() && result->output == "text" && result->errors == "errors\n" ? 0 : 1);
    };
    EXPECT_EXIT(work(), testing::ExitedWithCode(0), "") << closed;
    EXPECT_EQ(RealFileSystem().Read(log).value_or(""), "out\nerrors\n") << closed;
  }
}

}  // namespace
}  // namespace xlad
