// Proof that schedules compute what their spec says, by symbolic execution of all ranks together.
//
// Ranks run their operations in order, messages are first in, first out, and whatever can go on stays able to go on:
// so one execution decides for all interleavings whether they lock up and what they compute.
#pragma once

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

struct CheckOptions {
  int slots = 1;  // Messages that fit between two ranks on one channel before the sender waits.
};

// What an execution costs.
struct ScheduleCosts {
  int64_t max_sent_elements = 0;  // Of the rank that sends most.
  int64_t rounds = 0;             // Messages on the longest chain.
};

// Internal (with rank, operation and element range) where for some rank
//  - an operation is malformed, leaves a buffer, reads elements that nothing wrote, or overlaps itself;
//  - a message has another size than its receive, or is never received;
//  - the ranks lock up with `slots` slots, senders handing out their own memory (the message names who waits for whom);
//  - an output element does not have every contribution exactly once, or two ranks' copies of one element were
//    reduced in different orders, so that their bits may differ.
// Where the schedules say `in_place`, all of it is checked once more with the output in the input's memory.
absl::StatusOr<ScheduleCosts> CheckSchedules(const CollectiveSpec& spec, absl::Span<const Schedule> schedules,
                                             const CheckOptions& options = {});

// Builds and checks the plan's schedules, also against the algorithm's formulas of bytes and rounds.
absl::Status CheckPlan(const CollectivePlan& plan, const CollectiveSpec& spec, const CheckOptions& options = {});

}  // namespace xlad::collectives
