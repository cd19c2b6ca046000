#include "service/goodput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/clock.h"

namespace xlad::service {
namespace {

constexpr int64_t kStart = 1'700'000'000 * kNsPerSecond;

class Events {
 public:
  JobEvent& At(double seconds) {
    JobEvent& event = list.emplace_back();
    event.set_unix_ns(kStart + static_cast<int64_t>(seconds * kNsPerSecond));
    event.set_job_id("job");
    return event;
  }
  void Submitted(double s) { At(s).mutable_submitted(); }
  void Built(double s, double compile_ms) { At(s).mutable_built()->set_compile_ms(compile_ms); }
  void Placed(double s, int64_t attempt) { At(s).mutable_placed()->set_attempt(attempt); }
  void Started(double s, int64_t attempt) { At(s).mutable_started()->set_attempt(attempt); }
  void Stopped(double s) { At(s).mutable_attempt_ended()->set_stopped(true); }
  void Failed(double s) { At(s).mutable_attempt_ended(); }
  void Ended(double s) { At(s).mutable_ended()->set_state(SUCCEEDED); }

  std::vector<JobEvent> list;
};

std::map<std::string, double> Measured(const Events& events, const std::map<int64_t, AttemptTime>& steps,
                                       double now = 0) {
  std::map<std::string, double> out;
  const int64_t now_ns = kStart + static_cast<int64_t>(now * kNsPerSecond);
  for (const JobTime& time : TimeByCause(events.list, steps, now_ns)) {
    if (time.seconds() != 0) out[time.cause()] = time.seconds();
  }
  return out;
}

TEST(GoodputTest, AJobWithoutDisturbance) {
  Events events;
  events.Submitted(0);
  events.Built(3, 2000);
  events.Placed(4, 1);
  events.Started(5, 1);
  events.Ended(15);
  EXPECT_EQ(Measured(events, {{1, {8000, 500}}}, 99),
            (std::map<std::string, double>{{"wait", 1 + 1 + 1.5}, {"compile", 2}, {"load", 1}, {"step", 8},
                                           {"checkpoint", 0.5}}));
}

TEST(GoodputTest, AFailureAndADrain) {
  Events events;
  events.Submitted(0);
  events.Built(1, 5000);  // The reported compile time exceeds the elapsed time.
  events.Placed(1, 1);
  events.Started(2, 1);
  events.Failed(12);  // The attempt ran for 10 s; the next one repeated 6 s of its steps.
  events.Placed(13, 2);
  events.Started(15, 2);
  events.Stopped(25);
  events.Built(26, 500);
  events.Placed(27, 3);
  events.Started(28, 3);
  EXPECT_EQ(Measured(events, {{1, {4000, 0}}, {2, {10'000, 0}}, {3, {1000, 0}}}, 30),
            (std::map<std::string, double>{{"compile", 1.5},
                                           {"load", 2},
                                           {"step", 15},
                                           {"lost", 6},
                                           {"restart", 3},
                                           {"wait", 1.5 + 1}}));
}

// The second build, for which the job does not wait, may end before, during or after the job's first attempt.
TEST(GoodputTest, OptimizedCodeThatReplacesQuickCodeIsNotWaitedFor) {
  const std::map<int64_t, AttemptTime> steps = {{1, {8000, 500}}, {2, {9000, 0}}};
  Events quick;
  quick.Submitted(0);
  quick.Built(1, 800);
  quick.Placed(4, 1);
  quick.Started(5, 1);
  quick.Failed(15);
  quick.Placed(16, 2);
  quick.Started(17, 2);
  quick.Ended(27);
  for (const double optimized : {3.5, 4.5, 10.0, 15.5, 16.5}) {
    Events both;
    for (const JobEvent& event : quick.list) {
      const auto at_ns = kStart + static_cast<int64_t>(optimized * kNsPerSecond);
      if (event.unix_ns() > at_ns && both.list.back().unix_ns() < at_ns) {
        both.Built(optimized, 600);
        both.list.back().mutable_built()->set_only_code(true);
      }
      both.list.push_back(event);
    }
    ASSERT_EQ(both.list.size(), quick.list.size() + 1);
    EXPECT_EQ(Measured(both, steps), Measured(quick, steps)) << optimized;
  }
}

TEST(GoodputTest, AnOpenJobThatWaits) {
  Events events;
  EXPECT_TRUE(Measured(events, {}).empty());
  events.Submitted(0);
  EXPECT_EQ(Measured(events, {}, 7), (std::map<std::string, double>{{"wait", 7}}));
  EXPECT_TRUE(Measured(events, {}, -7).empty()) << "the clock was set back";
}

// The causes add up to the elapsed time for random sequences of events.
TEST(GoodputTest, CausesAddUp) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Events events;
    double at = 0;
    const auto later = [&] { return at += std::uniform_real_distribution<double>(0, 5)(random); };
    std::map<int64_t, AttemptTime> steps;
    events.Submitted(0);
    events.Built(later(), std::uniform_real_distribution<double>(0, 9000)(random));
    const int attempts = static_cast<int>(random() % 5);
    for (int64_t attempt = 1; attempt <= attempts; ++attempt) {
      events.Placed(later(), attempt);
      if (random() % 4 != 0) events.Started(later(), attempt);
      steps[attempt] = {static_cast<double>(random() % 6000), static_cast<double>(random() % 600)};
      random() % 2 == 0 ? events.Failed(later()) : events.Stopped(later());
    }
    const double end = later();
    if (random() % 2 == 0) events.Ended(end);
    double sum = 0;
    for (const auto& [cause, seconds] : Measured(events, steps, end)) {
      EXPECT_GE(seconds, 0) << cause;
      sum += seconds;
    }
    EXPECT_NEAR(sum, end, 1e-6);
  }
}

TEST(GoodputTest, TheTextHasTheLongestCausesFirst) {
  std::vector<JobTime> time(3);
  time[0].set_cause("wait");
  time[0].set_seconds(1);
  time[1].set_cause("step");
  time[1].set_seconds(8.999);
  time[2].set_cause("lost");
  time[2].set_seconds(0.001);
  EXPECT_EQ(TimeText(time), "step 90.0 %, wait 10.0 %");
  EXPECT_EQ(TimeText({}), "");
}

}  // namespace
}  // namespace xlad::service
