#include "collectives/plan/mapped.h"

#include <algorithm>

#include "collectives/plan/algorithms/build.h"
#include "collectives/plan/algorithms/rows.h"

namespace xlad::collectives {
namespace {

constexpr int kFilled = 0, kReduced = 1, kRead = 2;  // The flags of signals.
constexpr int64_t kLineBytes = 64;

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Splits `all` into n parts and returns part i. Boundaries are at multiples of `align` elements from the start of
// `all`, so two ranks do not write to the same cache line. Later parts may be empty.
Range AlignedPart(Range all, int64_t n, int64_t i, int64_t align) {
  const int64_t step = (all.size() + n * align - 1) / (n * align) * align;
  return {std::min(all.end, all.begin + i * step), std::min(all.end, all.begin + (i + 1) * step)};
}

// Builds the schedule of one rank. Operations on empty regions are omitted, but signals are not. The class has more
// than 25 methods because all protocols and collectives share its helpers.
class Builder {
 public:
  Builder(const CollectiveSpec& spec, int rank) : spec_(spec), n_(spec.ranks), me_(rank) {
    schedule_.rank = rank;
    schedule_.ranks = spec.ranks;
    schedule_.input = spec.input_elements(rank);
    schedule_.output = spec.output_elements(rank);
    schedule_.in_place = InPlaceOffsetsOf(spec, rank).valid;
    align_ = std::max<int64_t>(1, kLineBytes / tensor::ByteWidth(spec.type));
    // The number of elements of the largest part if the kind has parts, otherwise of all elements.
    part_ = InputHasParts(spec.kind) || OutputHasParts(spec.kind) ? LargestPart(spec) : spec.input_elements();
  }

  Schedule Finish(int64_t scratch) {
    schedule_.scratch = scratch;
    return std::move(schedule_);
  }

  static Region In(Range at, int rank = kOwnRank) { return {ScheduleBuffer::kInput, at.begin, at.size(), rank}; }
  static Region Out(Range at, int rank = kOwnRank) { return {ScheduleBuffer::kOutput, at.begin, at.size(), rank}; }
  static Region Slot(int64_t begin, int64_t count, int rank = kOwnRank) {
    return {ScheduleBuffer::kScratch, begin, count, rank};
  }
  int Peer(int rank) const { return rank == me_ ? kOwnRank : rank; }
  bool IsRoot() const { return me_ == spec_.root; }

  void Copy(Region dst, Region src) {
    if (dst.count == 0) return;
    ScheduleOp op;
    op.kind = OpKind::kCopy;
    op.dst = dst;
    op.src = src;
    schedule_.ops.push_back(op);
  }
  void Zero(Region dst) {
    if (dst.count == 0) return;
    ScheduleOp op;
    op.kind = OpKind::kZero;
    op.dst = dst;
    schedule_.ops.push_back(op);
  }
  // Reduces the regions source(0), ..., source(n - 1) and writes the result to all of `dsts`.
  template <typename F>
  void Reduce(std::vector<Region> dsts, const F& source) {
    if (dsts[0].count == 0) return;
    ScheduleOp op;
    op.kind = spec_.mode == ReductionMode::kCanonical ? OpKind::kReduceTree : OpKind::kReduceMany;
    op.dst = dsts[0];
    op.more_dsts.assign(dsts.begin() + 1, dsts.end());
    for (int rank = 0; rank < n_; ++rank) op.sources.push_back({-1, source(rank)});
    schedule_.ops.push_back(std::move(op));
  }
  void Peers(OpKind kind, int flag, const std::vector<int>& peers) {
    for (const int peer : peers) {
      ScheduleOp op;
      op.kind = kind;
      op.peer = peer;
      op.flag = flag;
      schedule_.ops.push_back(op);
    }
  }

