// Text and hash of schedules.
#include "collectives/plan/schedule.h"

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace xlad::collectives {
namespace {

std::string Text(const Region& region) {
  static constexpr absl::string_view kNames[] = {"input", "output", "scratch"};
  return absl::StrCat(kNames[static_cast<int>(region.buffer)], "[", region.begin, ":", region.end(), "]");
}

// Appends a number as 8 bytes, little-endian.
void Append(std::string* out, int64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out->push_back(value >> shift);
}

void Append(std::string* out, const Region& region) {
  Append(out, static_cast<int64_t>(region.buffer));
  Append(out, region.begin);
  Append(out, region.count);
}

void Append(std::string* out, const ScheduleOp& op) {
  Append(out, static_cast<int64_t>(op.kind));
  Append(out, op.channel);
  Append(out, op.peer);
  Append(out, op.src);
  Append(out, op.dst);
  Append(out, std::ssize(op.sources));
  for (const ReduceSource& source : op.sources) {
    Append(out, source.peer);
    Append(out, source.region);
  }
}

}  // namespace

std::string Print(const ScheduleOp& op) {
  switch (op.kind) {
    case OpKind::kSend:
      return absl::StrCat("send ->", op.peer, " ch", op.channel, " ", Text(op.src));
    case OpKind::kRecv:
      return absl::StrCat("recv <-", op.peer, " ch", op.channel, " ", Text(op.dst));
    case OpKind::kRecvReduce:
      return absl::StrCat("recv_reduce <-", op.peer, " ch", op.channel, " ", Text(op.dst), " = ", Text(op.src));
    case OpKind::kCopy:
      return absl::StrCat("copy ", Text(op.dst), " = ", Text(op.src));
    case OpKind::kZero:
      return absl::StrCat("zero ", Text(op.dst));
    case OpKind::kReduceMany: {
      std::string out = absl::StrCat("reduce_many ch", op.channel, " ", Text(op.dst), " =");
      for (const ReduceSource& source : op.sources) {
        absl::StrAppend(&out, " ", source.peer >= 0 ? absl::StrCat("<-", source.peer) : Text(source.region));
      }
      return out;
    }
  }
  return "unknown";
}

std::string Print(const Schedule& schedule) {
  std::string out =
      absl::StrCat("schedule rank ", schedule.rank, " of ", schedule.ranks, ", input ", schedule.input, ", output ",
                   schedule.output, ", scratch ", schedule.scratch, schedule.in_place ? ", in place\n" : "\n");
  for (const ScheduleOp& op : schedule.ops) absl::StrAppend(&out, "  ", Print(op), "\n");
  return out;
}

uint64_t HashSchedules(absl::Span<const Schedule> schedules) {
  uint64_t hash = Hash64("xlad schedules 1", schedules.size());
  std::string bytes;
  for (const Schedule& schedule : schedules) {
    bytes.clear();
    Append(&bytes, schedule.rank);
    Append(&bytes, schedule.ranks);
    Append(&bytes, schedule.input);
    Append(&bytes, schedule.output);
    Append(&bytes, schedule.scratch);
    Append(&bytes, schedule.in_place);
    for (const ScheduleOp& op : schedule.ops) Append(&bytes, op);
    hash = Hash64(bytes, hash);
  }
  return hash;
}

}  // namespace xlad::collectives
