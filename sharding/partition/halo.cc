#include "sharding/partition/halo.h"

#include <algorithm>
#include <limits>

#include "hlo/analysis/constants.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

bool AllEqual(const Dims& values) {
  return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == values[0]; });
}

// The integer type, s32 or s64, that can hold every value and every value plus `span`.
ElementType TypeOf(const Dims& values, int64_t span) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const bool narrow = *least >= std::numeric_limits<int32_t>::min() &&
                      *most <= std::numeric_limits<int32_t>::max() - span;
  return narrow ? ElementType::kS32 : ElementType::kS64;
}

// Pads one dimension. Negative amounts remove elements.
Instruction* PadDim(hlo::Builder& builder, Instruction* x, int64_t dim, hlo::PaddingDimension ends,
                    Instruction* value) {
  if (ends == hlo::PaddingDimension{}) return x;
  std::vector<hlo::PaddingDimension> padding(x->shape().dims().size());
  padding[dim] = ends;
  return builder.Pad(x, value, std::move(padding));
}

// Emits one halo exchange.
class HaloFetcher {
 public:
  HaloFetcher(LocalBuilder& local, const HaloFetch& fetch, const HaloNeed& need)
      : local_(local), builder_(local.builder()), fetch_(fetch), dim_(fetch.dim), split_(fetch.split()), need_(need),
        plan_(PlanHalo(need)) {}

  Instruction* Run() {
    for (const HaloRound& round : plan_.rounds) received_.push_back(Exchange(round));
    Instruction* x = plan_.slots.empty() ? WriteAll() : ConcatenateSlots();
    const bool mask = fetch_.fill != nullptr && (plan_.slots.empty() ? NeedsPadding() : SlotsNeedMask());
    if (!mask) return x;
    Instruction* real = IsIndexInRange(local_, split_, need_.starts, x->shape().dims(),
                                       {need_.real_first(), need_.real_limit()});
    return builder_.Select(real, x, builder_.Full(x->shape(), fetch_.fill));
  }

 private:
  Instruction* Exchange(const HaloRound& round);
  Instruction* ConcatenateSlots();
  Instruction* SlotValue(const HaloSlot& slot);
  Instruction* WriteAll();
  Instruction* Write(Instruction* buffer, Instruction* piece, const Dims& begins);
  bool NeedsPadding() const;
  bool SlotsNeedMask() const;
  int64_t LengthOfLeftSlots() const {
    int64_t left = 0;
    for (const HaloSlot& slot : plan_.slots) left += slot.delta < 0 ? slot.length : 0;
    return left;
  }
  bool SharesRound(const HaloSlot& slot) const {
    return std::count_if(plan_.slots.begin(), plan_.slots.end(),
                         [&](const HaloSlot& other) { return other.round == slot.round; }) > 1;
  }
  bool Receives(const HaloSlot& slot, int64_t k) const {
    return slot.round >= 0 && plan_.rounds[slot.round].source[k] == k + slot.delta;
  }
  ElementType element_type() const { return fetch_.array.local->shape().type(); }
  Instruction* Zero() { return builder_.Scalar(element_type(), 0); }
  // Zeros of the shard's shape, but with `length` elements along the dimension.
  Instruction* Zeros(int64_t length) {
    Dims dims = fetch_.array.local->shape().dims();
    dims[dim_] = length;
    return builder_.Zero(hlo::Shape(element_type(), dims));
  }

  LocalBuilder& local_;
  hlo::Builder& builder_;
  const HaloFetch& fetch_;
  const int64_t dim_;
  const SplitDim split_;
  const HaloNeed& need_;
  const HaloPlan plan_;
  std::vector<Instruction*> received_;
};

