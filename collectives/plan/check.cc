// Executes all ranks' schedules together symbolically.
#include "collectives/plan/check.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/expected.h"
#include "collectives/plan/races.h"
#include "collectives/plan/symbolic.h"

namespace xlad::collectives {
namespace {

// A message that was sent and has not been received.
struct Message {
  Segments values;
  int64_t count = 0;
  int64_t depth = 0;  // If the message has no elements: the length of the longest chain of messages that ends with it.
  Region sent_from;
  int race_id = -1;
  RaceDetector::Clock clock;  // Empty if races are not checked.
};

using LinkKey = std::array<int, 3>;  // The sender, the receiver, and the channel or flag.

// A region in one of the three memories of a rank. In place, input and output are both in memory 0.
struct Place {
  int rank = 0;
  int memory = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool Overlaps(const Place& other) const {
    return rank == other.rank && memory == other.memory && begin < other.end && other.begin < end;
  }
  friend bool operator==(const Place&, const Place&) = default;
};

// Whether input and output share memory. An executor may decide, before it knows whether it runs in place, which
// operations wait until a message has been received. kWaits models such an executor: input and output are separate, but
// operations wait as if they shared memory.
enum class Sharing { kSeparate, kInPlace, kWaits };

// The state of all ranks during an execution. The class has more than 25 methods because all of them read or change
// this state: first the operations that run, then the checks of the final state.
class Execution {
 public:
  Execution(const CollectiveSpec& spec, absl::Span<const Schedule> schedules, const CheckOptions& options,
            Sharing sharing)
      : spec_(spec),
        schedules_(schedules),
        options_(options),
        in_place_(sharing == Sharing::kInPlace),
        waits_in_place_(sharing != Sharing::kSeparate),
        trees_(spec.ranks) {}

  absl::StatusOr<ScheduleCosts> Run() {
    XLAD_RETURN_IF_ERROR(Start());
    std::deque<int> ready;
    for (int rank = 0; rank < spec_.ranks; ++rank) Wake(rank, &ready);
    while (!ready.empty()) {
      const int rank = ready.front();
      ready.pop_front();
      is_ready_[rank] = false;
      while (next_[rank] < std::ssize(schedules_[rank].ops)) {
        woken_.clear();
        XLAD_ASSIGN_OR_RETURN(const bool done, TryOp(rank));
        if (!done) break;
        ++next_[rank];
        for (const int peer : woken_) Wake(peer, &ready);
      }
    }
    XLAD_RETURN_IF_ERROR(CheckFinished());
    for (int rank = 0; rank < spec_.ranks; ++rank) XLAD_RETURN_IF_ERROR(CheckOutput(rank));
    XLAD_RETURN_IF_ERROR(CheckEnds());
    costs_.max_sent_elements = *std::max_element(sent_.begin(), sent_.end());
    return costs_;
  }

 private:
  const ScheduleOp& Op(int rank) const { return schedules_[rank].ops[next_[rank]]; }

  void Wake(int rank, std::deque<int>* ready) {
    if (is_ready_[rank]) return;
    is_ready_[rank] = true;
    ready->push_back(rank);
  }

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
    is_ready_.assign(spec_.ranks, false);
    control_depth_.assign(spec_.ranks, 0);
    in_flight_.resize(spec_.ranks);
    memories_.resize(spec_.ranks);
    std::vector<std::vector<int64_t>> sizes;
    for (int rank = 0; rank < spec_.ranks; ++rank) {
      const Schedule& schedule = schedules_[rank];
      if (schedule.rank != rank || schedule.ranks != spec_.ranks || schedule.input != spec_.input_elements(rank) ||
          schedule.output != spec_.output_elements(rank) || schedule.scratch < 0) {
        return Error(rank, "the buffer sizes or the rank do not agree with the spec");
      }
      offsets_.push_back(waits_in_place_ ? InPlaceOffsetsOf(spec_, rank) : InPlaceOffsets());
      const InPlaceOffsets offset = in_place_ ? offsets_.back() : InPlaceOffsets();
      const int64_t shared = std::max(schedule.input + offset.output, schedule.output + offset.input);
      sizes.push_back({in_place_ ? shared : schedule.input, in_place_ ? 0 : schedule.output, schedule.scratch});
      for (int i = 0; i < 3; ++i) {
        if (sizes.back()[i] > 0) {
          memories_[rank][i].push_back({0, sizes.back()[i], ReductionTrees::kUndefined, 0, 0});
        }
      }
      if (schedule.input > 0) WriteSegments(&memories_[rank][0], offset.output, {{0, schedule.input, rank, 0, 0}});
    }
    FindThreads(sizes);
    return absl::OkStatus();
  }

