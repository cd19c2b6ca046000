#include "hlo/eval/collectives.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "base/status.h"
#include "hlo/eval/reducer.h"
#include "hlo/eval/strided.h"

namespace xlad::hlo::eval {
namespace {

using Group = std::vector<Participant>;

const Value& OperandOf(const Group& group, int64_t rank, int64_t k) { return (*group[rank].operands)[k]; }

// Elementwise reduction of operand k over the group, in the group's order and in the operand's type.
absl::StatusOr<Value> ReduceOver(const Group& group, int64_t k) {
  const Computation& reducer = *group[0].instruction->called()[0];
  const ElementType type = OperandOf(group, 0, k).type();
  const auto fast = MatchReducer(reducer, type, /*wide_sums=*/false);
  if (fast.has_value()) {
    Array acc = ConvertTo(OperandOf(group, 0, k), fast->type).Take();
    for (int64_t rank = 1; rank < std::ssize(group); ++rank) {
      const Value next = ConvertTo(OperandOf(group, rank, k), fast->type);
      fast->combine(acc.bytes().data(), 1, next.bytes().data(), 1, next.elements());
    }
    return ConvertTo(Value(std::move(acc)), type);
  }
  Value first = OperandOf(group, 0, k);
  Array acc = first.Take();
  for (int64_t i = 0; i < acc.elements(); ++i) {
    Value sum = ScalarAt(OperandOf(group, 0, k), i);
    for (int64_t rank = 1; rank < std::ssize(group); ++rank) {
      XLAD_ASSIGN_OR_RETURN(sum, group[0].caller->Call(reducer, {sum, ScalarAt(OperandOf(group, rank, k), i)}));
    }
    SetElement(&acc, i, sum);
  }
  return Value(std::move(acc));
}

// Splits `value` into `parts` equal parts along `dimension` and returns part `i`.
Value PartOf(const Value& value, int64_t dimension, int64_t parts, int64_t i) {
  tensor::Shape shape = value.shape();
  int64_t& size = shape.dims[dimension];
  size /= parts;
  StridedView view = RowMajor(value.dims());
  view.offset = i * size * view.strides[dimension];
  return Value(ReadStrided(value, view, shape));
}

// For each rank, one result per operand.
using Results = std::vector<std::vector<Value>>;

absl::StatusOr<Results> AllReduce(const Group& group, const DeviceGrid&) {
  Results results(group.size());
  for (const int64_t k : tensor::Indices(*group[0].operands)) {
    XLAD_ASSIGN_OR_RETURN(const Value sum, ReduceOver(group, k));
    for (auto& result : results) result.push_back(sum);
  }
  return results;
}

// The first rank gets the reduction, and the others keep their operand.
absl::StatusOr<Results> CollectiveReduce(const Group& group, const DeviceGrid&) {
  Results results(group.size());
  for (const int64_t k : tensor::Indices(*group[0].operands)) {
    XLAD_ASSIGN_OR_RETURN(const Value sum, ReduceOver(group, k));
    for (const int64_t rank : tensor::Indices(group)) {
      results[rank].push_back(rank == 0 ? sum : OperandOf(group, rank, k));
    }
  }
  return results;
}

absl::StatusOr<Results> ReduceScatter(const Group& group, const DeviceGrid&) {
  const int64_t dimension = group[0].instruction->dimensions()[0], ranks = std::ssize(group);
  Results results(group.size());
  for (const int64_t k : tensor::Indices(*group[0].operands)) {
    XLAD_ASSIGN_OR_RETURN(const Value sum, ReduceOver(group, k));
    if (sum.dims()[dimension] % ranks != 0) {
      return absl::InvalidArgumentError(absl::StrCat("found ", sum.shape().ToString(), " to scatter over ", ranks,
                                                     " devices, expected a size of dimension ", dimension,
                                                     " that is a multiple of ", ranks));
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      results[rank].push_back(PartOf(sum, dimension, ranks, rank));
    }
  }
  return results;
}

absl::StatusOr<Results> AllGather(const Group& group, const DeviceGrid&) {
  const int64_t dimension = group[0].instruction->dimensions()[0];
  Results results(group.size());
  for (const int64_t k : tensor::Indices(*group[0].operands)) {
    std::vector<Value> parts;
    for (const int64_t rank : tensor::Indices(group)) parts.push_back(OperandOf(group, rank, k));
    const Value gathered = Concatenate(parts, dimension);
    for (auto& result : results) result.push_back(gathered);
  }
  return results;
}

// If the instruction has a dimension, each rank splits its operand into equal parts, sends part r to rank r and
// concatenates the parts that it receives. Otherwise each rank sends operand r to rank r, and the result is a tuple.
absl::StatusOr<Results> AllToAll(const Group& group, const DeviceGrid&) {
  const Dims& dimensions = group[0].instruction->dimensions();
  const auto ranks = std::ssize(group);
  Results results(group.size());
  if (dimensions.empty() || group[0].operands->size() > 1) {
    if (std::ssize(*group[0].operands) != ranks) {
      return absl::InvalidArgumentError(absl::StrCat("found ", group[0].operands->size(), " operands, expected one per",
                                                     " device of the group of ", ranks));
    }
    for (int64_t to = 0; to < ranks; ++to) {
      for (int64_t from = 0; from < ranks; ++from) results[to].push_back(OperandOf(group, from, to));
    }
    return results;
  }
  const int64_t dimension = dimensions[0];
  if (OperandOf(group, 0, 0).dims()[dimension] % ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat("found ", OperandOf(group, 0, 0).shape().ToString(),
                                                   " to split over ", ranks, " devices, expected a size of dimension ",
                                                   dimension, " that is a multiple of ", ranks));
  }
  for (int64_t to = 0; to < ranks; ++to) {
    std::vector<Value> parts;
    for (int64_t from = 0; from < ranks; ++from) {
      parts.push_back(PartOf(OperandOf(group, from, 0), dimension, ranks, to));
    }
    results[to].push_back(Concatenate(parts, dimension));
  }
  return results;
}

// A device that is not the target of any pair gets zeros.
absl::StatusOr<Results> CollectivePermute(const Group& group, const DeviceGrid& grid) {
  if (group[0].operands->size() > 1 && !group[0].instruction->shape().is_tuple()) {
    return absl::UnimplementedError(
        "found a collective-permute with slice sizes, which writes into an operand and is not evaluated; expected one "
        "without slice sizes");
  }
  Results results(group.size());
  for (const int64_t rank : tensor::Indices(group)) {
    XLAD_ASSIGN_OR_RETURN(const int64_t source, PermuteSource(*group[rank].instruction, grid, group[rank].device));
    const auto from =
        std::find_if(group.begin(), group.end(), [&](const Participant& a) { return a.device == source; });
    for (const int64_t k : tensor::Indices(*group[rank].operands)) {
      results[rank].push_back(from != group.end() ? (*from->operands)[k]
                                                  : Value(Array(OperandOf(group, rank, k).shape())));
    }
  }
  return results;
}

// All devices get the operands of the first device of the group. If has_dynamic_root=true, the last operand has one
// element per other operand: the position in the group of the device that broadcasts this operand.
absl::StatusOr<Results> CollectiveBroadcast(const Group& group, const DeviceGrid&) {
  const bool dynamic = absl::StrContains(group[0].instruction->attributes().other, "has_dynamic_root=true");
  const int64_t count = std::ssize(*group[0].operands) - (dynamic ? 1 : 0);
  Results results(group.size());
  for (int64_t k = 0; k < count; ++k) {
    int64_t root = 0;
    if (dynamic) {
      const Value& roots = OperandOf(group, 0, count);
      if (k >= roots.elements()) {
        return absl::InvalidArgumentError(
            absl::StrCat("found ", roots.elements(), " roots for ", count, " operands, expected one root per operand"));
      }
      root = IntAt(roots, k);
    }
    if (root < 0 || root >= std::ssize(group)) {
      return absl::InvalidArgumentError(
          absl::StrCat("found root ", root, ", expected a position in the group of ", group.size(), " devices"));
    }
    for (auto& result : results) result.push_back(OperandOf(group, root, k));
  }
  return results;
}

// The operands are input, output, input_offsets, send_sizes, output_offsets and recv_sizes. Offsets and sizes count
// rows, which are slices along dimension 0. Rank r sends send_sizes[t] rows of its input, beginning at row
// input_offsets[t], to rank t. Rank t stores them in its output, beginning at row output_offsets[t]. These offsets and
// sizes are those of rank r. If they have n entries per rank, entries n * t to n * t + n - 1 are for rank t.
absl::StatusOr<Results> RaggedAllToAll(const Group& group, const DeviceGrid&) {
  const auto ranks = std::ssize(group);
  Results results(group.size());
  for (int64_t to = 0; to < ranks; ++to) {
    Value output = OperandOf(group, to, 1);
    Array out = output.Take();
    const Dims out_strides = tensor::Strides(out.shape().dims);
    for (int64_t from = 0; from < ranks; ++from) {
      const Value& input = OperandOf(group, from, 0);
      const int64_t per_rank = OperandOf(group, from, 2).elements() / std::max<int64_t>(1, ranks);
      for (int64_t i = 0; i < per_rank; ++i) {
        const int64_t at = to * per_rank + i;
        const int64_t start = IntAt(OperandOf(group, from, 2), at), rows = IntAt(OperandOf(group, from, 3), at);
        const int64_t target = IntAt(OperandOf(group, from, 4), at);
        const int64_t in_rows = input.dims()[0], out_rows = out.shape().dims[0];
        if (start < 0 || rows < 0 || start > in_rows - rows || target < 0 || target > out_rows - rows) {
          return absl::InvalidArgumentError(absl::StrCat("found a copy of ", rows, " rows from row ", start, " of ",
                                                         in_rows, " to row ", target, " of ", out_rows,
                                                         ", expected rows inside both arrays"));
        }
        Dims box = input.dims();
        box[0] = rows;
        const Dims in_strides = tensor::Strides(input.dims());
        CopyStrided({input.bytes(), {start * in_strides[0], in_strides}},
                    {out.bytes(), {target * out_strides[0], out_strides}}, box, tensor::ByteWidth(input.type()));
      }
    }
    results[to].emplace_back(std::move(out));
  }
  return results;
}

struct CollectiveRow {
  Opcode opcode;
  absl::StatusOr<Results> (*function)(const Group&, const DeviceGrid&);
};

constexpr CollectiveRow kCollectivesRows[] = {
    {Opcode::kAllReduce, AllReduce},
    {Opcode::kAllReduceStart, AllReduce},
    {Opcode::kCollectiveReduce, CollectiveReduce},
    {Opcode::kReduceScatter, ReduceScatter},
    {Opcode::kAllGather, AllGather},
    {Opcode::kAllGatherStart, AllGather},
    {Opcode::kAllToAll, AllToAll},
    {Opcode::kRaggedAllToAll, RaggedAllToAll},
    {Opcode::kCollectivePermute, CollectivePermute},
    {Opcode::kCollectivePermuteStart, CollectivePermute},
    {Opcode::kCollectiveBroadcast, CollectiveBroadcast},
};

// The results of one device as a value of the instruction's shape. all-gather-start and collective-permute-start return
// (operands, results, contexts...), and the matching -done instructions select the results.
Value PackCollectiveResults(const Participant& arrival, std::vector<Value> results) {
  const Shape& shape = arrival.instruction->shape();
  const Opcode opcode = arrival.instruction->opcode();
  if (opcode != Opcode::kAllGatherStart && opcode != Opcode::kCollectivePermuteStart) {
    return PackResults(std::move(results), shape.is_tuple());
  }
  const bool tuples = shape.tuple()[0].is_tuple();
  std::vector<Value> elements = {PackResults(*arrival.operands, tuples), PackResults(std::move(results), tuples)};
  for (size_t i = 2; i < shape.tuple().size(); ++i) elements.push_back(Value::Zeros(shape.tuple()[i]));
  return Value::Tuple(std::move(elements));
}

}  // namespace