  // Readers returns the ranks that read the data of this rank, and Writers the ranks whose data this rank reads. Both
  // exclude this rank.
  std::vector<int> Readers() const {
    return Select([&](int peer) { return Reads(peer, me_); });
  }
  std::vector<int> Writers() const {
    return Select([&](int peer) { return Reads(me_, peer); });
  }
  std::vector<int> Others() const {
    return Select([](int) { return true; });
  }

  void OneShot() {
    if (Offers()) Copy(Slot(0, schedule_.input), In({0, schedule_.input}));
    Peers(OpKind::kSignal, kFilled, Readers());
    Peers(OpKind::kWait, kFilled, Writers());
    Consume({0, part_}, [&](int rank, int, Range at) {
      return rank == me_ && !Offers() ? In(at) : Slot(at.begin, at.size(), Peer(rank));
    });
    Peers(OpKind::kSignal, kRead, Writers());
    Peers(OpKind::kWait, kRead, Readers());
  }

  // Runs one phase, in which the data that other ranks read is copied through two slots.
  void Slots(int64_t chunks) {
    const int64_t unit = UnitSize(chunks), slot = unit * PartsInSlot();
    const auto at = [&](int64_t c) { return Range{std::min(part_, c * unit), std::min(part_, (c + 1) * unit)}; };
    const auto fill = [&](int64_t c) {
      const int64_t begin = c % 2 * slot;
      for (int i = 0; Offers() && i < PartsInSlot(); ++i) {
        if (PartsInSlot() > 1 && i == me_) continue;
        const Range range = InPart(me_, i, at(c));
        Copy(Slot(begin + i * unit, range.size()), In(range));
      }
      Peers(OpKind::kSignal, kFilled, Readers());
    };
    fill(0);
    for (int64_t c = 0; c < chunks; ++c) {
      if (c + 1 < chunks) {
        if (c >= 1) Peers(OpKind::kWait, kRead, Readers());
        fill(c + 1);
      }
      Peers(OpKind::kWait, kFilled, Writers());
      Consume(at(c), [&](int rank, int part, Range range) {
        return rank == me_ ? In(range) : Slot(c % 2 * slot + part * unit, range.size(), Peer(rank));
      });
      Peers(OpKind::kSignal, kRead, Writers());
    }
    for (int64_t c = std::max<int64_t>(0, chunks - 2); c < chunks; ++c) Peers(OpKind::kWait, kRead, Readers());
  }

  void AllReduceBySlots(int64_t chunks) {
    const int64_t unit = UnitSize(chunks);
    const int64_t result = AlignedPart({0, unit}, n_, 0, align_).size();
    const auto at = [&](int64_t c) { return Range{std::min(part_, c * unit), std::min(part_, (c + 1) * unit)}; };
    const auto fill = [&](int64_t c) {
      const Range range = at(c), own = AlignedPart(range, n_, me_, align_);
      const int64_t begin = c % 2 * unit - range.begin;
      Copy(Slot(begin + range.begin, own.begin - range.begin), In({range.begin, own.begin}));
      Copy(Slot(begin + own.end, range.end - own.end), In({own.end, range.end}));
      Peers(OpKind::kSignal, kFilled, Others());
    };
    fill(0);
    for (int64_t c = 0; c < chunks; ++c) {
      if (c + 1 < chunks) fill(c + 1);
      const Range range = at(c), own = AlignedPart(range, n_, me_, align_);
      const int64_t begin = c % 2 * unit - range.begin, reduced = 2 * unit + c % 2 * result;
      Peers(OpKind::kWait, kFilled, Others());
      Reduce({Slot(reduced, own.size()), Out(own)},
             [&](int rank) { return rank == me_ ? In(own) : Slot(begin + own.begin, own.size(), rank); });
      Peers(OpKind::kSignal, kReduced, Others());
      Peers(OpKind::kWait, kReduced, Others());
      for (const int peer : Others()) {
        const Range part = AlignedPart(range, n_, peer, align_);
        Copy(Out(part), Slot(reduced, part.size(), peer));
      }
    }
    Peers(OpKind::kSignal, kRead, Others());
    Peers(OpKind::kWait, kRead, Others());
  }

