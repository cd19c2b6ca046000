// The engine with a real log and real build processes, which run a script instead of xlad.
#include "service/engine.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "base/file_descriptor.h"
#include "base/hash.h"
#include "base/testing/test_folder.h"
#include "proto/protocol.h"
#include "service/restore.h"
#include "service/state/messages.h"
#include "service/testing/whole_message.h"
#include "storage/uri.h"

namespace xlad::service {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPatienceMs = 120'000;

// Replaces the build of a program. For a program that contains "huge", the script writes its process id to a file named
// after the program and never ends. The build of every other program fails, or answers with the file "response".
constexpr char kBuilder[] = R"(#!/bin/sh
name=$(tr -c 'a-z0-9-' '\n' | grep -m1 '^huge-[0-9]*$') || {
  test -f "FOLDER/response" && exec cat "FOLDER/response"
  echo "small" >&2
  exit 3
}
echo $$ > "FOLDER/$name.tmp"
mv "FOLDER/$name.tmp" "FOLDER/$name"
exec sleep 100000
)";

// Whether another process could lock the file.
bool AnotherProcessCanLock(const std::string& path) {
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0, .l_pid = 0};
    _exit(file >= 0 && fcntl(file, F_SETLK, &whole) == 0 ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

// A worker that answers nothing.
class SilentWorker final : public Outbox {
 public:
  void Send(const CoordinatorMessage& message, std::shared_ptr<const std::string> common) override {
    const CoordinatorMessage whole = WholeOf({ConnectionId(), message, std::move(common)});
    const std::lock_guard lock(mutex_);
    if (whole.has_launch()) launched_ = AttemptOf(whole.launch());
  }
  void Close() override {}
  // The attempt that this worker was told to launch last.
  std::optional<AttemptId> launched() const {
    const std::lock_guard lock(mutex_);
    return launched_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<AttemptId> launched_;
};

class EngineTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string script = kBuilder;
    for (size_t at; (at = script.find("FOLDER")) != std::string::npos;) script.replace(at, 6, folder_);
    const std::string program = JoinPath(folder_, "builder");
    ASSERT_TRUE(RealFileSystem().WriteAtomically(program, script).ok());
    ASSERT_EQ(chmod(program.c_str(), 0700), 0);
    options_.data_folder = JoinPath(folder_, "data");
    options_.program_path = program;
  }
  void TearDown() override {
    if (engine_ != nullptr) engine_->Stop();
    engine_.reset();
  }
  void Start() {
    auto engine = Engine::Start(options_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    WorkerMessage message;
    RegisterWorker* registration = message.mutable_register_();
    registration->set_worker_id("w");
    registration->set_incarnation(1);
    registration->set_devices(8);
    registration->set_protocol(kProtocol);
    connection_ = engine_->Attach(&worker_);
    engine_->OnMessage(connection_, message);
  }
  std::string Submit(const std::string& program) {
    // The hold keeps a collection from removing the blob between the upload and the submission.
    const auto hold = engine_->blobs().Hold({Sha256Hex(program)});
    SubmitJobRequest request;
    request.set_client_key(program);
    request.mutable_spec()->set_program_blob(*engine_->blobs().Put(program));
    const auto response = engine_->Submit(request);
    return response.ok() ? response->job_id() : std::string(response.status().message());
  }
  static bool Eventually(const std::function<bool()>& is_so) {
    for (int64_t waited = 0; waited < kPatienceMs; waited += 10) {
      if (is_so()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  // Waits until the process that builds this huge program runs, and returns its process id.
  pid_t Builder(const std::string& program) {
    const std::string path = JoinPath(folder_, program);
    EXPECT_TRUE(Eventually([&] { return RealFileSystem().Exists(path); })) << program;
    return std::atoi(RealFileSystem().Read(path).value_or("0").c_str());
  }
  bool HasEnded(const std::string& job) { return xlad::HasEnded(engine_->GetJob(job)->state()); }

  const TestFolder own_folder_;
  const std::string folder_ = own_folder_.path();
  EngineOptions options_;
  SilentWorker worker_;
  ConnectionId connection_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, HugeProgramsDoNotBlockOthersAndEndWithTheirJobs) {
  options_.builds = {.young = 2, .all = 8, .old_after_ms = 100};
  Start();
  const std::string first = Submit("huge-1"), second = Submit("huge-2");
  const pid_t first_pid = Builder("huge-1"), second_pid = Builder("huge-2");
  ASSERT_GT(first_pid, 0);
  ASSERT_GT(second_pid, 0);
  const std::string small = Submit("tiny");
  EXPECT_TRUE(Eventually([&] { return HasEnded(small); })) << "its build starts while the others run";
  EXPECT_THAT(engine_->GetJob(small)->reason(), HasSubstr("small"));
  EXPECT_EQ(engine_->GetJob(first)->state(), COMPILING);

  ASSERT_TRUE(engine_->Cancel(first).ok());
  EXPECT_TRUE(Eventually([&] { return kill(first_pid, 0) != 0; })) << "the build ends when its job is canceled";
  EXPECT_EQ(kill(second_pid, 0), 0);
  EXPECT_EQ(engine_->GetJob(first)->state(), CANCELLED);
  engine_->Stop();
  EXPECT_NE(kill(second_pid, 0), 0) << "the build ends when the engine stops";
}

// The opening of a pipe blocks like that of a file whose server does not answer.
TEST_F(EngineTest, JobsOnAFileSystemThatDoesNotAnswerDoNotBlockOthers) {
  options_.builds = {.young = 2, .all = 2};
  options_.folder_patience_ms = 1;
  Start();
  const std::string pipe = JoinPath(folder_, "pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  SubmitJobRequest request;
  request.mutable_spec()->set_program_blob(*engine_->blobs().Put("tiny"));
  request.mutable_spec()->set_state_uri(storage::FileUri(pipe));
  std::vector<std::string> blocked;
  for (const char* key : {"first", "second", "third"}) {
    request.set_client_key(key);
    blocked.push_back(engine_->Submit(request)->job_id());
  }
  const std::string other = Submit("other");
  EXPECT_TRUE(Eventually([&] { return HasEnded(other); }));
  for (const std::string& job : blocked) {
    EXPECT_TRUE(Eventually([&] { return absl::StrContains(engine_->GetJob(job)->reason(), "has not answered"); }));
    EXPECT_FALSE(HasEnded(job)) << "it waits until the file can be read";
  }
  request.set_client_key("resumed");
  request.mutable_spec()->set_resume(storage::FileUri(pipe));
  EXPECT_TRUE(absl::IsUnavailable(engine_->Submit(request).status()));
  Submit("huge-1");
  const pid_t builder = Builder("huge-1");
  EXPECT_GT(builder, 0);
  const auto stopped = std::async(std::launch::async, [this] { engine_->Stop(); });
  const auto has_stopped = [&] { return stopped.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
  EXPECT_TRUE(Eventually(has_stopped)) << "it does not wait for the blocked call";
  EXPECT_TRUE(Eventually([&] { return kill(builder, 0) != 0; }));
  // The blocked call ends, because the engine's destructor waits for it.
  const FileDescriptor writer(open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  stopped.wait();
  engine_.reset();
}

TEST_F(EngineTest, TheBuildOfASessionEndsWithItsClient) {
  options_.build_limits.timeout_ms = kPatienceMs;
  options_.coordinator.lost_ms = kPatienceMs;
  Start();
  OpenSessionRequest open;
  open.set_client_key("key");
  open.add_mesh()->set_size(8);
  const auto session = engine_->OpenSession(open);
  ASSERT_TRUE(session.ok()) << session.status();
  int64_t term = 0;
  ASSERT_TRUE(engine_->HoldSession(session->session_id(), &term).ok());
  ASSERT_TRUE(Eventually([&] { return worker_.launched().has_value(); }));
  WorkerMessage ready;
  SetAttempt(*worker_.launched(), ready.mutable_ready());
  ready.mutable_ready()->set_session_address("127.0.0.1:1");
  engine_->OnMessage(connection_, ready);

  const auto hold = engine_->blobs().Hold({Sha256Hex("huge-1")});
  LoadProgramRequest load;
  load.set_session_id(session->session_id());
  load.set_program_blob(*engine_->blobs().Put("huge-1"));
  const auto leave_when_it_builds = [&]() -> absl::Status {
    const bool builds = RealFileSystem().Exists(JoinPath(folder_, "huge-1"));
    return builds ? absl::CancelledError("the client left") : absl::OkStatus();
  };
  const absl::Status loading = engine_->LoadProgram(load, leave_when_it_builds).status();
  EXPECT_TRUE(absl::IsCancelled(loading)) << loading;
  const pid_t builder = Builder("huge-1");
  ASSERT_GT(builder, 0);
  EXPECT_TRUE(Eventually([&] { return kill(builder, 0) != 0; }));
}

// No other process can lock the log, even while it is created, written or copied. Therefore a second coordinator on the
// same folder is refused.
TEST_F(EngineTest, LogStaysLockedUntilTheEngineStops) {
  const std::string log = JoinPath(options_.data_folder, "jobs.sqlite");
  for (const char* start : {"first", "second", "third"}) {
    SCOPED_TRACE(start);
    Start();
    EXPECT_FALSE(AnotherProcessCanLock(log));
    Submit(start);
    EXPECT_FALSE(AnotherProcessCanLock(log));
    EXPECT_TRUE(engine_->Backup(JoinPath(folder_, start)).ok());
    EXPECT_FALSE(AnotherProcessCanLock(log));
    engine_->Stop();
    engine_.reset();
    EXPECT_TRUE(AnotherProcessCanLock(log));
  }
}

TEST_F(EngineTest, AJobThatWaitsForTheBuildOfACanceledJobBuildsItsOwnProgram) {
  Start();
  const std::string first = Submit("huge-1");
  const pid_t first_pid = Builder("huge-1");
  SubmitJobRequest request;
  request.set_client_key("same program");
  request.mutable_spec()->set_program_blob(*engine_->blobs().Put("huge-1"));
  const std::string second = engine_->Submit(request)->job_id();
  EXPECT_TRUE(Eventually([&] { return engine_->GetJob(second)->state() == COMPILING; }));
  ASSERT_TRUE(engine_->Cancel(first).ok());
  EXPECT_TRUE(Eventually([&] {
    const pid_t now = std::atoi(RealFileSystem().Read(JoinPath(folder_, "huge-1")).value_or("0").c_str());
    return now != 0 && now != first_pid && kill(now, 0) == 0;
  }));
  EXPECT_EQ(engine_->GetJob(second)->state(), COMPILING);
}

TEST_F(EngineTest, RemovedJobsLeaveNothingOnTheDisk) {
  options_.coordinator.keep_ended_jobs = 1;
  options_.coordinator.compact_interval_ms = 100;
  options_.blobs.unnamed_ms = 0;
  Start();
  std::vector<std::string> jobs;
  for (int i = 0; i < 4; ++i) {
    jobs.push_back(Submit(absl::StrCat("tiny ", i)));
    ASSERT_TRUE(Eventually([&] { return HasEnded(jobs.back()); })) << "it cannot be built";
  }
  const std::string data = options_.data_folder;
  const auto count = [&](const char* folder) {
    return RealFileSystem().List(JoinPath(data, folder)).value_or(std::vector<std::string>()).size();
  };
  EXPECT_TRUE(Eventually([&] { return count("jobs") == 1 && count("blobs") == 2; }))
      << "a folder, a program and its checksums; found " << count("jobs") << " and " << count("blobs");
  EXPECT_TRUE(absl::IsNotFound(engine_->GetJob(jobs[0]).status()));
  EXPECT_TRUE(engine_->GetJob(jobs[3]).ok());
  EXPECT_NE(Submit("tiny 0"), jobs[0]) << "it is another job, whose program is uploaded again";
}

// The process that dropped the checkpoint has ended. No other checkpoint is dropped, as on a full disk.
TEST_F(EngineTest, BlobsOfADroppedCheckpointAreRemovedAfterARestart) {
  Start();
  const std::string job = Submit("tiny");
  ASSERT_TRUE(Eventually([&] { return HasEnded(job); }));
  const std::string dropped = *engine_->blobs().Put("dropped"), kept = *engine_->blobs().Put("kept");
  engine_->Stop();
  engine_.reset();
  {
    const auto log = OpenSqliteJobLog(JoinPath(options_.data_folder, "jobs.sqlite"));
    ASSERT_TRUE(log.ok()) << log.status();
    LogBatch batch;
    for (const std::string& digest : {dropped, kept}) {
      CheckpointCommitted* const checkpoint = batch.events.emplace_back().mutable_checkpoint();
      checkpoint->set_step(batch.events.size());
      checkpoint->set_uri("xlad:" + digest);
    }
    batch.events.emplace_back().mutable_dropped()->add_steps(1);
    for (JobEvent& event : batch.events) {
      event.set_job_id(job);
      event.set_term(1);
    }
    ASSERT_TRUE((*log)->Append(&batch).ok());
  }
  options_.blobs.dropped_ms = 2500;  // Usually the first removal after the start is too early.
  options_.blobs.pause_ms = 20;
  Start();
  EXPECT_TRUE(Eventually([&] { return !engine_->blobs().Has(dropped); }));
  EXPECT_TRUE(engine_->blobs().Has(kept));
}

TEST_F(EngineTest, ABackupHasTheBatchesOfJobsThatAreFed) {
  Start();
  SubmitJobRequest request;
  request.set_client_key("fed");
  request.mutable_spec()->set_program_blob(*engine_->blobs().Put("huge-1"));
  request.mutable_spec()->set_data_uri("stream:");
  const std::string job = engine_->Submit(request)->job_id();
  ASSERT_EQ(engine_->NextBatch(job)->next(), 0);
  for (int64_t batch = 0; batch < 2; ++batch) {
    const auto arrival = engine_->spool().Begin(job, batch);
    ASSERT_TRUE((*arrival)->Append(absl::StrCat("batch ", batch)).ok());
    ASSERT_TRUE((*arrival)->Finish().ok());
  }
  const auto arriving = engine_->spool().Begin(job, 2);
  ASSERT_TRUE((*arriving)->Append("the beginning of").ok());
  const std::string backup = JoinPath(folder_, "backup"), restored = JoinPath(folder_, "restored");
  ASSERT_TRUE(engine_->Backup(backup).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(engine_->Backup(backup).status()));
  ASSERT_TRUE(engine_->Cancel(job).ok());
  engine_->Stop();
  engine_.reset();

  EXPECT_TRUE(absl::IsInvalidArgument(RestoreBackup(backup, JoinPath(backup, "a/b"), 0).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(RestoreBackup(JoinPath(backup, "."), JoinPath(folder_, "x/../backup"), 0).status()));
  ASSERT_TRUE(RestoreBackup(backup, restored, 0).ok());
  options_.data_folder = restored;
  Start();
  EXPECT_EQ(engine_->NextBatch(job)->next(), 2) << "the job exists, and waits for the third batch";
  const auto batch = engine_->spool().Read(job, 1, 0);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(*storage::ReadString(**batch, 0, (*batch)->size()), "batch 1");
}

TEST_F(EngineTest, AFolderOfARestoreThatDidNotEndIsRefused) {
  FileSystem& files = RealFileSystem();
  ASSERT_TRUE(files.MakeDirectories(options_.data_folder).ok());
  const std::string partial = JoinPath(options_.data_folder, kPartialLog);
  ASSERT_TRUE(files.WriteAtomically(partial, "").ok());
  const absl::Status refused = Engine::Start(options_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_FALSE(files.Exists(JoinPath(options_.data_folder, "jobs.sqlite"))) << "no empty log is created";
  ASSERT_TRUE(files.Remove(partial).ok());
  Start();
}

TEST_F(EngineTest, AFolderWhoseLogIsLostIsRefused) {
  Start();
  const std::string job = Submit("tiny");
  TearDown();
  const std::string log = JoinPath(options_.data_folder, "jobs.sqlite"), away = log + ".away";
  std::filesystem::copy_file(log, away);
  for (const bool is_missing : {false, true}) {
    if (is_missing) {
      std::filesystem::remove(log);
    } else {
      std::filesystem::resize_file(log, 0);
    }
    const absl::Status refused = Engine::Start(options_).status();
    EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(is_missing ? "is missing" : "is empty"));
    EXPECT_EQ(RealFileSystem().Exists(log), !is_missing) << "no new log is created";
  }
  std::filesystem::rename(away, log);
  Start();
  EXPECT_TRUE(engine_->GetJob(job).ok());
}

TEST_F(EngineTest, JobsWhoseLastMetricsAreDamagedAreKept) {
  Start();
  const std::string job = Submit("tiny"), other = Submit("other");
  ASSERT_TRUE(Eventually([&] { return HasEnded(job) && HasEnded(other); }));
  const JobState state = engine_->GetJob(job)->state();
  TearDown();
  const std::string path = JoinPath(options_.data_folder, "jobs.sqlite");
  {
    const auto log = OpenSqliteJobLog(path);
    ASSERT_TRUE(log.ok()) << log.status();
    LogBatch batch{{}, {{JobId(job), std::vector<StepMetrics>(1)}, {JobId(other), std::vector<StepMetrics>(1)}}};
    ASSERT_TRUE((*log)->Append(&batch).ok());
  }
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  const std::string damage = absl::StrCat("UPDATE metrics SET attempt = 1 WHERE job_id = '", job, "'");
  EXPECT_EQ(sqlite3_exec(db, damage.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  EXPECT_EQ(sqlite3_changes(db), 1);
  sqlite3_close(db);
  Start();
  EXPECT_EQ(engine_->GetJob(job)->state(), state);
  WatchJobRequest request;
  request.set_job_id(job);
  EXPECT_TRUE(absl::IsDataLoss(engine_->Watch(request).status())) << engine_->Watch(request).status();
  request.set_job_id(other);
  EXPECT_EQ(engine_->Watch(request)->metrics_size(), 1);
  EXPECT_NE(Submit("later"), "") << "the coordinator serves";
}

// Copying the blobs fails, because a file is in the place of their folder.
TEST_F(EngineTest, ABackupThatFailsLeavesAnEmptyFolder) {
  Start();
  Submit("tiny");
  const std::string backup = JoinPath(folder_, "backup"), blobs = JoinPath(options_.data_folder, "blobs");
  std::filesystem::rename(blobs, blobs + ".away");
  ASSERT_TRUE(RealFileSystem().WriteAtomically(blobs, "").ok());
  EXPECT_FALSE(engine_->Backup(backup).ok());
  EXPECT_TRUE(RealFileSystem().List(backup)->empty());
  ASSERT_TRUE(RealFileSystem().Remove(blobs).ok());
  std::filesystem::rename(blobs + ".away", blobs);
  EXPECT_TRUE(engine_->Backup(backup).ok()) << "into the same folder";
  EXPECT_TRUE(CheckComplete(backup).ok());
}

TEST_F(EngineTest, TheStatusSaysThatBuildsAreNotIsolated) {
  Start();
  EXPECT_EQ(engine_->Status().builds_not_isolated(), "");
  BuildResponse response;
  response.set_error("3:7: unknown opcode");
  response.set_error_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
  response.set_not_isolated("Landlock: Operation not supported");
  ASSERT_TRUE(RealFileSystem().WriteAtomically(JoinPath(folder_, "response"), response.SerializeAsString()).ok());
  const std::string job = Submit("tiny");
  EXPECT_TRUE(Eventually([&] { return HasEnded(job); }));
  EXPECT_EQ(engine_->Status().builds_not_isolated(), "Landlock: Operation not supported");
}

TEST_F(EngineTest, AnErrorOfTheDiskDoesNotEndAJob) {
  options_.coordinator.retry_pause_ms = 1;
  Start();
  Executable executable;
  executable.mutable_target()->set_device_kind("other");
  BuildResponse response;
  response.set_executable(executable.SerializeAsString());
  ASSERT_TRUE(RealFileSystem().WriteAtomically(JoinPath(folder_, "response"), response.SerializeAsString()).ok());
  // A folder in the place of the blob.
  const std::string blob = JoinPath(JoinPath(options_.data_folder, "blobs"), Sha256Hex(response.executable()));
  ASSERT_TRUE(RealFileSystem().MakeDirectories(blob).ok());
  const std::string job = Submit("tiny");
  EXPECT_TRUE(Eventually(
      [&] { return absl::StrContains(engine_->GetJob(job)->reason(), "its program could not be built: "); }));
  EXPECT_FALSE(HasEnded(job));
  ASSERT_TRUE(RealFileSystem().RemoveDirectory(blob).ok());
  EXPECT_TRUE(Eventually([&] { return HasEnded(job); })) << "the executable is for another kind of device";
  EXPECT_TRUE(engine_->blobs().Has(Sha256Hex(response.executable())));
}

TEST_F(EngineTest, ASessionStaysHeldWhenTheLogIsReopened) {
  const auto store = std::make_shared<MemoryJobStore>();
  options_.open_log = [store]() -> absl::StatusOr<std::shared_ptr<JobLog>> { return OpenMemoryJobLog(store.get()); };
  Start();
  OpenSessionRequest open;
  open.set_client_key("key");
  open.add_mesh()->set_size(1);
  const std::string session = engine_->OpenSession(open)->session_id();
  const auto is_held = [&] {
    return !absl::StrContains(engine_->Why(session)->DebugString(), "its client has been disconnected");
  };
  EXPECT_FALSE(is_held());
  int64_t term = 0;
  for (int call = 0; call < 2; ++call) ASSERT_TRUE(engine_->HoldSession(session, &term).ok());
  EXPECT_TRUE(is_held());
  const int64_t first = term;
  store->fail_next_appends = 1;
  EXPECT_TRUE(absl::IsUnavailable(engine_->Drain("w")));
  ASSERT_TRUE(Eventually([&] { return engine_->GetJob(session).ok(); }));
  EXPECT_FALSE(is_held());
  ASSERT_TRUE(engine_->HoldSession(session, &term).ok());
  EXPECT_NE(term, first);
  engine_->ReleaseSession(session, first);
  EXPECT_TRUE(is_held()) << "the first hold was lost with its term";
  engine_->ReleaseSession(session, term);
  EXPECT_FALSE(is_held());
}

TEST_F(EngineTest, TheStatusIsKnownFromTheStart) {
  for (int round = 0; round < 5; ++round) {
    auto engine = Engine::Start(options_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const CoordinatorStatus status = (*engine)->Status();
    EXPECT_TRUE(status.serving());
    EXPECT_TRUE(status.accepts_jobs());
    EXPECT_GT(status.free_bytes(), 0);
    EXPECT_EQ(status.term(), round + 1);
    EXPECT_GT(status.protocol(), 0);
  }
}

TEST_F(EngineTest, ARepeatedSubmissionFindsItsJobWhenItsBlobsAreGone) {
  Start();
  SubmitJobRequest request;
  request.set_client_key("key");
  request.mutable_spec()->set_program_blob(*engine_->blobs().Put("tiny"));
  const absl::StatusOr<SubmitJobResponse> accepted = engine_->Submit(request);
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  EXPECT_TRUE(Eventually([&] { return HasEnded(accepted->job_id()); }));
  const std::string blobs = JoinPath(options_.data_folder, "blobs");
  ASSERT_TRUE(RealFileSystem().Remove(JoinPath(blobs, request.spec().program_blob())).ok());
  const absl::StatusOr<SubmitJobResponse> again = engine_->Submit(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job_id(), accepted->job_id());
  EXPECT_TRUE(again->existed());
  request.set_client_key("another key");
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->Submit(request).status()));
}

TEST_F(EngineTest, ASubmissionNamesItsMissingBlobs) {
  Start();
  SubmitJobRequest request;
  request.set_client_key("key");
  request.mutable_spec()->set_program_blob(std::string(64, 'a'));
  const absl::Status missing = engine_->Submit(request).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(std::string(64, 'a')));
}

}  // namespace
}  // namespace xlad::service
