// The check of the candidates for the schedule of a kernel.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "compiler/kernel/candidate_schedules.h"

namespace xlad::compiler {

// Checks that the candidates have different schedules, of which the first is the kernel's usual one, and calls `check`
// with each. Returns their number.
inline int64_t CheckCandidates(const Kernel& kernel, absl::FunctionRef<void(const ScheduledKernel&)> check) {
  const auto usual = ApplySchedule(kernel, DefaultSchedule(kernel, 3));
  EXPECT_TRUE(usual.ok()) << usual.status();
  if (!usual.ok()) return 0;
  std::set<std::string> texts;
  for (const KernelSchedule& schedule : CandidateSchedules(*usual)) {
    if (texts.empty()) EXPECT_EQ(schedule, usual->schedule) << "the first is the usual one";
    EXPECT_TRUE(texts.insert(ScheduleText(schedule)).second) << ScheduleText(schedule);
    const auto scheduled = ApplySchedule(kernel, schedule);
    EXPECT_TRUE(scheduled.ok()) << scheduled.status();
    if (scheduled.ok()) check(*scheduled);
  }
  return std::ssize(texts);
}

}  // namespace xlad::compiler
