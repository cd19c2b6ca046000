// Compaction deletes many events, and the state that results from reading the log is the same after any prefix of the
// deletions.
#include "service/log/compaction.h"

#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "base/random.h"
#include "service/log/jobs.h"

namespace xlad::service {
namespace {

// The state that a coordinator restores from its log, as text, except for the numbers of the jobs.
std::string FoldOf(MemoryJobStore* store) {
  Jobs jobs;
  EXPECT_TRUE(OpenMemoryJobLog(store)
                  ->ReadEvents([&](const JobEvent& event) {
                    jobs.Apply(event);
                    return absl::OkStatus();
                  })
                  .ok());
  std::string text = absl::StrCat("term ", jobs.term().value(), ", generation ", jobs.generation().value(), "\n");
  for (const WorkerId& worker : jobs.drained()) absl::StrAppend(&text, "drained ", worker.str(), "\n");
  for (const auto& [number, job] : jobs.by_number()) {
    absl::StrAppend(&text, job->id.str(), " ", JobState_Name(job->state), " attempt ", job->attempt, " failures ",
                    job->failures, " error ", job->program_error, " ", job->program_error_step, " ", job->reason);
    for (const Checkpoint& one : job->checkpoints) absl::StrAppend(&text, " ", one.step, "=", one.uri);
    absl::StrAppend(&text, jobs.FindByKey(job->client_key) == job ? "\n" : " no key\n");
  }
  return text;
}

// Writes a random log that coordinators could have written: jobs run, fail, save and drop checkpoints, end, and are
// removed.
class History {
 public:
  History(uint64_t seed, MemoryJobStore* store) : random_(SeededRandom(seed)), log_(OpenMemoryJobLog(store)) {}

  void Write(int events) {
    NewTerm();
    for (int i = 0; i < events; ++i) WriteOne();
  }

 private:
  void WriteOne() {
    const uint64_t kind = random_->Below(20);
    if (kind == 0) return NewTerm();
    if (kind == 1) return ChangeDrain();
    if (kind == 2) return RemoveEnded();
    if (kind < 5 || Open().empty()) return Submit();
    Job* job = Open()[random_->Below(Open().size())];
    if (!job->attempt_running) return Place(*job);
    if (kind == 5) return End(*job);
    if (kind < 8) return Fail(*job);
    Commit(job);
  }

  std::vector<Job*> Open() { return jobs_.Open(); }
  void Append(JobEvent event) {
    LogBatch batch{{std::move(event)}, {}};
    ASSERT_TRUE(log_->Append(&batch).ok());
    jobs_.Apply(batch.events[0]);
  }
  static JobEvent About(const Job& job) {
    JobEvent event;
    event.set_job_id(job.id.str());
    return event;
  }
  void NewTerm() {
    JobEvent event;
    event.mutable_term_started()->set_term(jobs_.term().value() + 1);
    Append(event);
  }
  void ChangeDrain() {
    JobEvent event;
    event.mutable_drain_changed()->set_worker_id(absl::StrCat("w", random_->Below(3)));
    event.mutable_drain_changed()->set_drain(random_->Below(2) == 0);
    Append(event);
  }
  void RemoveEnded() {
    JobEvent event;
    for (const auto& [number, job] : jobs_.by_number()) {
      if (HasEnded(*job) && random_->Below(2) == 0) event.mutable_removed()->add_job_ids(job->id.str());
    }
    event.mutable_removed()->set_generation(jobs_.generation().value());
    Append(event);
  }
  void Submit() {
    JobEvent event;
    event.set_job_id(absl::StrCat("job-", ++submitted_));
    event.mutable_submitted()->set_client_key(absl::StrCat("key-", submitted_));
    Append(event);
  }
  void Place(const Job& job) {
    JobEvent event = About(job);
    event.mutable_placed()->set_attempt(job.attempt + 1);
    event.mutable_placed()->set_generation(jobs_.generation().value() + 1);
    event.mutable_placed()->set_first_step(StartOf(job).step);
    Append(event);
  }
  void End(const Job& job) {
    JobEvent event = About(job);
    event.mutable_ended()->set_state(random_->Below(2) == 0 ? SUCCEEDED : FAILED);
    Append(event);
  }
  void Fail(const Job& job) {
    JobEvent event = About(job);
    event.mutable_attempt_ended()->set_attempt(job.attempt);
    event.mutable_attempt_ended()->set_reason(absl::StrCat("reason ", random_->Below(100)));
    if (random_->Below(2) == 0) event.mutable_attempt_ended()->set_program_error("error");
    Append(event);
  }
  // Commits a checkpoint, sometimes of an earlier step than the newest one, as after a start from an earlier
  // checkpoint.
  void Commit(Job* job) {
    const int64_t newest = job->checkpoints.empty() ? 0 : job->checkpoints.back().step;
    const int64_t back = random_->Below(5) == 0 ? std::min<int64_t>(newest, random_->Below(30)) : 0;
    JobEvent event = About(*job);
    event.mutable_checkpoint()->set_step(newest + 10 - back);
    event.mutable_checkpoint()->set_uri(absl::StrCat("xlad:", ++committed_));
    Append(event);
    const int64_t keep = 1 + job->number % 3;
    JobEvent dropped = About(*job);
    for (int64_t i = 0; i + keep < std::ssize(job->checkpoints); ++i) {
      dropped.mutable_dropped()->add_steps(job->checkpoints[i].step);
    }
    if (dropped.has_dropped()) Append(dropped);
  }

