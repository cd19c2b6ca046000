// Prints and hashes schedules.
#include "collectives/plan/schedule.h"

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace xlad::collectives {
namespace {

std::string Text(const Region& region) {
  static constexpr absl::string_view kNames[] = {"input", "output", "scratch"};
  const std::string rank = region.rank == kOwnRank ? "" : absl::StrCat("@", region.rank);
  return absl::StrCat(kNames[static_cast<int>(region.buffer)], rank, "[", region.begin, ":", region.end(), "]");
}

// Returns the text of all destinations, with "=" if operands follow.
std::string Destinations(const ScheduleOp& op, bool has_operands) {
  std::string out = Text(op.dst);
  for (const Region& dst : op.more_dsts) absl::StrAppend(&out, " ", Text(dst));
  return has_operands ? out + " =" : out;
}

// Appends a number as 8 bytes, little-endian.
void Append(std::string* out, int64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out->push_back(value >> shift);
}

void Append(std::string* out, const Region& region) {
  Append(out, static_cast<int64_t>(region.buffer));
  Append(out, region.begin);
  Append(out, region.count);
  Append(out, region.rank);
}

void Append(std::string* out, const ScheduleOp& op) {
  Append(out, static_cast<int64_t>(op.kind));
  Append(out, op.channel);
  Append(out, op.peer);
  Append(out, op.src);
  Append(out, op.dst);
  Append(out, op.flag);
  Append(out, std::ssize(op.more_dsts));
  for (const Region& dst : op.more_dsts) Append(out, dst);
  Append(out, std::ssize(op.sources));
  for (const ReduceSource& source : op.sources) {
    Append(out, source.peer);
    Append(out, source.region);
  }
}

}  // namespace

InPlaceOffsets InPlaceOffsetsOf(const CollectiveSpec& spec, int rank) {
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBarrier:
      return {true, 0, 0};
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter: {
      int64_t begin = 0;
      for (int r = 0; r < rank && !spec.sizes.empty(); ++r) begin += spec.sizes[r];
      const bool gathers = spec.kind == CollectiveKind::kAllGather;
      if (spec.sizes.empty()) begin = rank * (gathers ? spec.input_elements() : spec.output_elements());
      return gathers ? InPlaceOffsets{true, 0, begin} : InPlaceOffsets{true, begin, 0};
    }
    default:
      return {};
  }
}

bool NeedsWindows(const ScheduleOp& op, int rank) {
  const auto foreign = [&](const Region& region) { return region.rank != kOwnRank && region.rank != rank; };
  if ((op.kind == OpKind::kSignal || op.kind == OpKind::kWait) && op.peer != rank) return true;
  if (foreign(op.src) || foreign(op.dst)) return true;
  for (const Region& dst : op.more_dsts) {
    if (foreign(dst)) return true;
  }
  for (const ReduceSource& source : op.sources) {
    if (source.peer < 0 && foreign(source.region)) return true;
  }
  return false;
}

std::string Print(const ScheduleOp& op) {
  static constexpr absl::string_view kNames[] = {"send", "recv",        "recv_reduce", "copy", "reduce_many",
                                                 "zero", "reduce_tree", "signal",      "wait"};
  const size_t kind = static_cast<size_t>(op.kind);
  if (kind >= std::size(kNames)) return "unknown";
  std::string out(kNames[kind]);
  const bool to_peer = op.kind == OpKind::kSend || op.kind == OpKind::kSignal;
  const bool from_peer = op.kind == OpKind::kRecv || op.kind == OpKind::kRecvReduce || op.kind == OpKind::kWait;
  if (to_peer || from_peer) absl::StrAppend(&out, to_peer ? " ->" : " <-", op.peer);
  absl::StrAppend(&out, " ch", op.channel, " ");
  switch (op.kind) {
    case OpKind::kSend:
      return out + Text(op.src);
    case OpKind::kSignal:
    case OpKind::kWait:
      return absl::StrCat(out, "flag", op.flag);
    case OpKind::kRecv:
    case OpKind::kZero:
      return out + Destinations(op, /*has_operands=*/false);
    case OpKind::kRecvReduce:
    case OpKind::kCopy:
      return absl::StrCat(out, Destinations(op, /*has_operands=*/true), " ", Text(op.src));
    case OpKind::kReduceMany:
    case OpKind::kReduceTree:
      break;
  }
  absl::StrAppend(&out, Destinations(op, /*has_operands=*/true));
  for (const ReduceSource& source : op.sources) {
    absl::StrAppend(&out, " ", source.peer >= 0 ? absl::StrCat("<-", source.peer) : Text(source.region));
  }
  return out;
}

std::string Print(const Schedule& schedule) {
  std::string out =
      absl::StrCat("schedule rank ", schedule.rank, " of ", schedule.ranks, ", input ", schedule.input, ", output ",
                   schedule.output, ", scratch ", schedule.scratch, schedule.in_place ? ", in place\n" : "\n");
  for (const ScheduleOp& op : schedule.ops) absl::StrAppend(&out, "  ", Print(op), "\n");
  return out;
}

std::string Print(const ScheduleSet& set) {
  std::string out = absl::StrCat("collective ", set.spec.ToString(), "\n");
  for (const Schedule& schedule : set.schedules) absl::StrAppend(&out, Print(schedule));
  return out;
}

uint64_t HashSchedules(absl::Span<const Schedule> schedules) {
  uint64_t hash = Hash64("xlad schedules 2", schedules.size());
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