  // Assigns operations to threads. Races are possible only if channels of a rank access the same memory, or if a rank
  // accesses the memory of another rank. A barrier is checked with the same clocks.
  void FindThreads(const std::vector<std::vector<int64_t>>& sizes) {
    bool needed = spec_.kind == CollectiveKind::kBarrier;
    std::vector<int> rank_of;
    for (int rank = 0; rank < spec_.ranks; ++rank) {
      for (const ScheduleOp& op : schedules_[rank].ops) {
        if (threads_.try_emplace({rank, op.channel, 0}, std::ssize(rank_of)).second) {
          rank_of.push_back(rank);
        }
        const bool orders_channels = op.kind == OpKind::kSignal || op.kind == OpKind::kWait;
        needed = needed || (!orders_channels && NeedsWindows(op, rank));
      }
      needed = needed || ChannelsShareMemory(rank);
    }
    if (needed) races_.emplace(std::move(rank_of), sizes);
  }

  bool ChannelsShareMemory(int rank) const {
    std::vector<ChannelAccess> accesses;
    const auto add = [&](const ScheduleOp& op, const Region& region, bool writes) {
      const absl::StatusOr<Place> at = Find(rank, region);
      if (at.ok() && region.count > 0) accesses.push_back({at->memory, at->begin, at->end, op.channel, writes});
    };
    for (const ScheduleOp& op : schedules_[rank].ops) {
      const bool has_src = op.kind == OpKind::kSend || op.kind == OpKind::kRecvReduce || op.kind == OpKind::kCopy;
      if (has_src) add(op, op.src, false);
      if (HasDestination(op.kind)) add(op, op.dst, true);
      for (const Region& dst : op.more_dsts) add(op, dst, true);
      for (const ReduceSource& source : op.sources) {
        if (source.peer < 0) add(op, source.region, false);
      }
    }
    return ChannelsConflict(std::move(accesses));
  }

  int ThreadOf(int rank) const { return threads_.at({rank, Op(rank).channel, 0}); }

  absl::StatusOr<Place> Find(int rank, const Region& region) const {
    const int owner = region.rank == kOwnRank ? rank : region.rank;
    const int buffer = static_cast<int>(region.buffer);
    if (owner < 0 || owner >= spec_.ranks) {
      return Error(rank, absl::StrCat("found a region of rank ", owner, ", expected 0 to ", spec_.ranks - 1));
    }
    const Schedule& schedule = schedules_[owner];
    const int64_t sizes[] = {schedule.input, schedule.output, schedule.scratch};
    if (buffer > 2 || region.begin < 0 || region.count < 0 || region.begin > sizes[buffer] ||
        region.count > sizes[buffer] - region.begin) {
      return Error(rank, "a region exceeds its buffer");
    }
    const Place place{owner, buffer, region.begin, region.end()};
    return in_place_ ? InPlace(place) : place;
  }

  Place InPlace(const Place& place) const {
    if (place.memory == 2) return place;
    const int64_t shift = place.memory == 0 ? offsets_[place.rank].output : offsets_[place.rank].input;
    return {place.rank, 0, place.begin + shift, place.end + shift};
  }
  // Returns the place with which messages in flight are compared before an operation writes `place`.
  Place WaitPlace(const Place& place) const { return waits_in_place_ && !in_place_ ? InPlace(place) : place; }

  absl::StatusOr<Segments> Read(int rank, const Place& place) {
    if (place.begin == place.end) return Segments();
    Segments values = ReadSegments(memories_[place.rank][place.memory], place.begin, place.end - place.begin);
    for (const Segment& segment : values) {
      if (segment.tree != ReductionTrees::kUndefined) continue;
      return Error(rank, absl::StrCat("reads elements from ", place.begin + segment.begin, ", which are undefined"));
    }
    return values;
  }

  // Whether a message of this rank that has not been received contains elements of `place`, which must not change until
  // then.
  bool IsInFlight(int rank, const Place& place) const {
    if (place.rank != rank) return false;
    const Place at = WaitPlace(place);
    for (const Place& sent : in_flight_[rank]) {
      if (sent.Overlaps(at)) return true;
    }
    return false;
  }

