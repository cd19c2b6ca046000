// Proof that schedules compute what their spec says, by symbolic execution of all ranks together.
//
// A single execution decides for all interleavings whether the ranks deadlock and what they compute. Each rank runs its
// operations in the order of the list, and an operation that can run remains able to run whatever the other ranks do
// (as in Kahn process networks). An executor that runs channels independently waits for less, so that it does not
// deadlock either; more slots only remove waits. Accesses that no message or signal orders are reported as races, so
// that all other orders compute the same.
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
//  - a message and its receive differ in size, or a message or signal is never received;
//  - the ranks deadlock with `slots` slots, if senders hand out their own memory (the message lists the waiting ranks);
//  - two accesses to the same elements, of which one is a write, are not ordered, or a rank touches memory of a peer
//    that may not have entered the collective yet or may have left it;
//  - an output element does not have each contribution exactly once, two ranks reduce an element in different orders,
//    so that their bits may differ, or the order is not that of ReductionMode::kCanonical although the spec has it;
//  - a rank may leave a barrier before another one has entered.
// Schedules that are all marked `in_place` are also checked with input and output in the same memory.
absl::StatusOr<ScheduleCosts> CheckSchedules(const CollectiveSpec& spec, absl::Span<const Schedule> schedules,
                                             const CheckOptions& options = {});

// Internal if the costs of checked schedules are not those of the formulas of the plan's algorithm.
absl::Status CheckFormulas(const CollectivePlan& plan, const CollectiveSpec& spec, const ScheduleCosts& costs);

// Builds the schedules of a plan, and checks them and the algorithm's formulas for elements and rounds.
absl::Status CheckPlan(const CollectivePlan& plan, const CollectiveSpec& spec, const CheckOptions& options = {});

}  // namespace xlad::collectives
