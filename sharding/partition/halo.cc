#include "sharding/partition/halo.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "hlo/analysis/constants.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

bool AllEqual(const Dims& values) {
  return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == values[0]; });
}

// Cuts and pads one dimension: what is to be added at the ends may be negative.
Instruction* PadDim(hlo::Builder& builder, Instruction* x, int64_t dim, hlo::PaddingDimension ends,
                    Instruction* value) {
  if (ends == hlo::PaddingDimension{}) return x;
  std::vector<hlo::PaddingDimension> padding(x->shape().dims().size());
  padding[dim] = ends;
  return builder.Pad(x, value, std::move(padding));
}

// One exchange in the making.
class Fetcher {
 public:
  Fetcher(Emitter& emitter, const Fetch& fetch, const HaloNeed& need)
      : emitter_(emitter), builder_(emitter.builder()), array_(fetch.array), dim_(fetch.dim), fill_(fetch.fill),
        why_(fetch.why), along_(fetch.along()), need_(need), plan_(PlanHalo(need)) {}

  Instruction* Run() {
    for (const HaloRound& round : plan_.rounds) received_.push_back(Exchange(round));
    Instruction* x = plan_.slots.empty() ? Written() : SideBySide();
    if (fill_ == nullptr || !needs_mask_) return x;
    Instruction* real = IndexInside(emitter_, along_, need_.starts, x->shape().dims(),
                                    {std::max<int64_t>(need_.first, 0), std::min(need_.limit, need_.size)});
    return builder_.Select(real, x, builder_.Full(x->shape(), fill_));
  }

 private:
  Instruction* Exchange(const HaloRound& round);
  Instruction* SideBySide();
  Instruction* SlotValue(const HaloSlot& slot);
  Instruction* Written();
  void FindMask(int64_t left);
  bool IsShared(int round) const {
    return std::count_if(plan_.slots.begin(), plan_.slots.end(),
                         [&](const HaloSlot& slot) { return slot.round == round; }) > 1;
  }
  bool Receives(const HaloSlot& slot, int64_t k) const {
    return slot.round >= 0 && plan_.rounds[slot.round].source[k] ==
                                  k + slot.delta;
  }
  Instruction* Zero() { return builder_.Scalar(array_.local->shape().type(), 0); }

  Emitter& emitter_;
  hlo::Builder& builder_;
  const LocalArray& array_;
  const int64_t dim_;
  Instruction* fill_;
  const Why& why_;
  const Along along_;
  const HaloNeed& need_;
  const HaloPlan plan_;
  std::vector<Instruction*> received_;
  bool needs_mask_ = false;
};

