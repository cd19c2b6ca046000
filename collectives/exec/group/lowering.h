// The schedule of one rank, lowered for memory that all ranks of a host map.
//
// Consecutive signals with the same flag become one step, and so do waits. An operation on several operands becomes one
// step for each run of bytes within operands. In a schedule whose ranks access only each other's scratch ("slots"), the
// waits at the end protect the scratch. They are not executed but only counted: the executor alternates between two
// halves of the scratch, and enters an operation only after all ranks have entered the previous one.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
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

// A run of bytes in a buffer of a rank, starting at `offset`.
struct GroupRegion {
  int32_t base = 0;  // The index into the table of addresses.
  int64_t offset = 0;
};

struct GroupStep {
  enum class Kind : uint8_t { kSignal, kWait, kCopy, kReduce, kZero };
  Kind kind = Kind::kCopy;
  int flag = 0;
  int op = 0;              // The first operation of the schedule that this step executes.
  std::vector<int> peers;  // The ranks that are signaled or waited for.
  std::vector<GroupRegion> sources, dsts;
  int64_t bytes = 0;  // The size of each source and destination.
};

// A copy of a part of an input to the payload of a board.
struct BoardCopy {
  int operand = 0;
  int64_t from = 0, to = 0, bytes = 0;  // In bytes; `from` is in the operand, `to` in the payload.
};

struct GroupProgram {
  GroupBases bases;
  std::vector<GroupStep> steps;
  // By flag: the peers whose signals are counted at the end without waiting for them.
  std::vector<int> deferred[kSignalFlags];
  int64_t scratch_bytes = 0;
  bool windows = false;    // The ranks access each other's inputs and outputs, which must be registered.
  bool waits_for_all_peers = false;  // Whether the program waits for a signal or the entry of each other rank.
  // Whether the program is a board: a program of one round in which all ranks publish their inputs when they enter the
  // operation, and then read the inputs of the others. Entering replaces the copy of the input to the scratch and the
  // signals and waits after that copy; `steps` contains only the later operations. If the scratch has at most
  // kBoardBytes bytes, it is the payload of the entry line.
  bool board = false;
  std::vector<BoardCopy> board_copies;  // Empty if no peer reads the input.
  std::vector<int> board_peers;         // The peers whose entries are waited for.
};

enum class GroupProtocol { kBoard, kSlots, kWindows };

// Returns the error of a plan that sends messages. `found` is the plan or its operation. The error names the algorithms
// of process groups, each of which can run every collective.
absl::Status RefuseMessages(absl::string_view found);

// Unimplemented if the schedule has messages, other operations that process groups do not execute, or a flag that is
// not less than kSignalFlags. InvalidArgument if it accesses the inputs or outputs of peers and the protocol is not
// kWindows, or if it does not have the form that kBoard needs.
absl::StatusOr<GroupProgram> LowerForGroup(const CollectiveSpec& spec, const Schedule& schedule,
                                           GroupProtocol protocol);

}  // namespace xlad::collectives
