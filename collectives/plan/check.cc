// Symbolic execution of all ranks' schedules together.
#include "collectives/plan/check.h"

#include <array>
#include <deque>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/symbolic.h"

namespace xlad::collectives {
namespace {

// A message that was sent and has not been received.
struct Message {
  Segments values;
  Region sent_from;
};

struct Link {
  std::deque<Message> messages;
};

class Execution {
 public:
  Execution(const CollectiveSpec& spec, absl::Span<const Schedule> schedules, const CheckOptions& options,
            bool in_place)
      : spec_(spec), schedules_(schedules), options_(options), in_place_(in_place), trees_(spec.ranks) {}

  absl::StatusOr<ScheduleCosts> Run() {
    XLAD_RETURN_IF_ERROR(Start());
    bool progress = true;
    while (progress) {
      progress = false;
      for (int rank = 0; rank < spec_.ranks; ++rank) {
        while (next_[rank] < std::ssize(schedules_[rank].ops)) {
          XLAD_ASSIGN_OR_RETURN(const bool done, TryOp(rank));
          if (!done) break;
          ++next_[rank];
          progress = true;
        }
      }
    }
    XLAD_RETURN_IF_ERROR(CheckFinished());
    for (int rank = 0; rank < spec_.ranks; ++rank) XLAD_RETURN_IF_ERROR(CheckOutput(rank));
    for (int64_t sent : sent_) costs_.max_sent_elements = std::max(costs_.max_sent_elements, sent);
    return costs_;
  }

 private:
  using LinkKey = std::tuple<int, int, int>;  // From, to, channel.

  const ScheduleOp& Op(int rank) const { return schedules_[rank].ops[next_[rank]]; }

  absl::Status Error(int rank, absl::string_view what) const {
    const std::string place = next_[rank] < std::ssize(schedules_[rank].ops)
                                  ? absl::StrCat(", operation ", next_[rank], " \"", Print(Op(rank)), "\"")
                                  : std::string();
    return absl::InternalError(absl::StrCat("schedule of ", spec_.ToString(), in_place_ ? " in place" : "", ", rank ",
                                            rank, place, ": ", what));
  }

  absl::Status Start() {
    next_.assign(spec_.ranks, 0);
    sent_.assign(spec_.ranks, 0);
    buffers_.resize(spec_.ranks);
    for (int rank = 0; rank < spec_.ranks; ++rank) {
      const Schedule& schedule = schedules_[rank];
      if (schedule.rank != rank || schedule.ranks != spec_.ranks || schedule.input != spec_.input_elements(rank) ||
          schedule.output != spec_.output_elements(rank) || schedule.scratch < 0) {
        return Error(rank, "the buffer sizes or the rank do not agree with the spec");
      }
      const int64_t sizes[] = {schedule.input, schedule.output, schedule.scratch};
      for (int i = 0; i < 3; ++i) {
        const int tree = i == 0 ? rank : ReductionTrees::kUndefined;
        if (sizes[i] > 0) buffers_[rank][i].push_back({0, sizes[i], tree, 0, 0});
      }
    }
    return absl::OkStatus();
  }

  Segments& BufferOf(int rank, ScheduleBuffer buffer) {
    if (in_place_ && buffer == ScheduleBuffer::kOutput) buffer = ScheduleBuffer::kInput;
    return buffers_[rank][static_cast<int>(buffer)];
  }

  bool SameBuffer(ScheduleBuffer a, ScheduleBuffer b) const {
    return a == b || (in_place_ && a != ScheduleBuffer::kScratch && b != ScheduleBuffer::kScratch);
  }
  bool SameMemory(const Region& a, const Region& b) const {
    return SameBuffer(a.buffer, b.buffer) && a.begin == b.begin && a.count == b.count;
  }
  bool Overlap(const Region& a, const Region& b) const {
    return SameBuffer(a.buffer, b.buffer) && a.begin < b.end() && b.begin < a.end();
  }

