// Simulated times of executables: they are set only for targets with a chip, and agree with the model of the complete
// step.
#include "simulate/executable_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "compiler/compile.h"
#include "hlo/testing/test_material.h"
#include "machine/built_in_chips.h"
#include "simulate/slice.h"

namespace xlad::simulate {
namespace {

constexpr char kProgram[] = R"(HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
ENTRY main {
  x = f32[2048,2048] parameter(0)
  w = f32[2048,2048] parameter(1)
  dot = f32[2048,2048] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  all = f32[2048,2048] all-reduce(dot), replica_groups={{0,1,2,3}}, channel_id=1, use_global_device_ids=true,
    to_apply=add
  ROOT y = f32[2048,2048] exponential(all)
})";

std::string TextOf(const std::string& chip) {
  for (const machine::ChipFile& file : machine::ChipFiles()) {
    if (file.name == chip) return file.text;
  }
  return "";
}

Executable Compiled(const std::string& text, const std::string& chip, int64_t devices = 4) {
  CompileRequest request;
  request.set_partitioned_module(text);
  MeshAxis* axis = request.add_mesh();
  axis->set_name("dp");
  axis->set_size(devices);
  request.mutable_target()->set_chip(chip);
  auto result = compiler::CompileWithListings(request, {}, false);
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return Executable();
  const absl::Status timed = SetSimulatedTimes(*result->module, &result->executable);
  EXPECT_TRUE(timed.ok()) << timed;
  return std::move(result->executable);
}

double SumOfSteps(const Executable& executable) {
  double us = 0;
  for (const Step& step : executable.steps()) us += step.simulated_us();
  return us;
}

TEST(ExecutableTimeTest, StepsAddUpToTheStep) {
  const Executable executable = Compiled(kProgram, TextOf("v5e"));
  const SimulatedTime& time = executable.simulated();
  EXPECT_EQ(time.topology(), "v5e-2x2");
  EXPECT_GT(time.us(), 0);
  EXPECT_GT(time.mxu_us(), 0);
  EXPECT_GT(time.ici_us(), 0);
  EXPECT_GT(time.hbm_us(), 0);
  // Nothing can overlap in this program.
  EXPECT_NEAR(SumOfSteps(executable), time.us(), 1e-6 * time.us());
  EXPECT_NEAR(time.stall_us(), time.ici_us(), 1e-6 * time.us());
}

TEST(ExecutableTimeTest, OtherTargetsHaveNoTime) {
  const Executable executable = Compiled(kProgram, "");
  EXPECT_FALSE(executable.has_simulated());
  EXPECT_EQ(SumOfSteps(executable), 0);
}

TEST(ExecutableTimeTest, TwiceTheRatesAreHalfTheTime) {
  const std::string v5e = TextOf("v5e");
  const std::string twice = absl::StrReplaceAll(
      v5e, {{"819 GB/s", "1638 GB/s"}, {"197 TFLOP/s", "394 TFLOP/s"}, {"1.5 GHz", "3 GHz"}, {"50 GB/s", "100 GB/s"}});
  const SimulatedTime slow = Compiled(kProgram, v5e).simulated(), fast = Compiled(kProgram, twice).simulated();
  EXPECT_NEAR(slow.mxu_us(), 2 * fast.mxu_us(), 1e-6 * slow.mxu_us());
  EXPECT_NEAR(slow.hbm_us(), 2 * fast.hbm_us(), 1e-6 * slow.hbm_us());
}

TEST(ExecutableTimeTest, LoopsStaySteps) {
  const Executable executable = Compiled(hlo::TestText("simulate/testdata/power_loop.hlo"), TextOf("v4"), 1);
  int loops = 0;
  double body_us = 0;
  for (const Step& step : executable.steps()) {
    if (!step.has_while_()) continue;
    ++loops;
    for (const Step& inner : step.while_().body()) body_us += inner.simulated_us();
  }
  EXPECT_EQ(loops, 1);
  EXPECT_GT(executable.simulated().us(), 49 * body_us);
}

// A repeated step, which is in no module and whose time is that of a copy of 819 MB at 819 GB/s.
Step RepeatedCopy() {
  Step step;
  step.set_is_repeated(true);
  BufferSlice* const from = step.mutable_copy()->mutable_from();
  from->set_bytes(819'000'000);
  *step.mutable_copy()->mutable_to() = *from;
  step.set_bytes(from->bytes());
  return step;
}

// Each case adds repeated steps to a program, and says how many of them one execution runs.
TEST(ExecutableTimeTest, RepeatedStepsAreCountedWhereverTheyAre) {
  const auto loop = [](const std::vector<Step>& condition, const std::vector<Step>& body) {
    Step step;
    step.mutable_while_()->set_trip_count(5);
    step.mutable_while_()->mutable_condition()->Add(condition.begin(), condition.end());
    step.mutable_while_()->mutable_body()->Add(body.begin(), body.end());
    return step;
  };
  const auto choice = [](const std::vector<std::vector<Step>>& branches) {
    Step step;
    for (const std::vector<Step>& branch : branches) {
      step.mutable_if_()->add_branches()->mutable_steps()->Add(branch.begin(), branch.end());
    }
    return step;
  };
  const Step copy = RepeatedCopy();
  const std::vector<std::pair<Step, int>> cases = {{copy, 1},
                                                   {loop({}, {copy, copy}), 10},
                                                   {loop({copy}, {}), 6},
                                                   {choice({{}, {copy}}), 1},
                                                   {choice({{copy, copy}, {copy}, {}}), 2},
                                                   {choice({{loop({}, {copy})}, {}}), 5},
                                                   {loop({}, {choice({{copy}, {}})}), 5}};
  CompileRequest request;
  request.set_partitioned_module(kProgram);
  MeshAxis* axis = request.add_mesh();
  axis->set_name("dp");
  axis->set_size(4);
  request.mutable_target()->set_chip(TextOf("v5e"));
  auto compiled = compiler::CompileWithListings(request, {}, false);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  Executable plain = compiled->executable;
  ASSERT_TRUE(SetSimulatedTimes(*compiled->module, &plain).ok());
  for (size_t i = 0; i < cases.size(); ++i) {
    Executable executable = compiled->executable;
    *executable.add_steps() = cases[i].first;
    ASSERT_TRUE(SetSimulatedTimes(*compiled->module, &executable).ok());
    EXPECT_NEAR(executable.simulated().us() - plain.simulated().us(), 1000 * cases[i].second, 0.01) << "case " << i;
  }
}

TEST(SliceTest, ChipsFormTheMostEvenTorus) {
  const auto name = [](const char* chip, int64_t chips) {
    const auto slice = SliceOfChips(*machine::BuiltInChip(chip), chips);
    EXPECT_TRUE(slice.ok()) << slice.status();
    EXPECT_EQ(slice->chips(), chips);
    return slice->name;
  };
  EXPECT_EQ(name("v5e", 1), "v5e-1x1");
  EXPECT_EQ(name("v5e", 8), "v5e-2x4");
  EXPECT_EQ(name("v5e", 7), "v5e-1x7");
  EXPECT_EQ(name("v4", 8), "v4-2x2x2");
  EXPECT_EQ(name("v4", 12), "v4-2x2x3");
  EXPECT_EQ(name("v5p", 64), "v5p-4x4x4");
  EXPECT_EQ(name("v4", 14), "v4-1x2x7");
  EXPECT_EQ(name("v4", 108), "v4-3x6x6");  // Not 4 x 3 x 9, although 4 is closer to the cube root.
  EXPECT_FALSE(SliceOfChips(*machine::BuiltInChip("v4"), 0).ok());
  EXPECT_FALSE(SliceOfChips(*machine::BuiltInChip("v4"), kMaxChips + 1).ok());
}

}  // namespace
}  // namespace xlad::simulate
