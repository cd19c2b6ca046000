// Proof that schedules compute what their spec says, by symbolic execution of all ranks together.
//
// A single execution decides for all interleavings whether the ranks deadlock and what they compute: each rank runs its
// operations in order, channels are first in, first out, and an operation that can run remains able to run whatever the
// other ranks do (as in Kahn process networks).
#pragma once

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/plan/plan.h"

namespace xlad::collectives {

struct CheckOptions {
  int slots = 1;  // The number of messages between two ranks on one channel that can be in flight before a send blocks.
};

// The costs of an execution, as counted by the checker.
struct ScheduleCosts {
  int64_t max_sent_elements = 0;  // Sent by the rank that sends the most elements.
  int64_t rounds = 0;             // The number of messages on the longest chain of dependent messages.
};

// Returns Internal, with the rank, operation and elements in the message, if
//  - an operation is malformed, exceeds a buffer, reads undefined elements, or reads and writes overlapping regions;
//  - a message and its receive differ in size, or a message is never received;
//  - the ranks deadlock with `slots` slots, if senders hand out their own memory (the message lists the waiting ranks);
//  - an output element does not have each contribution exactly once, or two ranks reduce an element in different
//    orders, so that their bits may differ.
// Schedules that are all marked `in_place` are also checked with the output in the input's memory.
absl::StatusOr<ScheduleCosts> CheckSchedules(const CollectiveSpec& spec, absl::Span<const Schedule> schedules,
                                             const CheckOptions& options = {});

// Builds the schedules of a plan, and checks them and the algorithm's formulas for elements and rounds.
absl::Status CheckPlan(const CollectivePlan& plan, const CollectiveSpec& spec, const CheckOptions& options = {});

}  // namespace xlad::collectives