  std::unique_ptr<Random> random_;
  std::unique_ptr<JobLog> log_;
  Jobs jobs_;
  int64_t submitted_ = 0, committed_ = 0;
};

LogCompaction PlanFor(MemoryJobStore* store) {
  Jobs jobs;
  const std::unique_ptr<JobLog> log = OpenMemoryJobLog(store);
  EXPECT_TRUE(log->ReadEvents([&](const JobEvent& event) {
                   jobs.Apply(event);
                   return absl::OkStatus();
                 }).ok());
  std::vector<TrimmedJob> trimmed;
  for (const auto& [number, job] : jobs.by_number()) trimmed.push_back({job->id, job->checkpoints});
  return *PlanCompaction(log.get(), trimmed);
}

TEST(Compaction, AnyPrefixOfTheDeletionsKeepsTheState) {
  int64_t deleted = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    MemoryJobStore store;
    History(seed, &store).Write(120);
    const std::string before = FoldOf(&store);
    const LogCompaction plan = PlanFor(&store);
    for (size_t part = 0; part <= plan.jobs.size() + plan.events.size(); part += 1 + seed % 3) {
      LogCompaction some = plan;
      some.jobs.resize(std::min(part, plan.jobs.size()));
      some.events.resize(part - some.jobs.size());
      MemoryJobStore copy = store;
      ASSERT_TRUE(OpenMemoryJobLog(&copy)->Compact(some).ok());
      ASSERT_EQ(FoldOf(&copy), before) << "seed " << seed << ", part " << part;
    }
    ASSERT_TRUE(OpenMemoryJobLog(&store)->Compact(plan).ok());
    deleted += std::ssize(plan.events);
    // The remaining log does not need further compaction, except for the jobs that the last removal names.
    EXPECT_TRUE(PlanFor(&store).events.empty()) << "seed " << seed;
  }
  EXPECT_GT(deleted, 1000);
}

TEST(Compaction, ALongRunLeavesFewEvents) {
  MemoryJobStore store;
  const std::unique_ptr<JobLog> log = OpenMemoryJobLog(&store);
  LogBatch batch{std::vector<JobEvent>(1), {}};
  batch.events[0].set_job_id("job");
  batch.events[0].mutable_submitted()->set_client_key("key");
  for (int64_t step = 10; step <= 50'000; step += 10) {
    JobEvent commit, drop;
    commit.set_job_id("job");
    commit.mutable_checkpoint()->set_step(step);
    commit.mutable_checkpoint()->set_uri(absl::StrCat("xlad:", step));
    drop.set_job_id("job");
    drop.mutable_dropped()->add_steps(step - 20);
    batch.events.push_back(commit);
    if (step > 20) batch.events.push_back(drop);
  }
  ASSERT_TRUE(log->Append(&batch).ok());
  const std::string before = FoldOf(&store);
  ASSERT_TRUE(log->Compact(PlanFor(&store)).ok());
  EXPECT_EQ(FoldOf(&store), before);
  EXPECT_LE(store.events.size(), 5u);
}

}  // namespace
}  // namespace xlad::service
