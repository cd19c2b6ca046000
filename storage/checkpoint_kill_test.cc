// Checkpoints in real files. Their writer is killed at random points, and committed checkpoints are truncated or have
// one bit flipped. XLAD_CHECKPOINT_KILLS is the number of kills (default 60), XLAD_CHECKPOINT_FLIPS the number of
// flipped bits (default 200), and XLAD_CHECKPOINT_SEED the seed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "base/file_descriptor.h"
#include "base/testing/case_count.h"
#include "base/testing/test_folder.h"
#include "storage/testing/checkpoints.h"

namespace xlad::storage {
namespace {

constexpr int64_t kWorkers = 2, kDevicesEach = 2;
constexpr int64_t kKeep = 2;
constexpr int64_t kCheckpointsPerRun = 3;
constexpr int64_t kCutBytes = 4096;

// The state before a step, a quarter of a megabyte. Its bits depend only on the step.
State StateAt(int64_t step) {
  Random random(step);
  State state;
  state["w"].array = RandomArray(random, {ElementType::kF32, {256, 200}});
  state["m"].array = RandomArray(random, {ElementType::kBF16, {20'011}});
  state["count"].array = RandomArray(random, {ElementType::kS64, {}});
  for (auto& [name, sharded] : state) {
    sharded.boxes = RandomBoxes(random, sharded.array.shape(), kWorkers * kDevicesEach);
  }
  return state;
}

std::vector<FoundCheckpoint> Committed(const std::string& job_folder) {
  auto found = ListCheckpoints(RealFileSystem(), job_folder);
  if (!found.ok()) return {};
  std::erase_if(*found, [](const FoundCheckpoint& checkpoint) { return !checkpoint.index.ok(); });
  return *std::move(found);
}

// Sets a timer that kills this process with SIGKILL, whatever the process is doing then.
void KillThisProcessAfter(int64_t ns) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer;
  const itimerspec at{{}, {ns / 1'000'000'000, std::max<int64_t>(1, ns % 1'000'000'000)}};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &at, nullptr) != 0) _exit(3);
}

// One run of the writer process, which may be killed at any time. It removes the unfinished checkpoints of the previous
// writer, then writes `checkpoints` checkpoints one after another and exits. It keeps the newest kKeep checkpoints, and
// writes the step of each commit to the file descriptor `acknowledged`.
[[noreturn]] void WriteAndExit(const std::string& root, int64_t attempt, int64_t first_step, int acknowledged,
                               int64_t checkpoints) {
  FileSystem& files = RealFileSystem();
  const std::string job_folder = JoinPath(root, "job");
  ObsoleteFolders obsolete{INT64_MAX, attempt, {}};
  for (const FoundCheckpoint& checkpoint : Committed(job_folder)) {
    obsolete.keep.insert(checkpoint.folder.substr(checkpoint.folder.rfind('/') + 1));
  }
  if (!RemoveObsoleteFolders(files, job_folder, obsolete).ok()) _exit(4);
  for (int64_t step = first_step; step < first_step + checkpoints; ++step) {
    const ShardOrigin origin{"job", attempt, step};
    const auto folder = WriteCheckpointIn(root, files, StateAt(step), {kWorkers, kDevicesEach}, origin);
    if (!folder.ok()) _exit(5);
    if (write(acknowledged, &step, sizeof step) != sizeof step) _exit(6);
    const std::vector<FoundCheckpoint> found = Committed(job_folder);
    for (int64_t c = 0; c + kKeep < std::ssize(found); ++c) {
      if (!RemoveCheckpointFolder(files, found[c].folder).ok()) _exit(7);
    }
  }
  _exit(0);
}

struct WriterRun {
  int64_t acknowledged = -1;  // The newest step that was acknowledged as committed.
  bool killed = false;
  int exit_code = 0;
};

WriterRun RunWriter(const std::string& root, int64_t attempt, int64_t first_step, int64_t kill_after_ns,
                    int64_t checkpoints) {
  int ends[2];
  XLAD_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  XLAD_CHECK(child >= 0);
  if (child == 0) {
    close(ends[0]);
    if (kill_after_ns >= 0) KillThisProcessAfter(kill_after_ns);
    WriteAndExit(root, attempt, first_step, ends[1], checkpoints);
  }
  close(ends[1]);
  WriterRun run;
  for (int64_t step; read(ends[0], &step, sizeof step) == sizeof step;) run.acknowledged = step;
  close(ends[0]);
  int status = 0;
  XLAD_CHECK(waitpid(child, &status, 0) == child);
  run.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  return run;
}

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

TEST(CheckpointKill, TheNewestCommittedCheckpointAlwaysLoads) {
  const uint64_t kills = NumberFrom("XLAD_CHECKPOINT_KILLS", 60);
  Random random(NumberFrom("XLAD_CHECKPOINT_SEED", 1));
  const TestFolder own_folder;
  const std::string root = own_folder.path(), job_folder = JoinPath(root, "job");
  const int64_t start_ns = NowNs();
  const WriterRun first = RunWriter(root, 1, 0, /*kill_after_ns=*/-1, kCheckpointsPerRun);
  ASSERT_EQ(first.exit_code, 0);
  ASSERT_EQ(first.acknowledged, kCheckpointsPerRun - 1);
  int64_t run_ns = NowNs() - start_ns;
  int64_t newest = first.acknowledged, loaded = 0, unfinished = 0, ahead = 0;
  uint64_t killed = 0;
  for (int64_t attempt = 2; killed < kills; ++attempt) {
    ASSERT_LT(attempt, static_cast<int64_t>(10 * kills)) << "the writer ends before it is killed";
    const int64_t begin_ns = NowNs();
    const WriterRun run = RunWriter(root, attempt, newest + 1, random() % run_ns, kCheckpointsPerRun);
    ASSERT_EQ(run.exit_code, 0) << "attempt " << attempt;
    // The machine may have been busier at the last measurement of the duration.
    if (!run.killed) run_ns = std::max<int64_t>(1, NowNs() - begin_ns);
    killed += run.killed;
    const std::vector<FoundCheckpoint> found = Committed(job_folder);
    ASSERT_FALSE(found.empty()) << "after " << killed << " kills";
    unfinished += std::ssize(*RealFileSystem().List(job_folder)) - std::ssize(found);
    // The process may have been killed between the commit and its acknowledgement.
    const int64_t step = found.back().index->step();
    ASSERT_GE(step, std::max(newest, run.acknowledged));
    ASSERT_LE(step, std::max(newest, run.acknowledged) + 1);
    ahead += step > std::max(newest, run.acknowledged);
    newest = step;
    for (const FoundCheckpoint& checkpoint : found) {
      const absl::Status read = ReadCheckpoint(RealFileSystem(), checkpoint.folder, StateAt(checkpoint.index->step()));
      ASSERT_TRUE(read.ok()) << read << ", step " << checkpoint.index->step() << " after " << killed << " kills";
      ++loaded;
    }
  }
  std::printf("%llu kills in %.1f s: newest step %lld, %lld checkpoints loaded bit for bit, %lld unfinished folders "
              "found, %lld commits without an acknowledgement\n",
              static_cast<unsigned long long>(killed), static_cast<double>(NowNs() - start_ns) / 1e9,
              static_cast<long long>(newest), static_cast<long long>(loaded), static_cast<long long>(unfinished),
              static_cast<long long>(ahead));
  EXPECT_GT(unfinished, 0) << "no kill was in the middle of a checkpoint";
}

// An older checkpoint and a newer one. The tests damage the files of the newer one.
class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() {
    for (const int64_t step : {1, 2}) {
      const auto folder =
          WriteCheckpointIn(root_, RealFileSystem(), StateAt(step), {kWorkers, kDevicesEach}, {"job", 1, step});
      XLAD_CHECK(folder.ok()) << folder.status();
      folders_.push_back(*folder);
    }
    const std::vector<std::string> names = *RealFileSystem().List(folders_[1]);
    for (const std::string& name : names) paths_.push_back(JoinPath(folders_[1], name));
  }
  absl::Status Verify() const { return Store(RealFileSystem()).VerifyCheckpoint(FileUri(folders_[1])); }
  absl::Status Load(int64_t step) const {
    return ReadCheckpoint(RealFileSystem(), folders_[step - 1], StateAt(step));
  }