absl::StatusOr<std::vector<Value>> RunCollective(const std::vector<Participant>& group, const DeviceGrid& grid) {
  const Opcode opcode = group[0].instruction->opcode();
  const auto* const row = std::find_if(std::begin(kCollectivesRows), std::end(kCollectivesRows),
                                       [&](const CollectiveRow& r) { return r.opcode == opcode; });
  XLAD_CHECK(row != std::end(kCollectivesRows)) << ToString(opcode);
  XLAD_ASSIGN_OR_RETURN(Results results, row->function(group, grid));
  std::vector<Value> values;
  for (const int64_t rank : tensor::Indices(group)) {
    values.push_back(PackCollectiveResults(group[rank], std::move(results[rank])));
  }
  return values;
}

Value NonMemberResult(const Instruction& instruction) { return Value::Zeros(instruction.shape()); }

bool SameCollective(const Instruction& a, const Instruction& b) {
  if (&a == &b) return true;
  if (a.parent() != nullptr && b.parent() != nullptr && a.parent()->parent() == b.parent()->parent()) return false;
  const auto same_shape = [](const Instruction* x, const Instruction* y) {
    return x->shape().SameIgnoringLayout(y->shape());
  };
  return a.opcode() == b.opcode() && a.attributes().channel_id == b.attributes().channel_id &&
         a.attributes().source_target_pairs == b.attributes().source_target_pairs &&
         std::equal(a.operands().begin(), a.operands().end(), b.operands().begin(), b.operands().end(), same_shape);
}

}  // namespace xlad::hlo::eval