  absl::Status CheckPeer(int rank, int peer, bool may_be_own) const {
    if (peer < 0 || peer >= spec_.ranks || (peer == rank && !may_be_own)) {
      return Error(rank, absl::StrCat("found peer ", peer, ", expected ", may_be_own ? "" : "another of ", "0 to ",
                                      spec_.ranks - 1));
    }
    return absl::OkStatus();
  }

  // Runs the next operation of the rank if it is not blocked. Returns whether it ran.
  absl::StatusOr<bool> TryOp(int rank) {
    const ScheduleOp& op = Op(rank);
    if (op.channel < 0 || op.flag < 0) return Error(rank, "negative channel or flag");
    switch (op.kind) {
      case OpKind::kSend:
        return TrySend(rank, op);
      case OpKind::kRecv:
        return TryWrite(rank, op, {{op.peer, {}}});
      case OpKind::kRecvReduce:
        return TryWrite(rank, op, {{op.peer, {}}, {-1, op.src}});
      case OpKind::kCopy:
        return TryWrite(rank, op, {{-1, op.src}});
      case OpKind::kReduceMany:
      case OpKind::kReduceTree:
        if (op.sources.empty()) return Error(rank, "no operands");
        return TryWrite(rank, op, op.sources);
      case OpKind::kZero:
        return TryWrite(rank, op, {});
      case OpKind::kSignal:
      case OpKind::kWait:
        return TrySignal(rank, op);
    }
    return Error(rank, "unknown operation");
  }

  absl::StatusOr<bool> TrySend(int rank, const ScheduleOp& op) {
    XLAD_RETURN_IF_ERROR(CheckPeer(rank, op.peer, /*may_be_own=*/false));
    if (op.src.rank != kOwnRank && op.src.rank != rank) return Error(rank, "sends memory of another rank");
    XLAD_ASSIGN_OR_RETURN(const Place place, Find(rank, op.src));
    Message message;
    XLAD_ASSIGN_OR_RETURN(message.values, Read(rank, place));
    std::deque<Message>& link = links_[{rank, op.peer, op.channel}];
    if (std::ssize(link) >= options_.slots) {
      costs_.waited_for_slots = true;
      return false;
    }
    for (Segment& segment : message.values) costs_.rounds = std::max(costs_.rounds, ++segment.depth);
    message.count = op.src.count;
    message.sent_from = op.src;
    if (op.src.count == 0) {
      message.depth = control_depth_[rank] + 1;
      costs_.rounds = std::max(costs_.rounds, message.depth);
    }
    if (races_.has_value()) {
      const int thread = ThreadOf(rank);
      races_->Step(thread);
      if (races_->Send(thread, place.memory, place.begin, place.end, &message.race_id)) return Error(rank, kRace);
      message.clock = races_->ClockOf(thread);
    }
    link.push_back(std::move(message));
    if (op.src.count > 0) in_flight_[rank].push_back(WaitPlace(place));
    sent_[rank] += op.src.count;
    woken_.push_back(op.peer);
    return true;
  }

  absl::StatusOr<bool> TrySignal(int rank, const ScheduleOp& op) {
    XLAD_RETURN_IF_ERROR(CheckPeer(rank, op.peer, /*may_be_own=*/true));
    if (op.kind == OpKind::kSignal) {
      RaceDetector::Clock clock;
      if (races_.has_value()) {
        races_->Step(ThreadOf(rank));
        clock = races_->ClockOf(ThreadOf(rank));
      }
      signals_[{rank, op.peer, op.flag}].push_back(std::move(clock));
      woken_.push_back(op.peer);
      return true;
    }
    std::deque<RaceDetector::Clock>& signals = signals_[{op.peer, rank, op.flag}];
    if (signals.empty()) return false;
    if (races_.has_value()) {
      races_->Step(ThreadOf(rank));
      races_->Join(ThreadOf(rank), signals.front());
    }
    signals.pop_front();
    return true;
  }

  // The messages that an operation receives from one link.
  struct Taken {
    std::deque<Message>* link;
    int peer;
    int64_t count;
  };

