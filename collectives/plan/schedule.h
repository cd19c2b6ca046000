// Schedules: the operations that one rank of a collective runs, in order, as data.
//
// A rank runs its operations in sequence. Messages between two ranks on one channel arrive in the order in which they
// were sent. A send blocks while the channel's slots are full, and a receive until its message has arrived. A sender
// may hand out its own memory instead of a copy: then it blocks before it overwrites elements of a message that has not
// been received, and at the end until all messages have been received. CheckSchedules proves that this does not
// deadlock.
//
// Executor, checker, simulator and charts use the same object. Sizes and positions are in elements; CollectiveSpec has
// the order of the elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"

namespace xlad::collectives {

enum class ScheduleBuffer : uint8_t { kInput, kOutput, kScratch };

// The elements [begin, begin + count) of a buffer of the rank.
struct Region {
  ScheduleBuffer buffer = ScheduleBuffer::kInput;
  int64_t begin = 0;
  int64_t count = 0;
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
};

// An operand of kReduceMany: the next message from `peer`, or the elements of `region` if peer is -1.
struct ReduceSource {
  int peer = -1;
  Region region;  // Used if peer is -1.
  friend bool operator==(const ReduceSource&, const ReduceSource&) = default;
};

struct ScheduleOp {
  OpKind kind = OpKind::kCopy;
  int channel = 0;
  int peer = -1;  // A rank; used by kSend, kRecv and kRecvReduce.
  Region src;
  Region dst;
  std::vector<ReduceSource> sources;
  friend bool operator==(const ScheduleOp&, const ScheduleOp&) = default;
};

struct Schedule {
  int rank = 0;
  int ranks = 1;
  int64_t input = 0;  // The sizes of the buffers, in elements.
  int64_t output = 0;
  int64_t scratch = 0;
  bool in_place = false;  // Also correct if the output is the same memory as the input.
  std::vector<ScheduleOp> ops;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// The text of a schedule, one line per operation. The text is a stable format:
//   schedule rank 0 of 4, input 10, output 10, scratch 0, in place
//     send ->1 ch0 input[0:3]
//     recv_reduce <-3 ch0 output[7:10] = input[7:10]
//     recv <-3 ch0 output[0:3]
//     copy output[0:3] = input[0:3]
//     reduce_many ch0 output[0:3] = input[0:3] <-1 <-2
//     zero output[0:3]
std::string Print(const Schedule& schedule);
std::string Print(const ScheduleOp& op);
// Parses the text of a schedule. InvalidArgument with the line if it is malformed.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view text);

// A hash of the schedules of all ranks, in order of rank. It is the same on all machines.
uint64_t HashSchedules(absl::Span<const Schedule> schedules);

}  // namespace xlad::collectives
