// Coordinators that recover from logs of arbitrary events, in any order, with odd values: the checksums of a log detect
// errors of a disk, but not what another version of xlad has written. XLAD_ANY_EVENTS is the number of logs (default
// 300), XLAD_SEED the first seed.
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/testing/case_count.h"
#include "service/log/compaction.h"
#include "service/testing/cluster.h"
#include "service/testing/odd_messages.h"

namespace xlad::service {
namespace {

// Returns the submission of a job with odd values that a coordinator accepts.
JobSubmitted AnySubmission(const Choose& choose, const JobSpec& plain) {
  JobSubmitted submitted;
  MakeOdd(choose, &submitted);
  SubmitJobRequest request;
  request.set_client_key("key");
  *request.mutable_spec() = submitted.spec();
  if (!Validate(request).ok()) *submitted.mutable_spec() = plain;
  return submitted;
}

// Returns an event of a random kind.
JobEvent AnyEvent(const Choose& choose, const JobSpec& plain) {
  JobEvent event;
  const auto* kinds = event.GetDescriptor()->FindOneofByName("event");
  const auto* kind = kinds->field(static_cast<int>(choose(kinds->field_count())));
  MakeOdd(choose, event.GetReflection()->MutableMessage(&event, kind), /*depth=*/1);
  if (event.has_submitted()) *event.mutable_submitted() = AnySubmission(choose, plain);
  FillIn("job_id", "job-1", &event);
  const char* const jobs[] = {"job-1", "job-1", "job-2", ""};
  event.set_job_id(OneOf(choose, jobs));
  const bool is_of_coordinator = event.has_term_started() || event.has_drain_changed() || event.has_removed();
  if (is_of_coordinator) event.clear_job_id();
  return event;
}

class AnyEventTest : public ::testing::Test {
 protected:
  AnyEventTest() { SetLogLevel(LogLevel::kError); }
  ~AnyEventTest() override { SetLogLevel(LogLevel::kInfo); }

  // Recovers, and asks for all that a coordinator shows.
  void ReadAndServe() {
    cluster_.Restart();
    for (const JobEvent& event : cluster_.store.events) {
      (void)Describe(event);
      (void)ForClients(event);
    }
    cluster_.Register(1, "w");
    cluster_.Advance(1000);
    CoordinatorCore& core = cluster_.coordinator();
    (void)core.Status();
    (void)core.StateInUse();
    for (const char* id : {"job-1", "job-2", ""}) {
      (void)core.Why(JobId(id));
      (void)core.jobs().Status(JobId(id));
    }
    const std::unique_ptr<JobLog> log = OpenMemoryJobLog(&cluster_.store);
    const auto plan = PlanCompaction(log.get(), {{JobId("job-1"), {}}});
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(log->Compact(*plan).ok());
    cluster_.Restart();
    cluster_.Advance(200);
  }

  Cluster cluster_;
};

TEST_F(AnyEventTest, ALogOfAnyEventsIsReadAndServed) {
  const uint64_t first = NumberFrom("XLAD_SEED", 1);
  for (uint64_t seed = first; seed < first + NumberFrom("XLAD_ANY_EVENTS", 300); ++seed) {
    SCOPED_TRACE(absl::StrCat("XLAD_SEED=", seed));
    const std::unique_ptr<Random> random = SeededRandom(seed);
    const Choose choose = [&](uint64_t below) { return random->Below(below); };
    cluster_.store = MemoryJobStore();
    const JobSpec plain = cluster_.Spec(2);
    for (uint64_t left = 1 + choose(20); left > 0; --left) {
      JobEvent event = AnyEvent(choose, plain);
      event.set_sequence(cluster_.store.next_sequence++);
      cluster_.store.events.push_back(std::move(event));
    }
    ReadAndServe();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace xlad::service
