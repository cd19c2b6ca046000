// Runs lowered schedules on memory that all ranks of a group map: entries, signals, copies and reductions.
//
// A rank enters operation k only after all ranks have entered operation k - 1, and therefore have finished k - 2. The
// entry, the note and the half of the scratch that a rank writes for an operation therefore stay valid until its peers
// have finished the operation.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/exec/group/control.h"
#include "collectives/exec/group/lowering.h"
#include "collectives/exec/group/wait.h"
#include "collectives/exec/reduce.h"

namespace xlad::collectives {

// The memory of this rank that its peers can access, and the memory of the peers.
class WindowMemory {
 public:
  virtual ~WindowMemory() = default;
  // Returns the position of [address, address + bytes), or nullopt if peers cannot access this memory.
  virtual std::optional<WindowPosition> Find(const void* address, int64_t bytes) const = 0;
  // Returns the address, in this process, of `bytes` bytes at a position in the memory of `peer`. The peer must not
  // free the memory meanwhile. DataLoss if the peer's memory is too small. FailedPrecondition if the peer has already
  // freed it.
  virtual absl::StatusOr<std::byte*> Address(int peer, const WindowPosition& position, int64_t bytes) = 0;
};

// An operation that is ready to run.
struct GroupCommand {
  GroupProgram program;
  ReduceFunction reduce = nullptr;
  // Null unless the command is a board whose only step reduces all payloads.
  SmallReduceFunction small_reduce = nullptr;
  // Whether results bypass the cache if an output and its input are separate buffers, and if every output shares memory
  // with its input. `streams_in_place` implies `streams`.
  bool streams = false, streams_in_place = false;
  int64_t element_bytes = 0;
  std::vector<int64_t> input_bytes, output_bytes;  // One element per operand.
  std::vector<int64_t> accessed_bytes;  // For each base (GroupBases), the end of the furthest access of any step.
};

// Lowers the schedule of one rank. The errors are those of LowerForGroup, and Unimplemented if there is no kernel for
// the type and reduction.
absl::StatusOr<GroupCommand> MakeGroupCommand(const CollectiveSpec& spec, const Schedule& schedule,
                                              GroupProtocol protocol);

// One run of a command.
struct GroupLaunch {
  const GroupCommand* command = nullptr;
  uint64_t word = 0;  // The value of EntryLine::operation. Its upper 48 bits must be equal on all ranks.
  // The value for RankBlock::notes, which describes the launch to peers that run a different operation.
  absl::Span<const std::byte> note;
  absl::Span<const void* const> inputs;  // One address per operand.
  absl::Span<void* const> outputs;
  bool are_outputs_copied = false;  // The caller copies the outputs at once. They do not bypass the cache then.
};

// Whether this rank writes results with stores that bypass the cache. The decision depends on whether its own buffers
// share memory, because it does not know the buffers of the others.
bool StreamsResults(const GroupLaunch& launch);

// Callbacks of a core to the object that owns it.
class GroupOwner {
 public:
  virtual ~GroupOwner() = default;
  // Called regularly while the rank waits. An error ends the wait.
  virtual absl::Status CheckWhileWaiting() = 0;
  // Returns the error for the case that `peer` runs a different operation than this rank.
  virtual absl::Status Disagreement(int peer) = 0;
  // Called before each step of a command that is not a board, with the index of the step's first operation in the
  // schedule.
  virtual void AtStep(int) {}
};

// Runs the operations of one rank. Only the thread of the rank may use a core.
class GroupCore {
 public:
  struct Options {
    ControlFile* control = nullptr;
    GroupWaiter* waiter = nullptr;
    WindowMemory* memory = nullptr;  // Required by commands with windows.
    std::byte* scratch = nullptr;    // Two halves of `scratch_bytes` bytes for each rank.
    int64_t scratch_bytes = 0;       // The size of one half.
    int rank = 0;
  };
  // Everything in `options`, and `owner`, must outlive the core.
  GroupCore(const Options& options, GroupOwner* owner);

  // Returns when the operation is finished on this rank. After an error the core must not be used again, unless the
  // error is InvalidArgument and step() is -1: the operation was then refused before this rank entered it.
  absl::Status Run(const GroupLaunch& launch) {
    return launch.command->program.board ? RunBoard(launch) : RunProgram(launch);
  }

  uint64_t sequence() const { return sequence_; }  // The number of the last operation that was entered.
  // After Run has failed: the index, in the schedule, of the operation that failed. -1 if no operation was begun, or if
  // the command is a board.
  int step() const { return step_; }
  int64_t scratch_bytes() const { return options_.scratch_bytes; }
  const EntryLine& entry(int rank) const { return options_.control->rank(rank).lines[sequence_ % 2]; }

 private:
  std::byte* Scratch(int rank, uint64_t sequence) const;
  absl::Status RunBoard(const GroupLaunch& launch);
  absl::Status RunProgram(const GroupLaunch& launch);
  absl::Status WaitUntilEntered(uint64_t sequence);
  void Enter(const GroupLaunch& launch, uint64_t sequence);
  void Finish();
  void SetBases(const GroupLaunch& launch, uint64_t sequence, bool in_line);
  std::byte* Positions(const GroupCommand& command, int rank, uint64_t sequence) const;
  absl::Status PublishBuffers(const GroupLaunch& launch, uint64_t sequence);
  absl::Status MapPeer(const GroupCommand& command, int peer);
  absl::Status RunStep(const GroupLaunch& launch, const GroupStep& step);
  void Signal(const GroupStep& step);
  absl::Status WaitForSignals(const GroupLaunch& launch, const GroupStep& step);
  absl::Status CheckPeer(uint64_t word, int peer);
  absl::Status CheckAll(uint64_t word);

  const Options options_;
  GroupOwner& owner_;
  ControlFile& control_;
  GroupWaiter& waiter_;
  const int rank_, ranks_;
  int step_ = -1;
  uint64_t sequence_ = 0;
  uint64_t entered_by_all_ = 0;  // All ranks have entered the operation with this number.
  std::vector<uint64_t> sent_[kSignalFlags], expected_[kSignalFlags];  // The number of signals to and from each rank.
  std::vector<std::byte*> bases_;                                      // The addresses of the running operation.
  std::vector<bool> mapped_;                                           // Whether the buffers of a peer are in bases_.
  bool streams_ = false;  // Whether the running operation writes its results with streaming stores.
  std::vector<const void*> payloads_[2];
};

}  // namespace xlad::collectives