Instruction* Fetcher::Exchange(const HaloRound& round) {
  const std::string key = absl::StrCat("halo/", dim_, "/", need_.shard, "/", round.length, "/",
                                       absl::StrJoin(round.source, ","), "/", absl::StrJoin(round.offset, ","));
  Instruction*& made = emitter_.Made(array_.local, key);
  if (made != nullptr) return made;
  Dims sent;
  for (int64_t source : round.source) {
    if (source >= 0) sent.push_back(round.offset[source]);
  }
  const Dims offsets = AllEqual(sent) ? Dims(round.offset.size(), sent[0]) : round.offset;
  Instruction* piece = SliceByPosition(emitter_, array_.local, along_, offsets, round.length);
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const std::vector<int64_t>& group : emitter_.mesh().Groups(along_.axes)) {
    for (size_t k = 0; k < group.size(); ++k) {
      if (round.source[k] >= 0) pairs.emplace_back(group[round.source[k]], group[k]);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  Instruction* received = emitter_.Exchange(array_, piece, std::move(pairs), along_.axes, why_);
  emitter_.Made(array_.local, key) = received;
  return received;
}

// The part of a round's piece that the slot has. Where several slots share a round, shards that receive for another
// slot get zeros, as if nothing had come.
Instruction* Fetcher::SlotValue(const HaloSlot& slot) {
  if (slot.delta == 0) return array_.local;
  const size_t d = dim_;
  if (slot.round < 0) {
    Dims dims = array_.local->shape().dims();
    dims[d] = slot.length;
    return builder_.Zero(hlo::Shape(array_.local->shape().type(), dims));
  }
  Instruction* x = received_[slot.round];
  const int64_t more = x->shape().dims()[d] - slot.length;
  x = slot.delta < 0 ? PadDim(builder_, x, dim_, {-more, 0}, Zero()) : PadDim(builder_, x, dim_, {0, -more}, Zero());
  if (!IsShared(slot.round)) return x;
  Dims receives;
  for (int64_t k = 0; k < need_.shards(); ++k) receives.push_back(Receives(slot, k) ? 1 : 0);
  Instruction* flag = builder_.Compare(hlo::Comparison::kEq, ByPosition(emitter_, along_.axes, receives),
                                       builder_.Scalar(ElementType::kS32, 1));
  return builder_.Select(builder_.Full(hlo::Shape(ElementType::kPred, x->shape().dims()), flag), x,
                         builder_.Zero(x->shape()));
}

// Whether something that is nobody's holds what is not `fill_`: only pieces that did not come are zeros by themselves.
// `left` is the length of the pieces left of the own shard.
void Fetcher::FindMask(int64_t left) {
  const bool zero = fill_ != nullptr && IsZero(*fill_);
  for (int64_t k = 0; k < need_.shards() && !needs_mask_; ++k) {
    int64_t index = k * need_.shard - left;
    for (const HaloSlot& slot : plan_.slots) {
      const int64_t start = need_.starts[k];
      const int64_t begin = std::max(index, start), end = std::min(index + slot.length, start + need_.length);
      index += slot.length;
      if (zero && slot.delta != 0 && !Receives(slot, k)) continue;
      for (int64_t i = begin; i < end; ++i) needs_mask_ |= !need_.IsReal(i);
    }
  }
}

Instruction* Fetcher::SideBySide() {
  std::vector<Instruction*> parts;
  int64_t left = 0, total = 0;
  for (const HaloSlot& slot : plan_.slots) {
    parts.push_back(SlotValue(slot));
    total += slot.length;
    if (slot.delta < 0) left += slot.length;
  }
  FindMask(left);
  Instruction* x = parts.size() == 1 ? parts[0] : builder_.Concatenate(parts, dim_);
  Dims offsets;
  for (int64_t k = 0; k < need_.shards(); ++k) {
    offsets.push_back(need_.starts[k] - (k * need_.shard - left));
  }
  Instruction* value = fill_ != nullptr ? fill_ : Zero();
  if (AllEqual(offsets)) return PadDim(builder_, x, dim_, {-offsets[0], offsets[0] + need_.length - total}, value);
  // Windows may reach beyond what there is, where nothing is anybody's.
  const auto [least, most] = std::minmax_element(offsets.begin(), offsets.end());
  const int64_t low = std::max<int64_t>(0, -*least), high = std::max<int64_t>(0, *most + need_.length - total);
  x = PadDim(builder_, x, dim_, {low, high}, value);
  for (int64_t& offset : offsets) offset += low;
  return SliceByPosition(emitter_, x, along_, offsets, need_.length);
}

// Writes every piece where it belongs, into a buffer with room at both ends for what lies partly or wholly outside.
Instruction* Fetcher::Written() {
  const size_t d = dim_;
  const int64_t room = need_.shard;
  Dims dims = array_.local->shape().dims();
  dims[d] = room + need_.length + room;
  Instruction* buffer = builder_.Zero(hlo::Shape(array_.local->shape().type(), dims));
  const auto write = [&](Instruction* piece, const Dims& begins) {
    const int64_t length = piece->shape().dims()[d];
    Dims places;
    bool used = false;
    for (size_t k = 0; k < begins.size(); ++k) {
      const int64_t place = begins[k] - need_.starts[k] + room;
      const bool overlaps = begins[k] >= 0 && place + length > room && place < room + need_.length;
      places.push_back(overlaps ? place : 0);
      used |= overlaps;
    }
    if (!used) return;
    std::vector<Instruction*> starts(dims.size(), builder_.Scalar(ElementType::kS32, 0));
    starts[d] = ByPosition(emitter_, along_.axes, places);
    buffer = builder_.DynamicUpdateSlice(buffer, piece, starts);
  };
  Dims own;
  for (int64_t k = 0; k < need_.shards(); ++k) own.push_back(k * need_.shard);
  write(array_.local, own);
  for (size_t r = 0; r < plan_.rounds.size(); ++r) {
    Dims begins;
    for (int64_t source : plan_.rounds[r].source) {
      begins.push_back(source < 0 ? -1 : source * need_.shard + plan_.rounds[r].offset[source]);
    }
    write(received_[r], begins);
  }
  for (int64_t start : need_.starts) {
    for (int64_t i = start; i < start + need_.length; ++i) needs_mask_ |= !need_.IsReal(i);
  }
  return PadDim(builder_, buffer, dim_, {-room, -room}, Zero());
}

}  // namespace