Instruction* HaloFetcher::Exchange(const HaloRound& round) {
  const LocalBuilder::HaloKey key{fetch_.array.local, dim_,         need_.shard, round.length,
                                  split_.axes,        round.source, round.offset};
  if (Instruction* emitted = local_.HaloPermute(key)) return emitted;
  Dims sent;
  for (int64_t source : round.source) {
    if (source >= 0) sent.push_back(round.offset[source]);
  }
  const Dims offsets = AllEqual(sent) ? Dims(round.offset.size(), sent[0]) : round.offset;
  Instruction* piece = SliceByPosition(local_, fetch_.array.local, split_, offsets, round.length);
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const std::vector<int64_t>& group : local_.mesh().Groups(split_.axes)) {
    for (size_t k = 0; k < group.size(); ++k) {
      if (round.source[k] >= 0) pairs.emplace_back(group[round.source[k]], group[k]);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  Instruction* received = local_.Permute(fetch_.array, piece, std::move(pairs), split_.axes, fetch_.cause);
  local_.HaloPermute(key) = received;
  return received;
}

// The part of the round's piece that belongs to the slot. If several slots share the round, a shard that receives for
// another slot has zeros in this slot, as if it had received nothing.
Instruction* HaloFetcher::SlotValue(const HaloSlot& slot) {
  if (slot.delta == 0) return fetch_.array.local;
  if (slot.round < 0) return Zeros(slot.length);
  Instruction* x = received_[slot.round];
  const int64_t more = x->shape().dims()[dim_] - slot.length;
  const auto ends = slot.delta < 0 ? hlo::PaddingDimension{-more, 0, 0} : hlo::PaddingDimension{0, -more, 0};
  x = PadDim(builder_, x, dim_, ends, Zero());
  if (!SharesRound(slot)) return x;
  Dims receives;
  for (int64_t k = 0; k < need_.shards(); ++k) receives.push_back(Receives(slot, k) ? 1 : 0);
  Instruction* flag =
      builder_.Compare(hlo::Comparison::kEq, ByPosition(local_, split_.axes, receives, ElementType::kS32),
                       builder_.Scalar(ElementType::kS32, 1));
  return builder_.Select(builder_.Full(hlo::Shape(ElementType::kPred, x->shape().dims()), flag), x,
                         builder_.Zero(x->shape()));
}

bool HaloFetcher::NeedsPadding() const {
  return std::any_of(need_.starts.begin(), need_.starts.end(),
                     [&](int64_t start) { return need_.HasPadding(start, start + need_.length); });
}

// Whether padding may have a value other than `fill` after concatenation. If `fill` is zero, the pieces that were not
// received need no mask, because they are zero.
bool HaloFetcher::SlotsNeedMask() const {
  const bool zero = IsZero(*fetch_.fill);
  const int64_t left = LengthOfLeftSlots();
  for (int64_t k = 0; k < need_.shards(); ++k) {
    int64_t index = k * need_.shard - left;
    for (const HaloSlot& slot : plan_.slots) {
      const int64_t begin = std::max(index, need_.starts[k]);
      const int64_t end = std::min(index + slot.length, need_.starts[k] + need_.length);
      index += slot.length;
      const bool filled = zero && slot.delta != 0 && !Receives(slot, k);
      if (!filled && need_.HasPadding(begin, end)) return true;
    }
  }
  return false;
}

Instruction* HaloFetcher::ConcatenateSlots() {
  std::vector<Instruction*> parts;
  int64_t total = 0;
  for (const HaloSlot& slot : plan_.slots) {
    parts.push_back(SlotValue(slot));
    total += slot.length;
  }
  Instruction* x = parts.size() == 1 ? parts[0] : builder_.Concatenate(parts, dim_);
  Dims offsets;
  for (int64_t k = 0; k < need_.shards(); ++k) {
    offsets.push_back(need_.starts[k] - (k * need_.shard - LengthOfLeftSlots()));
  }
  Instruction* value = fetch_.fill != nullptr ? fetch_.fill : Zero();
  if (AllEqual(offsets)) return PadDim(builder_, x, dim_, {-offsets[0], offsets[0] + need_.length - total}, value);
  // The needed elements may extend beyond the concatenated pieces. Those outside are padding.
  const auto [least, most] = std::minmax_element(offsets.begin(), offsets.end());
  const int64_t low = std::max<int64_t>(0, -*least), high = std::max<int64_t>(0, *most + need_.length - total);
  x = PadDim(builder_, x, dim_, {low, high}, value);
  for (int64_t& offset : offsets) offset += low;
  return SliceByPosition(local_, x, split_, offsets, need_.length);
}

// Writes a piece into the buffer. `begins` has, for each shard, the global index of the piece's first element, or -1 if
// the shard has no piece.
Instruction* HaloFetcher::Write(Instruction* buffer, Instruction* piece, const Dims& begins) {
  const int64_t room = need_.shard, length = piece->shape().dims()[dim_];
  Dims places;
  bool used = false;
  for (int64_t k = 0; k < need_.shards(); ++k) {
    const int64_t place = begins[k] - need_.starts[k] + room;
    const bool overlaps = begins[k] >= 0 && place + length > room && place < room + need_.length;
    places.push_back(overlaps ? place : 0);
    used |= overlaps;
  }
  if (!used) return buffer;
  const ElementType type = TypeOf(places, length);
  std::vector<Instruction*> starts(piece->shape().dims().size(), builder_.Scalar(type, 0));
  starts[dim_] = ByPosition(local_, split_.axes, places, type);
  return builder_.DynamicUpdateSlice(buffer, piece, starts);
}

// Writes every piece to its place in a buffer. The buffer has extra room for one shard at each end, because pieces may
// be partly or completely outside of the needed elements.
Instruction* HaloFetcher::WriteAll() {
  const int64_t room = need_.shard;
  Instruction* buffer = Zeros(room + need_.length + room);
  Dims own;
  for (int64_t k = 0; k < need_.shards(); ++k) own.push_back(k * need_.shard);
  buffer = Write(buffer, fetch_.array.local, own);
  for (size_t r = 0; r < plan_.rounds.size(); ++r) {
    Dims begins;
    for (int64_t source : plan_.rounds[r].source) {
      begins.push_back(source < 0 ? -1 : source * need_.shard + plan_.rounds[r].offset[source]);
    }
    buffer = Write(buffer, received_[r], begins);
  }
  return PadDim(builder_, buffer, dim_, {-room, -room}, Zero());
}

}  // namespace

