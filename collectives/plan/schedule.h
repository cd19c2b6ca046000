// Schedules: the operations that one rank of a collective runs, as data.
//
// The operations of one channel run in the order of the list. Operations of different channels run in any order, unless
// messages, signals or the rules below order them. The order of the list is always legal, so an executor may also run
// all operations in that order.
//
// Messages. Messages between two ranks on one channel arrive in the order in which they were sent. A send blocks while
// all slots of the channel are in use, and a receive blocks until its message has arrived. When an operation ends, the
// slots of the messages that it has received are free again. A sender may pass its own memory instead of a copy. It
// then blocks before one of its later operations overwrites elements of a message that has not been received. It also
// blocks at the end, until all messages have been received.
//
// Windows. A region may name a peer. The operation then reads or writes the memory of that rank ("window"). Signals
// order these accesses. A peer may not have entered the collective before it sends its first message or signal, so a
// rank may access the peer's memory only after receiving one. The peer must not leave the collective too early, so it
// must receive a message or signal after the access. A communicator without windows refuses such operations and names
// them.
//
// CheckSchedules proves that a set of schedules does not deadlock, has no races, and computes what the spec says.
// Executor, checker, simulator and charts use the same schedules. Sizes and positions are in elements; CollectiveSpec
// defines the order of the elements.
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

// The operations. (+) is the reduction of the spec.
enum class OpKind : uint8_t {
  kSend,        // Sends the elements of `src` to `peer`.
  kRecv,        // dst = the next message from `peer`.
  kRecvReduce,  // dst = the next message from `peer` (+) src, rounded once.
  kCopy,        // dst = src. Has no effect if they are the same memory (in place).
  kReduceMany,  // dst = sources[0] (+) sources[1] (+) ..., from left to right, rounded once at the end.
  kZero,        // dst = 0.
  // dst = sources[0] (+) sources[1] (+) ... as a balanced tree, rounded once at the end. The tree of one source is the
  // source. The tree of n sources is tree(the first m) (+) tree(the others), where m is the largest power of two below
  // n.
  kReduceTree,
  // Adds one to the counter `flag` of signals from this rank to `peer`. All earlier operations of the channel have
  // ended before the peer can see the signal.
  kSignal,
  // Waits until the counter `flag` of signals from `peer` to this rank is positive, and subtracts one. The peer of
  // kSignal and kWait may be this rank. They then order two channels.
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
  int peer = -1;  // The peer's rank. Used by kSend, kRecv, kRecvReduce, kSignal and kWait.
  Region src;
  Region dst;
  std::vector<ReduceSource> sources;
  std::vector<Region> more_dsts;  // More destinations of the same result, for all kinds that have a `dst`.
  int flag = 0;                   // Used by kSignal and kWait.
  friend bool operator==(const ScheduleOp&, const ScheduleOp&) = default;
};

struct Schedule {
  int rank = 0;
  int ranks = 1;
  int64_t input = 0;  // The sizes of the buffers, in elements.
  int64_t output = 0;
  int64_t scratch = 0;
  // Whether the schedule is also correct if input and output overlap as the spec's InPlaceOffsets say.
  bool in_place = false;
  std::vector<ScheduleOp> ops;  // Empty if the rank has nothing to do.
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// The memory that input and output share in place on a rank. Element 0 of the shared elements is element `input` of the
// input and element `output` of the output. In an AllReduce, Broadcast or Reduce, all elements are shared, at {0, 0};
// a rank without output shares no memory. A Barrier has {0, 0} too, without elements. In an AllGather, the input is
// part `rank` of the output. In a ReduceScatter, the output is part `rank` of the input. The other kinds cannot run in
// place: `valid` is false.
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
// Whether the operation accesses a window or is ordered by signals of a peer. Such operations need mapped memory.
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
// Parses the text of a schedule. InvalidArgument, with the line, if the text is malformed.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view text);

// The schedules of all ranks with their spec. The text has the line "collective SPEC" and then the text of each rank.
struct ScheduleSet {
  CollectiveSpec spec;
  std::vector<Schedule> schedules;
};
std::string Print(const ScheduleSet& set);
absl::StatusOr<ScheduleSet> ParseScheduleSet(absl::string_view text);

// Returns a hash of the schedules, in order. It is the same on all machines.
uint64_t HashSchedules(absl::Span<const Schedule> schedules);

}  // namespace xlad::collectives