Instruction* ByPosition(Emitter& emitter, const AxisList& axes, const Dims& values) {
  hlo::Builder& builder = emitter.builder();
  const auto scalar = [&](int64_t value) { return builder.Scalar(ElementType::kS32, static_cast<double>(value)); };
  if (AllEqual(values)) return scalar(values[0]);
  const int64_t step = values[1] - values[0];
  bool affine = true;
  for (size_t k = 0; k < values.size(); ++k) affine &= values[k] == values[0] + static_cast<int64_t>(k) * step;
  Instruction* position = emitter.Position(axes);
  if (!affine) {
    const std::vector<int32_t> table(values.begin(), values.end());
    Instruction* all = builder.Constant(
        tensor::Array::FromValues<int32_t>(ElementType::kS32, {std::ssize(values)}, table));
    return builder.Reshape(builder.DynamicSlice(all, {position}, {1}), {});
  }
  if (step != 1) position = builder.Binary(Opcode::kMultiply, position, scalar(step));
  return values[0] == 0 ? position : builder.Binary(Opcode::kAdd, position, scalar(values[0]));
}

Instruction* IndexInside(Emitter& emitter, const Along& along, const Dims& starts, const Dims& dims,
                         IndexRange range) {
  hlo::Builder& builder = emitter.builder();
  const auto [first, limit] = range;
  const int64_t length = dims[along.dim];
  const hlo::Shape shape(ElementType::kS32, {length});
  Instruction* index = builder.Binary(Opcode::kAdd, builder.Iota(shape, 0),
                                      builder.Full(shape, ByPosition(emitter, along.axes, starts)));
  const auto bound = [&](hlo::Comparison comparison, int64_t value) {
    return builder.Compare(comparison, index,
                           builder.Full(shape, builder.Scalar(ElementType::kS32, static_cast<double>(value))));
  };
  const auto [least, most] = std::minmax_element(starts.begin(), starts.end());
  const bool below = *least < first, above = *most + length > limit;
  Instruction* inside = above || !below ? bound(hlo::Comparison::kLt, limit) : bound(hlo::Comparison::kGe, first);
  if (above && below) inside = builder.Binary(Opcode::kAnd, inside, bound(hlo::Comparison::kGe, first));
  return builder.Broadcast(inside, dims, {along.dim});
}

Instruction* SliceByPosition(Emitter& emitter, Instruction* x, const Along& along, const Dims& starts, int64_t size) {
  hlo::Builder& builder = emitter.builder();
  const size_t d = along.dim;
  Dims sizes = x->shape().dims();
  if (AllEqual(starts)) {
    if (starts[0] == 0 && size == sizes[d]) return x;
    Dims begin(sizes.size(), 0), end = sizes;
    begin[d] = starts[0];
    end[d] = starts[0] + size;
    return builder.Slice(x, begin, end);
  }
  sizes[d] = size;
  std::vector<Instruction*> begins(sizes.size(), builder.Scalar(ElementType::kS32, 0));
  begins[d] = ByPosition(emitter, along.axes, starts);
  return builder.DynamicSlice(x, begins, sizes);
}

Instruction* Emitter::Exchange(const LocalArray& from, Instruction* piece,
                               std::vector<std::pair<int64_t, int64_t>> pairs, const AxisList& axes, const Why& why) {
  builder_.set_template(why.op);
  collective_id_ = program_->next_collective_id++;
  Instruction* received = builder_.CollectivePermute(piece, std::move(pairs), collective_id_);
  ReshardStep step;
  step.kind = ReshardStep::Kind::kPermute;
  step.axes = axes;
  Record(received, from, step, from.sharding, why);
  return received;
}

Instruction* Emitter::GatherParts(const LocalArray& from, Instruction* piece, int64_t dim, const AxisList& axes,
                                  const Why& why) {
  builder_.set_template(why.op);
  collective_id_ = program_->next_collective_id++;
  Instruction* all = builder_.AllGather(piece, dim, GroupsOf(axes), collective_id_);
  ReshardStep step;
  step.kind = ReshardStep::Kind::kAllGather;
  step.axes = axes;
  Record(all, from, step, from.sharding, why);
  return all;
}

Instruction* FetchHalo(Emitter& emitter, const Fetch& fetch, const HaloNeed& need) {
  return Fetcher(emitter, fetch, need).Run();
}

}  // namespace xlad::sharding