Instruction* ByPosition(LocalBuilder& local, const AxisList& axes, const Dims& values, ElementType type) {
  hlo::Builder& builder = local.builder();
  if (AllEqual(values)) return builder.Scalar(type, values[0]);
  const int64_t step = values[1] - values[0];
  bool affine = true;
  for (int64_t k = 0; k < std::ssize(values); ++k) affine &= values[k] == values[0] + k * step;
  Instruction* position = local.Position(axes);
  if (!affine) {
    const Dims dims = {std::ssize(values)};
    Instruction* table =
        type == ElementType::kS64
            ? builder.Constant(tensor::Array::FromValues<int64_t>(type, dims, values))
            : builder.Constant(tensor::Array::FromValues<int32_t>(type, dims, {values.begin(), values.end()}));
    return builder.Reshape(builder.DynamicSlice(table, {position}, {1}), {});
  }
  position = builder.ConvertTo(type, position);
  if (step != 1) position = builder.Binary(Opcode::kMultiply, position, builder.Scalar(type, step));
  return values[0] == 0 ? position : builder.Binary(Opcode::kAdd, position, builder.Scalar(type, values[0]));
}

Instruction* IsIndexInRange(LocalBuilder& local, const SplitDim& split, const Dims& starts, const Dims& dims,
                            IndexRange range) {
  hlo::Builder& builder = local.builder();
  const auto [first, limit] = range;
  const int64_t length = dims[split.dim];
  const ElementType starts_type = TypeOf(starts, length);
  const ElementType type = IndexType(limit) == ElementType::kS64 ? ElementType::kS64 : starts_type;
  const hlo::Shape shape(type, {length});
  Instruction* index = builder.Binary(Opcode::kAdd, builder.Iota(shape, 0),
                                      builder.Full(shape, ByPosition(local, split.axes, starts, type)));
  const auto bound = [&](hlo::Comparison comparison, int64_t value) {
    return builder.Compare(comparison, index, builder.Full(shape, builder.Scalar(type, value)));
  };
  const auto [least, most] = std::minmax_element(starts.begin(), starts.end());
  const bool below = *least < first, above = *most + length > limit;
  Instruction* inside = above || !below ? bound(hlo::Comparison::kLt, limit) : bound(hlo::Comparison::kGe, first);
  if (above && below) inside = builder.Binary(Opcode::kAnd, inside, bound(hlo::Comparison::kGe, first));
  return builder.Broadcast(inside, dims, {split.dim});
}

Instruction* SliceByPosition(LocalBuilder& local, Instruction* x, const SplitDim& split, const Dims& starts,
                             int64_t size) {
  hlo::Builder& builder = local.builder();
  const int64_t d = split.dim;
  Dims sizes = x->shape().dims();
  if (AllEqual(starts)) {
    if (starts[0] == 0 && size == sizes[d]) return x;
    Dims begin(sizes.size(), 0), end = sizes;
    begin[d] = starts[0];
    end[d] = starts[0] + size;
    return builder.Slice(x, begin, end);
  }
  sizes[d] = size;
  const ElementType type = TypeOf(starts, size);
  std::vector<Instruction*> begins(sizes.size(), builder.Scalar(type, 0));
  begins[d] = ByPosition(local, split.axes, starts, type);
  return builder.DynamicSlice(x, begins, sizes);
}

Instruction* FetchHalo(LocalBuilder& local, const HaloFetch& fetch, const HaloNeed& need) {
  return HaloFetcher(local, fetch, need).Run();
}

}  // namespace xlad::sharding
