// rng-bit-generator on shards. The bits of an element are a function of the key and of a counter, and the counter is a
// function of the element's index. A device whose shard consists of complete rows therefore generates its shard with
// the same op: it adds the number of counters before its first row to the counter in the state.
//
//   b = (u64[2], u32[8,6]) rng-bit-generator(s), algorithm=rng_three_fry       split [{"a"}, {}] over 4 devices
//
// has shards u32[2,6]. Two rows share a counter for each column, so device p generates its bits from the counter
// s[1] + 6 p. The new state is that of the whole array: s[1] + 24.
#include "base/rounding.h"
#include "hlo/threefry.h"
#include "sharding/partition/ops/families.h"
#include "tensor/indices.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;
using tensor::ElementType;

// The number of counters that generate an array of `dims`, which is a shard of complete rows of an array of `global`
// dimensions. Nullopt if these counters are not consecutive in the global array.
std::optional<int64_t> Counters(const Instruction& op, ElementType type, const Dims& dims, const Dims& global) {
  const int64_t elements = tensor::Product(dims);
  if (elements == 0) return 0;
  const bool wide = tensor::BitWidth(type) == 64;
  if (op.attributes().rng_algorithm == "rng_three_fry") {
    if (wide) return elements;
    const int64_t paired = hlo::ThreefryPairDimension(global);
    const bool cut = dims[0] != global[0];
    if (hlo::ThreefryPairDimension(dims) != paired || (cut && paired == 0 && dims[0] % 2 != 0)) return std::nullopt;
    return elements / dims[paired] * CeilDiv(dims[paired], 2);
  }
  const int64_t per_counter = wide ? 2 : 4;
  if (dims[0] != global[0] && elements % per_counter != 0) return std::nullopt;
  return CeilDiv(elements, per_counter);
}

// Whether the state is a key and a counter of one word (Threefry) or two words (Philox).
bool HasKnownState(const Instruction& op) {
  const hlo::Shape& state = op.operand(0)->shape();
  const int64_t words = op.attributes().rng_algorithm == "rng_three_fry" ? 2 : 3;
  return state.is_array() && state.type() == ElementType::kU64 && state.dims() == Dims{words};
}

// The state after `counters` (u64[1]) more counters have been used.
Instruction* Advanced(hlo::Builder& builder, Instruction* state, Instruction* counters) {
  const int64_t words = state->shape().dims()[0];
  Instruction* low = builder.Slice(state, {1}, {2});
  Instruction* next = builder.Binary(Opcode::kAdd, low, counters);
  std::vector<Instruction*> parts = {builder.Slice(state, {0}, {1}), next};
  if (words == 3) {
    Instruction* carry = builder.Convert(ElementType::kU64, builder.Compare(hlo::Comparison::kLt, next, low));
    parts.push_back(builder.Binary(Opcode::kAdd, builder.Slice(state, {2}, {3}), carry));
  }
  return builder.Concatenate(parts, 0);
}

}  // namespace

std::vector<bool> SplitRandomBits(const Instruction& instruction, const OpRule& rule) {
  std::vector<bool> result(rule.factors.size(), false);
  const TensorFactors& bits = rule.results.back();
  if (HasKnownState(instruction) && !bits.empty()) result[bits[0][0]] = true;
  return result;
}

absl::Status EmitRandomBits(LocalBuilder& local, LocalOp& op) {
  LocalArray& bits = op.results.back();
  const Dims& global = bits.global.dims;
  const AxisList axes = global.empty() ? AxisList{} : bits.sharding.dims[0].axes;
  std::optional<int64_t> counters;
  if (!axes.empty()) counters = Counters(*op.source, bits.global.type, LocalShape(bits).dims(), global);
  if (!counters.has_value()) {
    bits.sharding = TensorSharding::Replicated(bits.global.ndim());
    return EmitSame(local, op);
  }
  hlo::Builder& builder = local.builder();
  const auto count = [&](int64_t value) {
    return builder.Full(hlo::Shape(ElementType::kU64, {1}), builder.Scalar(ElementType::kU64, value));
  };
  Instruction* state = op.operands[0].local;
  Instruction* position = builder.Reshape(builder.Convert(ElementType::kU64, local.Position(axes)), {1});
  Instruction* start = Advanced(builder, state, builder.Binary(Opcode::kMultiply, position, count(*counters)));
  Instruction* made = local.CloneLocal(*op.source, LocalResultShape(op), {start});
  SetResults(local, op, made);
  if (op.results.size() > 1) {
    op.results[0].local = Advanced(builder, state, count(*Counters(*op.source, bits.global.type, global, global)));
  }
  return absl::OkStatus();
}

}  // namespace xlad::sharding
