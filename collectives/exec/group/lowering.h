// The schedule of one rank, lowered for memory that all ranks of a host map.
//
// Consecutive signals, and consecutive waits, become one step. An operation on several operands becomes a step for each
// run of bytes within operands. In a schedule whose ranks touch only each other's
// scratch ("slots"), the waits at the end are not executed but only counted: they protect the scratch, and the executor
// alternates between two halves of it and enters an operation only after all ranks have entered the one before.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "collectives/exec/group/control.h"
#include "collectives/plan/schedule.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {

// The table of addresses of an operation: for each rank, its inputs, its outputs, and its scratch.
struct GroupBases {
  int inputs = 1, outputs = 1;  // The numbers of operands.
  int Input(int rank, int operand = 0) const { return rank * stride() + operand; }
  int Output(int rank, int operand = 0) const { return Input(rank) + inputs + operand; }
  int Scratch(int rank) const { return Output(rank) + outputs; }
  bool IsScratch(int base) const { return base % stride() == inputs + outputs; }
  int stride() const { return inputs + outputs + 1; }
};

// Bytes of a buffer of a rank, from `offset`.
struct GroupRegion {
  int32_t base = 0;  // Index into the table of addresses.
  int64_t offset = 0;
};

struct GroupStep {
  enum class Kind : uint8_t { kSignal, kWait, kCopy, kReduce, kZero };
  Kind kind = Kind::kCopy;
  int flag = 0;
  int op = 0;              // The first operation of the schedule that this step executes.
  std::vector<int> peers;  // The ranks that are signaled or waited for.
  std::vector<GroupRegion> sources, dsts;
  int64_t bytes = 0;
};

// A copy of bytes of an input to the payload of a board.
struct BoardCopy {
  int operand = 0;
  int64_t from = 0, to = 0, bytes = 0;
};

struct GroupProgram {
  GroupBases bases;
  std::vector<GroupStep> steps;
  // Signals of peers that are counted at the end without waiting for them, by flag.
  std::vector<int> deferred[kSignalFlags];
  int64_t scratch_bytes = 0;
  bool windows = false;    // The ranks access each other's inputs and outputs, which must be registered.
  bool hears_all = false;  // Waits for a signal of every peer.
  // One round ("board"): the entry stands for the copy of the input to the scratch, and for the signals and waits after
  // it. Up to kBoardBytes of scratch are the payload of the entry line. `steps` has only what follows.
  bool board = false;
  std::vector<BoardCopy> board_copies;  // Empty if no peer reads the input.
  std::vector<int> board_peers;         // Those whose entries are waited for.
};

enum class GroupProtocol { kBoard, kSlots, kWindows };

// Unimplemented if the schedule has messages, or operations that process groups do not execute; InvalidArgument if it
// accesses the inputs or outputs of peers and the protocol is not kWindows, or does not have the form that kBoard
// needs.
absl::StatusOr<GroupProgram> LowerForGroup(const CollectiveSpec& spec, const Schedule& schedule,
                                           GroupProtocol protocol);

}  // namespace xlad::collectives
