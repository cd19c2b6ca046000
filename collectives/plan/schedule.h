// What one rank does in a collective, in order, as data.
//
// A rank runs its operations one after the other. Messages between two ranks on one channel arrive in the order in
// which they were sent. A send waits while the channel's slots are full, a receive waits for its message. A sender
// may hand out its own memory instead of a copy: then it waits before it overwrites elements of a message that has
// not been taken yet, and at the end until all are taken (CheckSchedules proves that this never locks up).
// The same object is executed, checked, simulated and drawn. Elements, not bytes; see CollectiveSpec for their order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"

namespace xlad::collectives {

enum class ScheduleBuffer : uint8_t { kInput, kOutput, kScratch };

// Elements [begin, begin + count) of a buffer of this rank.
struct Region {
  ScheduleBuffer buffer = ScheduleBuffer::kInput;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t end() const { return begin + count; }
  friend bool operator==(const Region&, const Region&) = default;
};

enum class OpKind : uint8_t {
  kSend,        // To `peer`: the elements of `src`.
  kRecv,        // From `peer` into `dst`.
  kRecvReduce,  // dst = message from `peer` (+) src. Rounded once.
  kCopy,        // dst = src. Does nothing where they are the same memory (in place).
  kReduceMany,  // dst = sources[0] (+) sources[1] (+) ..., from left to right. Rounded once, at the end.
  kZero,        // dst = 0.
};

// An operand of kReduceMany: the next message from `peer`, or where peer is -1 the elements of `region`.
struct ReduceSource {
  int peer = -1;
  Region region;  // peer == -1 only.
  friend bool operator==(const ReduceSource&, const ReduceSource&) = default;
};

struct ScheduleOp {
  OpKind kind = OpKind::kCopy;
  int channel = 0;
  int peer = -1;  // A rank; kSend, kRecv and kRecvReduce only.
  Region src;
  Region dst;
  std::vector<ReduceSource> sources;
  friend bool operator==(const ScheduleOp&, const ScheduleOp&) = default;
};

struct Schedule {
  int rank = 0;
  int ranks = 1;
  int64_t input = 0;  // Elements of each buffer.
  int64_t output = 0;
  int64_t scratch = 0;
  bool in_place = false;  // Also right where the output is the same memory as the input.
  std::vector<ScheduleOp> ops;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// Text, one operation a line, stable to the byte:
//   schedule rank 0 of 4, input 10, output 10, scratch 0, in place
//     send ->1 ch0 input[0:3]
//     recv_reduce <-3 ch0 output[7:10] = input[7:10]
//     recv <-3 ch0 output[0:3]
//     copy output[0:3] = input[0:3]
//     reduce_many ch0 output[0:3] = input[0:3] <-1 <-2
//     zero output[0:3]
std::string Print(const Schedule& schedule);
std::string Print(const ScheduleOp& op);
// The schedule of a text; InvalidArgument names the line.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view text);

// The same for the same schedules of all ranks, in order of rank, on every machine.
uint64_t HashSchedules(absl::Span<const Schedule> schedules);

}  // namespace xlad::collectives