  // Sets all destinations to the combined sources, or to zero if there are no sources.
  absl::StatusOr<bool> TryWrite(int rank, const ScheduleOp& op, const std::vector<ReduceSource>& sources) {
    std::vector<Place> dsts, reads;
    XLAD_ASSIGN_OR_RETURN(dsts.emplace_back(), Find(rank, op.dst));
    for (const Region& dst : op.more_dsts) {
      XLAD_ASSIGN_OR_RETURN(dsts.emplace_back(), Find(rank, dst));
    }
    XLAD_RETURN_IF_ERROR(CheckDestinations(rank, op, dsts));
    std::vector<Segments> operands;
    std::vector<Taken> taken;
    for (const ReduceSource& source : sources) {
      if (source.peer < 0) {
        XLAD_ASSIGN_OR_RETURN(reads.emplace_back(), Find(rank, source.region));
        if (source.region.count != op.dst.count) return Error(rank, "regions differ in size");
        XLAD_ASSIGN_OR_RETURN(operands.emplace_back(), Read(rank, reads.back()));
        continue;
      }
      XLAD_ASSIGN_OR_RETURN(const Message* message, NextMessage(rank, op, source.peer, &taken));
      if (message == nullptr) return false;
      operands.push_back(message->values);
    }
    const bool is_noop = op.kind == OpKind::kCopy && dsts.size() == 1 && reads[0] == dsts[0];
    for (const Place& dst : dsts) {
      if (!is_noop && IsInFlight(rank, dst)) return false;
      for (const Place& read : reads) {
        if (read.Overlaps(dst) && !(read == dst)) return Error(rank, "reads and writes overlapping regions");
      }
    }
    absl::StatusOr<Segments> result = ResultOf(op, operands);
    if (!result.ok()) return Error(rank, result.status().message());
    XLAD_RETURN_IF_ERROR(Access(rank, reads, is_noop ? std::vector<Place>() : dsts, taken));
    for (const Place& dst : dsts) WriteSegments(&memories_[dst.rank][dst.memory], dst.begin, *result);
    Release(rank, taken);
    return true;
  }

  absl::Status CheckDestinations(int rank, const ScheduleOp& op, const std::vector<Place>& dsts) const {
    for (size_t i = 0; i < dsts.size(); ++i) {
      const Region& dst = i == 0 ? op.dst : op.more_dsts[i - 1];
      if (dst.buffer == ScheduleBuffer::kInput) return Error(rank, "writes the input");
      if (dst.count != op.dst.count) return Error(rank, "regions differ in size");
      for (size_t j = 0; j < i; ++j) {
        if (dsts[j].Overlaps(dsts[i])) return Error(rank, "two destinations overlap");
      }
    }
    return absl::OkStatus();
  }

  // Returns the next message from the peer that the operation has not received yet, or null if it has not arrived.
  absl::StatusOr<const Message*> NextMessage(int rank, const ScheduleOp& op, int peer, std::vector<Taken>* taken) {
    XLAD_RETURN_IF_ERROR(CheckPeer(rank, peer, /*may_be_own=*/false));
    std::deque<Message>* const link = &links_[{peer, rank, op.channel}];
    auto entry = std::find_if(taken->begin(), taken->end(), [&](const Taken& t) { return t.link == link; });
    if (entry == taken->end()) entry = taken->insert(taken->end(), {link, peer, 0});
    if (std::ssize(*link) <= entry->count) return nullptr;
    const Message& message = (*link)[entry->count++];
    if (message.count == op.dst.count) return &message;
    return Error(rank, absl::StrCat("found a message of ", message.count, " elements from rank ", peer, ", expected ",
                                    op.dst.count));
  }

  absl::StatusOr<Segments> ResultOf(const ScheduleOp& op, std::vector<Segments>& operands) {
    if (op.dst.count == 0) return Segments();
    if (operands.empty()) return Segments{{0, op.dst.count, ReductionTrees::kZero, 0, 0}};
    if (operands.size() == 1) return std::move(operands[0]);
    return CombineSegments(operands, op.kind == OpKind::kReduceTree, &trees_);
  }

  absl::Status Access(int rank, const std::vector<Place>& reads, const std::vector<Place>& writes,
                      const std::vector<Taken>& taken) {
    if (!races_.has_value()) return absl::OkStatus();
    const int thread = ThreadOf(rank);
    races_->Step(thread);
    for (const Taken& t : taken) {
      for (int64_t i = 0; i < t.count; ++i) {
        races_->Join(thread, (*t.link)[i].clock);
        races_->Receive(thread, (*t.link)[i].race_id);
      }
    }
    bool race = false;
    for (const Place& at : reads) {
      race = race || (at.begin < at.end && races_->Read(thread, at.rank, at.memory, at.begin, at.end));
    }
    for (const Place& at : writes) {
      race = race || (at.begin < at.end && races_->Write(thread, at.rank, at.memory, at.begin, at.end));
    }
    return race ? Error(rank, kRace) : absl::OkStatus();
  }

