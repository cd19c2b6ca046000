// Executes schedules on numbers, in random orders of events. This is an independent check of schedules that
// CheckSchedules accepts.
#pragma once

#include "absl/types/span.h"
#include "base/random.h"
#include "base/status.h"
#include "collectives/plan/schedule.h"

namespace xlad::collectives {

struct InterpretOptions {
  int slots = 1;          // The slots of each channel between two ranks.
  bool in_place = false;  // Whether input and output share memory as InPlaceOffsets say.
  // Whether the operations of a rank run in the order of the list. If false, only the operations of each channel do.
  bool list_order = false;
};

// Runs the schedules of all ranks on 64-bit integers and compares the outputs with the spec. Each step runs one
// operation of a random rank or channel. A message is, at random, a copy or the sender's own memory, which is read when
// the message is received. Every reduction is computed as a sum, which wraps around. A missing, repeated or misplaced
// contribution changes the sums. Returns Internal if the outputs are wrong, the ranks deadlock, a message or signal is
// never received, or an operation is malformed.
absl::Status Interpret(const CollectiveSpec& spec, absl::Span<const Schedule> schedules,
                       const InterpretOptions& options, Random* random);

}  // namespace xlad::collectives