  absl::Status CheckRegion(int rank, const Region& region) const {
    const Schedule& schedule = schedules_[rank];
    const int64_t sizes[] = {schedule.input, schedule.output, schedule.scratch};
    const int buffer = static_cast<int>(region.buffer);
    if (buffer > 2 || region.begin < 0 || region.count <= 0 || region.count > sizes[buffer] - region.begin) {
      return Error(rank, "a region is empty or exceeds its buffer");
    }
    return absl::OkStatus();
  }

  // Checks that `dst` is inside a buffer other than the input and, if `src` is not null, either equals `src` or does
  // not overlap it.
  absl::Status CheckWrite(int rank, const Region& dst, const Region* src) const {
    XLAD_RETURN_IF_ERROR(CheckRegion(rank, dst));
    if (dst.buffer == ScheduleBuffer::kInput) return Error(rank, "writes the input");
    if (src == nullptr) return absl::OkStatus();
    XLAD_RETURN_IF_ERROR(CheckRegion(rank, *src));
    if (src->count != dst.count) return Error(rank, "regions differ in size");
    if (Overlap(*src, dst) && !SameMemory(*src, dst)) return Error(rank, "reads and writes overlapping regions");
    return absl::OkStatus();
  }

  absl::StatusOr<Segments> Read(int rank, const Region& region) {
    XLAD_RETURN_IF_ERROR(CheckRegion(rank, region));
    Segments values = ReadSegments(BufferOf(rank, region.buffer), region.begin, region.count);
    for (const Segment& segment : values) {
      if (segment.tree != ReductionTrees::kUndefined) continue;
      return Error(rank, absl::StrCat("reads elements from ", region.begin + segment.begin, ", which are undefined"));
    }
    return values;
  }

  // Whether a message of this rank that has not been received has elements of `dst`, which must not change until then.
  bool IsInFlight(int rank, const Region& dst) const {
    for (auto at = links_.lower_bound(LinkKey(rank, 0, 0)); at != links_.end(); ++at) {
      if (std::get<0>(at->first) != rank) break;
      for (const Message& message : at->second.messages) {
        if (Overlap(message.sent_from, dst)) return true;
      }
    }
    return false;
  }

  absl::Status CheckPeer(int rank, int peer) const {
    if (peer < 0 || peer >= spec_.ranks || peer == rank) return Error(rank, absl::StrCat("no such peer: ", peer));
    return Op(rank).channel >= 0 ? absl::OkStatus() : Error(rank, "negative channel");
  }

  // Runs the next operation of the rank if it is not blocked. Returns whether it ran.
  absl::StatusOr<bool> TryOp(int rank) {
    const ScheduleOp& op = Op(rank);
    switch (op.kind) {
      case OpKind::kSend:
        return TrySend(rank, op);
      case OpKind::kRecv:
        return TryReduce(rank, op, {{op.peer, {}}});
      case OpKind::kRecvReduce:
        return TryReduce(rank, op, {{op.peer, {}}, {-1, op.src}});
      case OpKind::kCopy:
        return TryReduce(rank, op, {{-1, op.src}});
      case OpKind::kReduceMany:
        return TryReduce(rank, op, op.sources);
      case OpKind::kZero: {
        XLAD_RETURN_IF_ERROR(CheckWrite(rank, op.dst, nullptr));
        if (IsInFlight(rank, op.dst)) return false;
        WriteSegments(&BufferOf(rank, op.dst.buffer), op.dst.begin, {{0, op.dst.count, ReductionTrees::kZero, 0, 0}});
        return true;
      }
      default:
        break;
    }
    return Error(rank, "unknown operation");
  }

  absl::StatusOr<bool> TrySend(int rank, const ScheduleOp& op) {
    XLAD_RETURN_IF_ERROR(CheckPeer(rank, op.peer));
    XLAD_ASSIGN_OR_RETURN(Segments values, Read(rank, op.src));
    Link& link = links_[LinkKey(rank, op.peer, op.channel)];
    if (std::ssize(link.messages) >= options_.slots) return false;
    for (Segment& segment : values) {
      ++segment.depth;
      costs_.rounds = std::max(costs_.rounds, segment.depth);
    }
    link.messages.push_back({std::move(values), op.src});
    sent_[rank] += op.src.count;
    return true;
  }