  // Removes the messages, so that their slots are free again.
  void Release(int rank, const std::vector<Taken>& taken) {
    for (const Taken& t : taken) {
      for (int64_t i = 0; i < t.count; ++i) {
        const Message& message = t.link->front();
        control_depth_[rank] = std::max(control_depth_[rank], message.depth);
        if (message.count > 0) {
          const Place place = WaitPlace(*Find(t.peer, message.sent_from));
          std::vector<Place>& places = in_flight_[t.peer];
          const auto at = std::find(places.begin(), places.end(), place);
          *at = places.back();
          places.pop_back();
        }
        t.link->pop_front();
      }
      woken_.push_back(t.peer);
    }
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
                                              " deadlock with slots=", options_.slots, ": ", waiting, " of ",
                                              spec_.ranks, " ranks wait, ", waits));
    }
    for (const auto& [key, link] : links_) {
      if (link.empty()) continue;
      return Error(key[0], absl::StrCat("a message to rank ", key[1], " on channel ", key[2], " is never received"));
    }
    for (const auto& [key, signals] : signals_) {
      if (signals.empty()) continue;
      return Error(key[0], absl::StrCat("a signal to rank ", key[1], " on flag ", key[2], " is never received"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckOutput(int rank) {
    for (const ExpectedOutput& expected : ExpectedOutputOf(spec_, rank)) {
      const Place place =
          *Find(rank, {ScheduleBuffer::kOutput, expected.begin, expected.end - expected.begin, kOwnRank});
      const Segments& memory = memories_[rank][place.memory];
      for (Segment segment : ReadSegments(memory, place.begin, place.end - place.begin)) {
        segment.begin += expected.begin;  // The segment now has positions in the output.
        segment.end += expected.begin;
        segment.shift -= expected.begin;
        XLAD_RETURN_IF_ERROR(CheckSegment(rank, expected, segment));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckSegment(int rank, const ExpectedOutput& expected, const Segment& segment) {
    const bool all = expected.source == ExpectedOutput::kAllRanks;
    const bool zero = expected.source == ExpectedOutput::kZero;
    const bool value_fits = all    ? trees_.IsComplete(segment.tree)
                            : zero ? segment.tree == ReductionTrees::kZero
                                   : segment.tree == expected.source;
    if (!value_fits || (!zero && segment.shift != expected.shift)) {
      return Error(rank, absl::StrCat("output element ", segment.begin, " is element ", segment.begin + segment.shift,
                                      " of ", trees_.ToString(segment.tree), ", expected element ",
                                      segment.begin + expected.shift, " of ",
                                      all    ? "all ranks"
                                      : zero ? "zero"
                                             : absl::StrCat("rank ", expected.source)));
    }
    return all ? CheckOrder(rank, expected.shift, segment) : absl::OkStatus();
  }

  // Checks that the elements are reduced in the canonical order if the spec requires it and, in an AllReduce, in the
  // order in which rank 0 reduces them.
  absl::Status CheckOrder(int rank, int64_t shift, const Segment& segment) {
    if (spec_.mode == ReductionMode::kCanonical) {
      std::vector<int> ranks(spec_.ranks);
      for (int r = 0; r < spec_.ranks; ++r) ranks[r] = r;
      XLAD_ASSIGN_OR_RETURN(const int canonical, trees_.CombineBalanced(ranks));
      if (segment.tree != canonical) {
        return Error(rank,
                     absl::StrCat("output element ", segment.begin, " is reduced as ", trees_.ToString(segment.tree),
                                  ", expected the canonical order ", trees_.ToString(canonical)));
      }
    }
    if (spec_.kind != CollectiveKind::kAllReduce) return absl::OkStatus();
    if (rank == 0) first_output_.push_back({segment.begin, segment.end, segment.tree, shift, 0});
    for (auto first = std::upper_bound(first_output_.begin(), first_output_.end(), segment.begin,
                                       [](int64_t p, const Segment&s) { return p < s.end; });
         first != first_output_.end() && first->begin < segment.end; ++first) {
      if (first->tree == segment.tree) continue;
      return Error(rank, absl::StrCat("output element ", std::max(segment.begin, first->begin), " is reduced as ",
                                      trees_.ToString(segment.tree), ", on rank 0 as ", trees_.ToString(first->tree)));
    }
    return absl::OkStatus();
  }

  absl::Status CheckEnds() const {
    if (!races_.has_value()) return absl::OkStatus();
    for (int rank = 0; rank < spec_.ranks; ++rank) {
      if (races_->AccessAfterEnd(rank) >= 0) {
        return Error(rank, "another rank may access the memory of this rank after it has left the collective");
      }
      for (int other = 0; spec_.kind == CollectiveKind::kBarrier && other < spec_.ranks; ++other) {
        if (other == rank || races_->KnowsAtEnd(rank, other)) continue;
        return Error(rank, absl::StrCat("may leave the barrier before rank ", other, " has entered"));
      }
    }
    return absl::OkStatus();
  }

  static constexpr absl::string_view kRace =
      "accesses elements in a race with another operation: no message or signal orders the two";

  const CollectiveSpec& spec_;
  const absl::Span<const Schedule> schedules_;
  const CheckOptions options_;
  const bool in_place_;
  const bool waits_in_place_;
  ReductionTrees trees_;
  std::vector<InPlaceOffsets> offsets_;
  std::vector<int64_t> next_;           // The index of the next operation of each rank.
  std::vector<int64_t> sent_;           // The number of elements sent by each rank.
  std::vector<int64_t> control_depth_;  // The largest depth of the messages without elements that each rank received.
  std::vector<bool> is_ready_;
  std::vector<int> woken_;  // The ranks that the last operation may have unblocked.
  std::vector<std::array<Segments, 3>> memories_;
  std::vector<std::vector<Place>> in_flight_;  // The places of the messages in flight, by sender.
  absl::flat_hash_map<LinkKey, std::deque<Message>> links_;
  absl::flat_hash_map<LinkKey, std::deque<RaceDetector::Clock>> signals_;
  absl::flat_hash_map<LinkKey, int> threads_;  // The threads by rank and channel.
  std::optional<RaceDetector> races_;          // Nullopt if there cannot be races.
  Segments first_output_;                      // The output of rank 0 in an AllReduce.
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
  if (!in_place) return Execution(spec, schedules, options, Sharing::kSeparate).Run();
  if (!InPlaceOffsetsOf(spec, 0).valid) {
    return absl::InternalError("schedules are marked in place, but the kind has no layout in place");
  }
  XLAD_ASSIGN_OR_RETURN(const ScheduleCosts first, Execution(spec, schedules, options, Sharing::kInPlace).Run());
  XLAD_ASSIGN_OR_RETURN(ScheduleCosts costs, Execution(spec, schedules, options, Sharing::kWaits).Run());
  costs.waited_for_slots = costs.waited_for_slots || first.waited_for_slots;
  return costs;
}

absl::Status CheckPlan(const CollectivePlan& plan, const CollectiveSpec& spec, const CheckOptions& options) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<Schedule> schedules, BuildSchedules(plan, spec));
  XLAD_ASSIGN_OR_RETURN(const ScheduleCosts costs, CheckSchedules(spec, schedules, options));
  return CheckFormulas(plan, spec, costs);
}

absl::Status CheckFormulas(const CollectivePlan& plan, const CollectiveSpec& spec, const ScheduleCosts& costs) {
  XLAD_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(plan.algorithm));
  const AlgorithmCost formula = algorithm->cost(plan, spec);
  // The formulas are exact if all parts have the same size, and upper bounds otherwise.
  int64_t power = 1;  // The largest power of two that is at most the number of ranks.
  while (power * 2 <= spec.ranks) power *= 2;
  const int64_t parts = 2 * power * spec.ranks * plan.chunks * plan.channels;
  const bool exact = spec.sizes.empty() && spec.input_elements() > 0 && spec.input_elements() % parts == 0;
  const bool sent_fits =
      exact ? costs.max_sent_elements == formula.sent_elements : costs.max_sent_elements <= formula.sent_elements;
  const bool rounds_fit = exact ? costs.rounds == formula.rounds : costs.rounds <= formula.rounds;
  if (sent_fits && rounds_fit) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("plan ", plan.ToString(), " of ", spec.ToString(), ": schedules send ",
                                          costs.max_sent_elements, " elements in ", costs.rounds,
                                          " rounds, expected by the formula ", exact ? "" : "at most ",
                                          formula.sent_elements, " in ", formula.rounds));
}

}  // namespace xlad::collectives
