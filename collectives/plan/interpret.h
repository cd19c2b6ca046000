// Execution of schedules on numbers, in random order of events: an independent check of what CheckSchedules accepts.
#pragma once

#include "absl/types/span.h"
#include "base/random.h"
#include "base/status.h"
#include "collectives/plan/schedule.h"

namespace xlad::collectives {

struct InterpretOptions {
  int slots = 1;
  bool in_place = false;
  // Whether the operations of a rank run in the order of the list; otherwise only those of each channel do.
  bool list_order = false;
};

// Runs the schedules of all ranks on 64-bit integers, one operation of a random rank or channel at a time, and compares
// the outputs with what the spec says. Senders hand out their own memory, which is read when the message is received,
// or a copy, at random. Sums wrap around, and the values are such that a missing, repeated or misplaced contribution
// changes them. Returns Internal if the outputs are wrong, the ranks deadlock, or an operation is malformed.
absl::Status Interpret(const CollectiveSpec& spec, absl::Span<const Schedule> schedules,
                       const InterpretOptions& options, Random* random);

}  // namespace xlad::collectives