  void Windows() {
    // A rank accesses the buffers of its partners only after they have entered the collective. It leaves the collective
    // only after they have finished with its buffers.
    const std::vector<int> partners = Partners();
    Peers(OpKind::kSignal, kFilled, partners);
    Peers(OpKind::kWait, kFilled, partners);
    if (spec_.kind == CollectiveKind::kAllReduce || spec_.kind == CollectiveKind::kReduce) {
      const Range own = AlignedPart({0, part_}, n_, me_, align_);
      std::vector<Region> dsts;
      if (spec_.kind == CollectiveKind::kReduce) {
        dsts = {Out(own, Peer(spec_.root))};
      } else {
        for (int rank = 0; rank < n_; ++rank) dsts.push_back(Out(own, Peer(rank)));
      }
      Reduce(dsts, [&](int rank) { return In(own, Peer(rank)); });
    } else if (spec_.kind == CollectiveKind::kBroadcast) {
      BroadcastByWindows();
    } else if (spec_.kind == CollectiveKind::kGather) {
      Copy(Out(OutPart(spec_.root, me_, {0, part_}), Peer(spec_.root)), In(InPart(me_, 0, {0, part_})));
    } else {
      Consume({0, part_}, [&](int rank, int, Range at) { return In(at, Peer(rank)); });
    }
    Peers(OpKind::kSignal, kRead, partners);
    Peers(OpKind::kWait, kRead, partners);
  }

  // Returns the number of parts of the input that are copied through a slot.
  int64_t PartsInSlot() const { return InputHasParts(spec_.kind) ? n_ : 1; }
  int64_t UnitSize(int64_t chunks) const {
    return RoundUp(CeilDiv(part_, chunks), align_);
  }
  int64_t align() const { return align_; }

 private:
  template <typename F>
  std::vector<int> Select(const F& wanted) const {
    // The peers are ordered so that different ranks use different peers at the same time.
    std::vector<int> peers;
    for (int distance = 1; distance < n_; ++distance) {
      const int peer = (me_ + distance) % n_;
      if (wanted(peer)) peers.push_back(peer);
    }
    return peers;
  }

  // Whether `reader` needs data of `writer`, which is another rank.
  bool Reads(int reader, int writer) const {
    switch (spec_.kind) {
      case CollectiveKind::kBroadcast:
      case CollectiveKind::kScatter:
        return writer == spec_.root;
      case CollectiveKind::kReduce:
      case CollectiveKind::kGather:
        return reader == spec_.root;
      case CollectiveKind::kCollectivePermute:
      case CollectiveKind::kSendRecv:
        return std::any_of(spec_.pairs.begin(), spec_.pairs.end(),
                           [&](const RankPair& pair) { return pair.source == writer && pair.target == reader; });
      default:
        return true;
    }
  }
  bool Offers() const { return !Readers().empty(); }

  std::vector<int> Partners() const {
    // In a reduction to a root, all ranks read each other's inputs.
    if (spec_.kind == CollectiveKind::kReduce) return Others();
    return Select([&](int peer) { return Reads(peer, me_) || Reads(me_, peer); });
  }

  // Returns the elements `at` of a part of the input or output of a rank, without those past the end of the part. A
  // buffer without parts counts as one part.
  Range InPart(int rank, int part, Range at) const {
    if (!InputHasParts(spec_.kind)) return Within({0, spec_.input_elements(rank)}, at);
    return Within(PartOf(rank * n_, 1, part), at);
  }
  Range OutPart(int rank, int part, Range at) const {
    if (!OutputHasParts(spec_.kind)) return Within({0, spec_.output_elements(rank)}, at);
    return Within(PartOf(rank, n_, part), at);
  }
  static Range Within(Range part, Range at) {
    return {std::min(part.end, part.begin + at.begin), std::min(part.end, part.begin + at.end)};
  }
  // Returns part i of a buffer with several parts. In an AllToAll, the sizes of the parts are spec.sizes[first + stride
  // * i].
  Range PartOf(int64_t first, int64_t stride, int part) const {
    if (spec_.sizes.empty()) return {part * part_, (part + 1) * part_};
    if (spec_.kind != CollectiveKind::kAllToAll) first = 0, stride = 1;
    Range range;
    for (int i = 0; i <= part; ++i) range = {range.end, range.end + spec_.sizes[first + stride * i]};
    return range;
  }