  // dst = the combined sources. A receive has one source, which is a message; a copy has one, which is a region.
  absl::StatusOr<bool> TryReduce(int rank, const ScheduleOp& op, const std::vector<ReduceSource>& sources) {
    if (sources.empty()) return Error(rank, "no operands");
    XLAD_RETURN_IF_ERROR(CheckWrite(rank, op.dst, nullptr));
    std::vector<Segments> operands;
    std::map<int, int64_t> received;  // The number of messages received, by peer.
    for (const ReduceSource& source : sources) {
      if (source.peer < 0) {
        XLAD_RETURN_IF_ERROR(CheckWrite(rank, op.dst, &source.region));
        XLAD_ASSIGN_OR_RETURN(operands.emplace_back(), Read(rank, source.region));
        continue;
      }
      XLAD_RETURN_IF_ERROR(CheckPeer(rank, source.peer));
      const Link& link = links_[LinkKey(source.peer, rank, op.channel)];
      const int64_t index = received[source.peer]++;
      if (std::ssize(link.messages) <= index) return false;
      const Segments& values = link.messages[index].values;
      if (values.back().end != op.dst.count) {
        return Error(rank, absl::StrCat("found a message of ", values.back().end, " elements from rank ", source.peer));
      }
      operands.push_back(values);
    }
    const bool is_noop = op.kind == OpKind::kCopy && SameMemory(op.src, op.dst);
    if (!is_noop && IsInFlight(rank, op.dst)) return false;
    absl::StatusOr<Segments> result =
        operands.size() == 1 ? std::move(operands[0]) : CombineSegments(operands, &trees_);
    if (!result.ok()) return Error(rank, result.status().message());
    WriteSegments(&BufferOf(rank, op.dst.buffer), op.dst.begin, *result);
    for (const auto& [peer, count] : received) {
      std::deque<Message>& messages = links_[LinkKey(peer, rank, op.channel)].messages;
      messages.erase(messages.begin(), messages.begin() + count);
    }
    return true;
  }

  absl::Status CheckFinished() {
    std::string waits;
    int waiting = 0;
    for (int rank = 0; rank < spec_.ranks; ++rank) {
      if (next_[rank] == std::ssize(schedules_[rank].ops)) continue;
      if (++waiting > 4) continue;
      absl::StrAppend(&waits, waits.empty() ? "" : "; ", "rank ", rank, " at operation ", next_[rank], " \"",
                      Print(Op(rank)), "\"");
    }
    if (waiting > 0) {
      return absl::InternalError(absl::StrCat("schedules of ", spec_.ToString(), in_place_ ? " in place" : "",
                                              " deadlock with ", options_.slots, " slots: ", waiting, " ranks wait, ",
                                              waits));
    }
    for (const auto& [key, link] : links_) {
      if (link.messages.empty()) continue;
      return Error(std::get<0>(key), absl::StrCat("a message to rank ", std::get<1>(key), " on channel ",
                                                  std::get<2>(key), " is never received"));
    }
    return absl::OkStatus();
  }

  // The value that the spec requires for the output elements of `rank` from position p to position `end`: the
  // contribution of rank `tree` (-1: the sum of all ranks) at the input position p + shift.
  struct Expected {
    int tree = -1;
    int64_t shift = 0;
    int64_t end = 0;
  };
  Expected ExpectedAt(int rank, int64_t p) const {
    const int64_t size = spec_.output_elements();
    const int64_t in = spec_.input_elements();
    switch (spec_.kind) {
      case CollectiveKind::kAllReduce:
        return {-1, 0, size};
      case CollectiveKind::kReduceScatter:
        return {-1, rank * size, size};
      case CollectiveKind::kAllGather: {
        const int64_t sender = p / in;
        return {static_cast<int>(sender), -sender * in, (sender + 1) * in};
      }
      case CollectiveKind::kAllToAll: {
        const int64_t part = in / spec_.ranks, sender = p / part;
        return {static_cast<int>(sender), (rank - sender) * part, (sender + 1) * part};
      }
      case CollectiveKind::kCollectivePermute:
        for (const RankPair& pair : spec_.pairs) {
          if (pair.target == rank) return {pair.source, 0, size};
        }
        return {ReductionTrees::kZero, 0, size};
      default:
        return {spec_.root, 0, size};
    }
  }