  const TestFolder own_folder_;
  const std::string root_ = own_folder_.path();
  std::vector<std::string> folders_, paths_;
};

TEST_F(DamagedCheckpoint, IsFoundWhenAFileIsCutOffAnywhere) {
  ASSERT_EQ(paths_.size(), 3u);
  int64_t cuts = 0;
  for (const std::string& path : paths_) {
    const std::string whole = *RealFileSystem().Read(path);
    for (int64_t size = 0; size < std::ssize(whole); size += kCutBytes, ++cuts) {
      ASSERT_EQ(truncate(path.c_str(), size), 0);
      EXPECT_FALSE(Verify().ok()) << path << " cut at " << size;
      EXPECT_FALSE(Load(2).ok()) << path << " cut at " << size;
      EXPECT_TRUE(RealFileSystem().WriteAtomically(path, whole).ok());
    }
  }
  EXPECT_GT(cuts, 50);
  EXPECT_TRUE(Load(1).ok());
  EXPECT_TRUE(Load(2).ok());
}

TEST_F(DamagedCheckpoint, IsFoundWhenABitIsFlipped) {
  Random random(NumberFrom("XLAD_CHECKPOINT_SEED", 1));
  const uint64_t flips = NumberFrom("XLAD_CHECKPOINT_FLIPS", 200);
  for (uint64_t flip = 0; flip < flips; ++flip) {
    const std::string& path = paths_[random() % paths_.size()];
    const FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
    const int64_t bit = static_cast<int64_t>(random() % (*RealFileSystem().Size(path) * 8));
    char byte = 0;
    ASSERT_EQ(pread(file.get(), &byte, 1, bit / 8), 1);
    byte ^= static_cast<char>(1 << (bit % 8));
    ASSERT_EQ(pwrite(file.get(), &byte, 1, bit / 8), 1);
    EXPECT_FALSE(Verify().ok()) << path << " bit " << bit;
    byte ^= static_cast<char>(1 << (bit % 8));
    ASSERT_EQ(pwrite(file.get(), &byte, 1, bit / 8), 1);
  }
  EXPECT_TRUE(Verify().ok());
  EXPECT_TRUE(Load(2).ok());
}

}  // namespace
}  // namespace xlad::storage