  // Appends the operations of this rank on the elements `at` of each part. `source(rank, part, range)` returns the
  // region of `range` in part `part` of a rank's input.
  template <typename F>
  void Consume(Range at, const F& source) {
    const auto from = [&](int rank, int part) { return source(rank, part, InPart(rank, part, at)); };
    const auto out = [&](int part) { return Out(OutPart(me_, part, at)); };
    switch (spec_.kind) {
      case CollectiveKind::kAllReduce:
        Reduce({out(0)}, [&](int rank) { return from(rank, 0); });
        break;
      case CollectiveKind::kReduce:
        if (IsRoot()) Reduce({out(0)}, [&](int rank) { return from(rank, 0); });
        break;
      case CollectiveKind::kReduceScatter:
        Reduce({out(0)}, [&](int rank) { return from(rank, me_); });
        break;
      case CollectiveKind::kAllGather:
        for (int i = 0; i < n_; ++i) Copy(out((me_ + i) % n_), from((me_ + i) % n_, 0));
        break;
      case CollectiveKind::kGather:
        for (int rank = 0; IsRoot() && rank < n_; ++rank) Copy(out(rank), from(rank, 0));
        break;
      case CollectiveKind::kAllToAll:
        for (int i = 0; i < n_; ++i) Copy(out((me_ + i) % n_), from((me_ + i) % n_, me_));
        break;
      case CollectiveKind::kScatter:
        Copy(out(0), from(spec_.root, me_));
        break;
      case CollectiveKind::kBroadcast:
        Copy(out(0), IsRoot() ? In(at) : from(spec_.root, 0));
        break;
      case CollectiveKind::kCollectivePermute:
      case CollectiveKind::kSendRecv:
        ConsumePair(at, from);
        break;
      case CollectiveKind::kBarrier:
        break;
    }
  }

  template <typename F>
  void ConsumePair(Range at, const F& from) {
    for (const RankPair& pair : spec_.pairs) {
      if (pair.target != me_) continue;
      return Copy(Out(at), pair.source == me_ ? In(at) : from(pair.source, 0));
    }
    if (spec_.kind == CollectiveKind::kCollectivePermute) Zero(Out(at));
  }

  // The root writes the last 1 / n of each output, and the other ranks copy the rest. Apart from the copy to the root's
  // own output, all ranks then do the same amount of work.
  void BroadcastByWindows() {
    const Range all{0, part_}, last = AlignedPart(all, n_, n_ - 1, align_);
    if (!IsRoot()) return Copy(Out({0, last.begin}), In({0, last.begin}, spec_.root));
    Copy(Out(all), In(all));
    if (last.size() == 0 || n_ == 1) return;
    ScheduleOp op;
    op.kind = OpKind::kCopy;
    op.src = In(last);
    for (const int peer : Others()) op.more_dsts.push_back(Out(last, peer));
    op.dst = op.more_dsts[0];
    op.more_dsts.erase(op.more_dsts.begin());
    schedule_.ops.push_back(op);
  }

