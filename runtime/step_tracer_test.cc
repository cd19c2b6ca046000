#include "runtime/step_tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace xlad::runtime {
namespace {

using ::testing::ElementsAre;

TEST(IsTracedTest, TheFirstStepsAndEightOfEachDoubling) {
  for (int64_t step = 0; step < 16; ++step) EXPECT_TRUE(IsTraced(step)) << step;
  EXPECT_FALSE(IsTraced(-1));
  for (int64_t doubling = 16; doubling < (int64_t{1} << 20); doubling *= 2) {
    int count = 0;
    for (int64_t step = doubling; step < 2 * doubling; ++step) count += IsTraced(step) ? 1 : 0;
    EXPECT_EQ(count, 8) << doubling;
  }
  EXPECT_TRUE(IsTraced(int64_t{1} << 40));
}

TEST(StepTracerTest, RecordsNestedSpansAndMessages) {
  ManualClock clock(1000);
  StepTracer tracer(&clock);
  tracer.Begin(7);
  clock.Advance(10);
  const int loop = tracer.Open(3);
  clock.Advance(5);
  const int inside = tracer.Open(4);
  tracer.messages()->Add({42, clock.NowNs(), true});
  clock.Advance(20);
  tracer.Close(inside);
  tracer.messages()->Add({43, clock.NowNs(), false});
  clock.Advance(1);
  tracer.Close(loop);
  const TracedStep step = tracer.End(2);
  EXPECT_EQ(step.device(), 2);
  EXPECT_EQ(step.step(), 7);
  EXPECT_EQ(step.begin_ns(), 1000);
  EXPECT_EQ(step.end_ns(), 1036);
  EXPECT_THAT(step.instruction(), ElementsAre(3, 4));
  EXPECT_THAT(step.span_begin_ns(), ElementsAre(10, 15));
  EXPECT_THAT(step.span_ns(), ElementsAre(26, 20));
  EXPECT_THAT(step.message_key(), ElementsAre(42, 43));
  EXPECT_THAT(step.message_ns(), ElementsAre(15, 35));
  EXPECT_THAT(step.message_sent(), ElementsAre(true, false));
  EXPECT_EQ(step.dropped(), 0);
  tracer.Begin(8);
  EXPECT_EQ(tracer.End(2).instruction_size(), 0);
}

TEST(StepTracerTest, CountsTheSpansAndMessagesBeyondTheLimits) {
  ManualClock clock;
  StepTracer tracer(&clock);
  tracer.Begin(0);
  for (size_t i = 0; i < StepTracer::kMaxSpans + 3; ++i) tracer.Close(tracer.Open(0));
  for (size_t i = 0; i < collectives::MessageLog::kMaxMessages + 4; ++i) tracer.messages()->Add({i, 0, true});
  const TracedStep step = tracer.End(0);
  EXPECT_EQ(step.instruction_size(), static_cast<int>(StepTracer::kMaxSpans));
  EXPECT_EQ(step.message_key_size(), static_cast<int>(collectives::MessageLog::kMaxMessages));
  EXPECT_EQ(step.dropped(), 7);
}

// A step that failed inside an instruction.
TEST(StepTracerTest, AnOpenSpanEndsWithTheStep) {
  ManualClock clock;
  StepTracer tracer(&clock);
  tracer.Begin(0);
  tracer.Open(1);
  clock.Advance(9);
  EXPECT_THAT(tracer.End(0).span_ns(), ElementsAre(9));
}

}  // namespace
}  // namespace xlad::runtime
