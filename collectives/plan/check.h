// Proves that schedules compute what their spec says, by executing all ranks together symbolically.
//
// One execution decides, for all interleavings, whether the ranks deadlock and what they compute. Each rank runs its
// operations in the order of the list, and an operation that can run remains able to run whatever the other ranks do
// (as in Kahn process networks). An executor that runs channels independently, or has more slots, waits less often, so
// it cannot deadlock either. Accesses that no message or signal orders are reported as races. Without races, all
// interleavings compute the same results.
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
  int64_t max_sent_elements = 0;  // The elements sent by the rank that sends the most elements.
  int64_t rounds = 0;             // The number of messages on the longest chain of dependent messages.
  bool waited_for_slots = false;  // Whether a send found no free slot. If none did, more slots change nothing.
};

// InvalidArgument if the spec is invalid. Internal, with the rank, operation and elements in the message, if
//  - the schedules do not have the ranks and buffer sizes of the spec, or all are marked `in_place` although the kind
//    cannot run in place;
//  - an operation is malformed, exceeds a buffer, reads undefined elements, or reads and writes regions that
//    overlap but differ;
//  - a message and its receive differ in size, or a message or signal is never received;
//  - the ranks deadlock with `slots` slots when messages are in the senders' own memory (the error lists the waiting
//    ranks);
//  - two accesses to the same elements, of which one is a write, are not ordered;
//  - a rank accesses memory of a peer that may not have entered the collective yet or may have left it;
//  - an output element does not have each contribution exactly once;
//  - two ranks reduce an element in different orders, so that their bits may differ, or the order is not that of
//    ReductionMode::kCanonical although the spec requires it;
//  - a rank may leave a barrier before another rank has entered.
// Schedules that are all marked `in_place` are also checked with input and output in the same memory.
absl::StatusOr<ScheduleCosts> CheckSchedules(const CollectiveSpec& spec, absl::Span<const Schedule> schedules,
                                             const CheckOptions& options = {});

// Returns Internal if the costs of checked schedules differ from the formulas of the plan's algorithm, or exceed them
// if the elements do not divide evenly into parts.
absl::Status CheckFormulas(const CollectivePlan& plan, const CollectiveSpec& spec, const ScheduleCosts& costs);

// Builds the schedules of a plan, and checks them and the algorithm's formulas for elements and rounds. Errors are
// those of BuildSchedules, CheckSchedules and CheckFormulas.
absl::Status CheckPlan(const CollectivePlan& plan, const CollectiveSpec& spec, const CheckOptions& options = {});

}  // namespace xlad::collectives