  const CollectiveSpec& spec_;
  const int64_t n_;
  const int me_;
  int64_t align_ = 1;
  int64_t part_ = 0;
  Schedule schedule_;
};

std::string Refuses(const CollectivePlan& plan, const CollectiveSpec&) {
  return plan.order.empty() ? "" : "the ranks in ascending order";
}

Schedule BuildOneShot(const CollectivePlan&, const CollectiveSpec& spec, int rank) {
  Builder builder(spec, rank);
  builder.OneShot();
  return builder.Finish(LargestInput(spec));
}

Schedule BuildSlots(const CollectivePlan& plan, const CollectiveSpec& spec, int rank) {
  Builder builder(spec, rank);
  if (spec.kind == CollectiveKind::kAllReduce) {
    builder.AllReduceBySlots(plan.chunks);
  } else {
    builder.Slots(plan.chunks);
  }
  return builder.Finish(MappedSlotsScratch(spec, plan.chunks));
}

Schedule BuildWindows(const CollectivePlan&, const CollectiveSpec& spec, int rank) {
  Builder builder(spec, rank);
  builder.Windows();
  return builder.Finish(0);
}

// There are no messages: a rank reads its share of all inputs. In a reduction, its share is 1 / n of the elements.
AlgorithmCost WindowsCost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, count = spec.input_elements();
  AlgorithmCost cost{.window_elements = count, .signal_rounds = 2};
  if (Reduces(spec.kind)) {
    cost.reduced_elements = EvenElements(plan, count, n);
    cost.window_elements = cost.reduced_elements / n * (n - 1);
  }
  return cost;
}

// Every rank copies its input once and then reads the inputs of all others.
AlgorithmCost OneShotCost(const CollectivePlan&, const CollectiveSpec& spec) {
  const int64_t n = spec.ranks, count = spec.input_elements();
  return {.reduced_elements = Reduces(spec.kind) ? n * count : 0, .window_elements = n * count, .signal_rounds = 1};
}

// The cost is that of windows, plus that of the copies to and from the slots.
AlgorithmCost SlotsCost(const CollectivePlan& plan, const CollectiveSpec& spec) {
  AlgorithmCost cost = WindowsCost(plan, spec);
  cost.window_elements += 2 * spec.input_elements();
  cost.signal_rounds = int64_t{2} * plan.chunks;
  return cost;
}

Algorithm Mapped(absl::string_view name, absl::string_view summary, decltype(Algorithm::build) build,
                 decltype(Algorithm::cost) cost) {
  return {.name = name,
          .summary = summary,
          .refuses = Refuses,
          .build = build,
          .cost = cost,
          .needs_windows = true,
          .uses_chunks = false,
          .uses_channels = false,
          .is_canonical = [](const CollectiveSpec&) { return true; },
          .reduces_once = true};
}

}  // namespace

bool IsMapped(const CollectivePlan& plan) {
  const absl::StatusOr<const Algorithm*> algorithm = FindAlgorithm(plan.algorithm);
  return algorithm.ok() && (*algorithm)->needs_windows;
}

int64_t LargestInput(const CollectiveSpec& spec) {
  int64_t largest = 0;
  for (int rank = 0; rank < spec.ranks; ++rank) largest = std::max(largest, spec.input_elements(rank));
  return largest;
}

int64_t MappedSlotsScratch(const CollectiveSpec& spec, int64_t chunks) {
  const Builder builder(spec, 0);
  const int64_t unit = builder.UnitSize(chunks);
  if (spec.kind != CollectiveKind::kAllReduce) return 2 * unit * builder.PartsInSlot();
  return 2 * unit + 2 * AlignedPart({0, unit}, spec.ranks, 0, builder.align()).size();
}

Algorithm MappedOneShotAlgorithm() {
  return Mapped(kMappedOneShot, "each rank reads the inputs of all others in shared scratch; one round", BuildOneShot,
                OneShotCost);
}

Algorithm MappedSlotsAlgorithm() {
  Algorithm slots =
      Mapped(kMappedSlots, "the data in chunks through two slots of shared scratch, which stay in the cache",
             BuildSlots, SlotsCost);
  slots.uses_chunks = true;
  return slots;
}

Algorithm MappedWindowsAlgorithm() {
  return Mapped(kMappedWindows, "single pass over the mapped memory of all ranks, without messages", BuildWindows,
                WindowsCost);
}

}  // namespace xlad::collectives
