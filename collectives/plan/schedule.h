// Schedules: the operations that one rank of a collective runs, as data.
//
// The operations of one channel run in the order of the list. Operations of different channels run in any order,
// unless messages, signals or the rules below order them. The order of the list is always a legal order, so that an
// executor may also run all operations in that order.
//
// Messages. Messages between two ranks on one channel arrive in the order in which they were sent. A send blocks while
// the slots of that channel are full, and a receive until its message has arrived; an operation gives back the slots of
// its messages when it ends. A sender may hand out its own memory instead of a copy: then it blocks before one of its
// own later operations overwrites elements of a message that has not been received, and at the end until all messages
// have been received.
//
// Windows. A region may name a peer: then the operation reads or writes the memory of that rank ("window"). Signals
// order these accesses. A rank may touch a peer's memory only after a message or signal that the peer sent, because the
// peer may not have entered the collective before, and the peer must receive a message or signal afterwards, before it
// leaves the collective. A communicator without windows refuses such operations by name.
//
// CheckSchedules proves that a set of schedules does not deadlock, has no races, and computes what the spec says.
// Executor, checker, simulator and charts use the same object. Sizes and positions are in elements; CollectiveSpec has
// the order of the elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {

enum class ScheduleBuffer : uint8_t { kInput, kOutput, kScratch };

inline constexpr int kOwnRank = -1;

// The elements [begin, begin + count) of a buffer of `rank`, which is a peer or kOwnRank.
struct Region {
  ScheduleBuffer buffer = ScheduleBuffer::kInput;
  int64_t begin = 0;
  int64_t count = 0;
  int rank = kOwnRank;
  int64_t end() const { return begin + count; }
  friend bool operator==(const Region&, const Region&) = default;
};

enum class OpKind : uint8_t {
  kSend,        // Sends the elements of `src` to `peer`.
  kRecv,        // dst = the next message from `peer`.
  kRecvReduce,  // dst = the next message from `peer` (+) src, rounded once.
  kCopy,        // dst = src. No operation if they are the same memory (in place).
  kReduceMany,  // dst = sources[0] (+) sources[1] (+) ..., from left to right, rounded once at the end.
  kZero,        // dst = 0.
  // dst = sources[0] (+) sources[1] (+) ... as a balanced tree, rounded once at the end. With one source, the tree is
  // that source. With n, it is tree(the first m) (+) tree(the others), where m is the largest power of two below n.
  kReduceTree,
  // Adds one to the counter `flag` of signals from this rank to `peer`. All earlier operations of the channel have
  // ended before the peer can see the signal.
  kSignal,
  // Waits until the counter `flag` of signals from `peer` to this rank is positive, and subtracts one. The peer of
  // kSignal and kWait may be the own rank: then they order two channels.
  kWait,
};

// An operand of a reduction: the next message from `peer`, or the elements of `region` if peer is -1.
struct ReduceSource {
  int peer = -1;
  Region region;  // Used if peer is -1.
  friend bool operator==(const ReduceSource&, const ReduceSource&) = default;
};

struct ScheduleOp {
  OpKind kind = OpKind::kCopy;
  int channel = 0;
  int peer = -1;  // A rank; used by kSend, kRecv, kRecvReduce, kSignal and kWait.
  Region src;
  Region dst;
  std::vector<ReduceSource> sources;
  std::vector<Region> more_dsts;  // Further destinations of the same result, for all kinds that have a `dst`.
  int flag = 0;                   // Used by kSignal and kWait.
  friend bool operator==(const ScheduleOp&, const ScheduleOp&) = default;
};

struct Schedule {
  int rank = 0;
  int ranks = 1;
  int64_t input = 0;  // The sizes of the buffers, in elements.
  int64_t output = 0;
  int64_t scratch = 0;
  // Also correct if input and output overlap as the spec's InPlaceOffsets say.
  bool in_place = false;
  std::vector<ScheduleOp> ops;  // Empty if the rank has nothing to do.
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// The memory that input and output share in place, for rank `rank`: element 0 of the shared elements is element `input`
// of the input and element `output` of the output. AllReduce, Broadcast and Reduce: all elements, {0, 0}. AllGather:
// the input is part `rank` of the output. ReduceScatter: the output is part `rank` of the input. The other kinds have
// no such layout: `valid` is false. A rank without input or output (Gather, Scatter, Reduce) shares nothing.
struct InPlaceOffsets {
  bool valid = false;
  int64_t input = 0;
  int64_t output = 0;
};
InPlaceOffsets InPlaceOffsetsOf(const CollectiveSpec& spec, int rank);

// Whether an operation of this kind writes `dst`.
inline bool HasDestination(OpKind kind) {
  return kind != OpKind::kSend && kind != OpKind::kSignal && kind != OpKind::kWait;
}
// Whether the operands of this kind are `sources`.
inline bool HasSources(OpKind kind) { return kind == OpKind::kReduceMany || kind == OpKind::kReduceTree; }
// Whether the operation touches a window or is ordered by signals of a peer, so that it needs mapped memory.
bool NeedsWindows(const ScheduleOp& op, int rank);

// The text of a schedule, one line per operation. The text is a stable format:
//   schedule rank 0 of 4, input 10, output 10, scratch 0, in place
//     send ->1 ch0 input[0:3]
//     recv_reduce <-3 ch0 output[7:10] = input[7:10]
//     recv <-3 ch0 output[0:3]
//     copy ch0 output[0:3] = input[0:3]
//     reduce_many ch0 output[0:3] = input[0:3] <-1 <-2
//     reduce_tree ch0 output[0:3] output@1[0:3] = input[0:3] input@1[0:3]
//     zero ch0 output[0:3]
//     signal ->2 ch0 flag1
//     wait <-2 ch0 flag1
// A region of a peer has its rank after "@". An operation with several destinations lists all of them before "=".
std::string Print(const Schedule& schedule);
std::string Print(const ScheduleOp& op);
// Parses the text of a schedule. InvalidArgument with the line if it is malformed.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view text);

// The schedules of all ranks with their spec. The text has the line "collective SPEC" and then the text of each rank.
struct ScheduleSet {
  CollectiveSpec spec;
  std::vector<Schedule> schedules;
};
std::string Print(const ScheduleSet& set);
absl::StatusOr<ScheduleSet> ParseScheduleSet(absl::string_view text);

// A hash of the schedules, in order. It is the same on all machines.
uint64_t HashSchedules(absl::Span<const Schedule> schedules);

}  // namespace xlad::collectives