  absl::Status CheckOutput(int rank) {
    const Segments& output = BufferOf(rank, ScheduleBuffer::kOutput);
    for (const Segment& segment : output) {
      for (int64_t p = segment.begin; p < segment.end;) {
        const Expected expected = ExpectedAt(rank, p);
        const bool zero = expected.tree == ReductionTrees::kZero;
        const bool value_fits = expected.tree == -1 ? trees_.IsComplete(segment.tree) : segment.tree == expected.tree;
        if (!value_fits || (!zero && segment.shift != expected.shift)) {
          return Error(rank, absl::StrCat("output element ", p, " is element ", p + segment.shift, " of ",
                                          trees_.ToString(segment.tree), ", expected element ", p + expected.shift,
                                          " of ", expected.tree == -1 ? "all ranks" : trees_.ToString(expected.tree)));
        }
        p = std::min(segment.end, expected.end);
      }
    }
    return spec_.kind == CollectiveKind::kAllReduce ? CheckSameAsFirst(rank, output) : absl::OkStatus();
  }

  absl::Status CheckSameAsFirst(int rank, const Segments& output) {
    const Segments& first = BufferOf(0, ScheduleBuffer::kOutput);
    int64_t at = 0;
    for (const Segment& segment : output) {
      while (at < std::ssize(first) && first[at].begin < segment.end) {
        if (first[at].end > segment.begin && first[at].tree != segment.tree) {
          return Error(rank,
                       absl::StrCat("output element ", std::max(segment.begin, first[at].begin), " is reduced as ",
                                    trees_.ToString(segment.tree), ", on rank 0 as ", trees_.ToString(first[at].tree)));
        }
        if (first[at].end > segment.end) break;
        ++at;
      }
    }
    return absl::OkStatus();
  }

  const CollectiveSpec& spec_;
  const absl::Span<const Schedule> schedules_;
  const CheckOptions options_;
  const bool in_place_;
  ReductionTrees trees_;
  std::vector<int64_t> next_;  // The index of the next operation of each rank.
  std::vector<int64_t> sent_;  // The number of elements sent by each rank.
  std::vector<std::array<Segments, 3>> buffers_;
  std::map<LinkKey, Link> links_;
  ScheduleCosts costs_;
};

}  // namespace

absl::StatusOr<ScheduleCosts> CheckSchedules(const CollectiveSpec& spec, absl::Span<const Schedule> schedules,
                                             const CheckOptions& options) {
  XLAD_RETURN_IF_ERROR(ValidateSpec(spec));
  if (std::ssize(schedules) != spec.ranks) {
    return absl::InternalError(absl::StrCat("found ", schedules.size(), " schedules, expected ", spec.ranks));
  }
  bool in_place = true;
  for (const Schedule& schedule : schedules) in_place = in_place && schedule.in_place;
  if (in_place) {
    if (spec.input_elements() != spec.output_elements()) {
      return absl::InternalError("schedules are marked in place, but input and output differ in size");
    }
    XLAD_RETURN_IF_ERROR(Execution(spec, schedules, options, /*in_place=*/true).Run().status());
  }
  return Execution(spec, schedules, options, /*in_place=*/false).Run();
}

absl::Status CheckPlan(const CollectivePlan& plan, const CollectiveSpec& spec, const CheckOptions& options) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<Schedule> schedules, BuildSchedules(plan, spec));
  XLAD_ASSIGN_OR_RETURN(const ScheduleCosts costs, CheckSchedules(spec, schedules, options));
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(plan.algorithm));
  const AlgorithmCost formula = algorithm->cost(plan, spec);
  if (costs.max_sent_elements != formula.sent_elements || costs.rounds != formula.rounds) {
    return absl::InternalError(absl::StrCat(
        "plan ", plan.ToString(), " of ", spec.ToString(), ": schedules send ", costs.max_sent_elements,
        " elements in ", costs.rounds, " rounds, the formula says ", formula.sent_elements, " in ", formula.rounds));
  }
  return absl::OkStatus();
}

}  // namespace xlad::collectives
