// Inference for collectives. Sizes that depend on the number of devices are checked only if the program determines this
// number. A header with one replica and one partition does not determine it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/infer/rules.h"

namespace xlad::hlo {
namespace {

// The size of the first group, or 0 if there are no groups or if the size overflows.
int64_t FirstGroupSize(const ReplicaGroups& groups) {
  if (groups.iota.has_value()) return groups.iota->dims.empty() ? 0 : groups.iota->dims.back();
  if (!groups.groups.empty()) return std::ssize(groups.groups[0]);
  if (!groups.mesh_axes.has_value()) return 0;
  int64_t size = 1;
  for (const auto& axis : groups.mesh_axes->axes) {
    int64_t part = axis.size;
    for (const auto& [name, whole] : groups.mesh_axes->mesh) {
      if (part == 0 && name == axis.name) part = whole;
    }
    if (__builtin_mul_overflow(size, part, &size)) return 0;
  }
  return size;
}

// Result number i of `shape`, which is a single shape or a tuple of `count` shapes.
const Shape* ResultPart(const Shape& shape, int64_t count, int64_t i) {
  if (count == 1 && !shape.is_tuple()) return &shape;
  if (!shape.is_tuple() || std::ssize(shape.tuple()) != count) return nullptr;
  return &shape.tuple()[i];
}

std::vector<Shape> PlainOperands(const Instruction& i) {
  std::vector<Shape> shapes;
  for (const Instruction* const operand : i.operands()) shapes.push_back(Plain(operand->shape()));
  return shapes;
}

absl::Status CheckCollectiveReducer(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectCalled(i, 1));
  // The reducer is applied to each operand separately. Its parameters must have the element type of the first operand.
  const std::vector<ElementType> type = {i.operand(0)->shape().type()};
  return ExpectReducer(i, 0, type, type);
}

// Operands grow (all-gather) or shrink (reduce-scatter) along dimensions[0] by a factor, which follows from the given
// result and must be the size of a group.
Inferred Resized(const Instruction& i, const Shape& given, bool grows) {
  const absl::string_view label = grows ? "all-gather-sizes" : "reduce-scatter-sizes";
  if (i.dimensions().size() != 1) {
    return Violation("collective-dimension", absl::StrCat("dimensions=", Brief(i.dimensions())), "one dimension");
  }
  const int64_t along = i.dimensions()[0];
  const int64_t group = GroupSize(i);
  std::vector<Shape> results;
  for (int64_t k = 0; k < i.operand_count(); ++k) {
    const Shape& x = i.operand(k)->shape();
    XLAD_RETURN_IF_ERROR(ExpectDimension("collective-dimension", along, x.ndim()));
    const Shape* const result = ResultPart(given, i.operand_count(), k);
    if (result == nullptr || !result->is_array() || result->ndim() != x.ndim()) {
      return Violation(label, Brief(given),
                       absl::StrCat("as many results as operands, with the dimensions of ", Brief(x)));
    }
    const int64_t large = grows ? result->dim(along) : x.dim(along);
    const int64_t small = grows ? x.dim(along) : result->dim(along);
    const bool divides = small == 0 ? large == 0 : large % small == 0;
    if (!divides || (group > 0 && small > 0 && large / small != group)) {
      return Violation(
          label, absl::StrCat("sizes ", x.dim(along), " to ", result->dim(along), " in dimension ", along),
          group > 0 ? absl::StrCat("a factor of ", group, ", the size of a group") : std::string("an integer factor"));
    }
    Dims dims = x.dims();
    dims[along] = result->dim(along);
    results.emplace_back(x.type(), std::move(dims));
  }
  return OneOrTuple(std::move(results));
}

// A count of one means that the header does not determine the number of devices.
int64_t UnlessOne(int64_t devices) { return devices == 1 ? 0 : devices; }

}  // namespace

GroupIds IdsOf(const Instruction& i) {
  if (!i.attributes().channel_id.has_value()) return GroupIds::kReplica;
  if (i.attributes().use_global_device_ids) return GroupIds::kGlobal;
  switch (i.opcode()) {
    case Opcode::kAllReduce:
    case Opcode::kAllReduceStart:
    case Opcode::kReduceScatter:
    case Opcode::kAllGather:
    case Opcode::kAllGatherStart:
    case Opcode::kCollectiveReduce:
      return GroupIds::kReplicaAllPartitions;
    default:
      return GroupIds::kPartition;
  }
}

int64_t GroupSize(const Instruction& i) {
  const Computation* const computation = i.parent();
  const Module* const module = computation == nullptr ? nullptr : computation->parent();
  // The verifier refuses counts above this limit; the limit avoids overflow below.
  const auto bounded = [](int64_t count) { return std::clamp<int64_t>(count, 1, 1 << 24); };
  const int64_t replicas = module == nullptr ? 1 : bounded(module->replica_count);
  const int64_t partitions = module == nullptr ? 1 : bounded(module->num_partitions);
  const int64_t stated = FirstGroupSize(i.attributes().replica_groups);
  int64_t all = 0;
  switch (IdsOf(i)) {
    case GroupIds::kReplica:
      all = replicas;
      break;
    case GroupIds::kPartition:
      all = partitions;
      break;
    case GroupIds::kGlobal:
      all = replicas * partitions;
      break;
    // A replica id denotes all partitions of the replica.
    case GroupIds::kReplicaAllPartitions:
      all = UnlessOne(replicas * partitions);
      return all > 0 && stated > 0 ? stated * partitions : all;
  }
  return stated > 0 ? stated : UnlessOne(all);
}

Inferred InferDeviceId(const Instruction&) { return Shape(ElementType::kU32, {}); }

Inferred InferAllReduce(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  XLAD_RETURN_IF_ERROR(CheckCollectiveReducer(i));
  return OneOrTuple(PlainOperands(i));
}

Inferred InferReduceScatter(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  XLAD_RETURN_IF_ERROR(CheckCollectiveReducer(i));
  return Resized(i, i.shape(), false);
}

Inferred InferAllGather(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  return Resized(i, i.shape(), true);
}

// The result is (operand, result); if there are several operands, both are tuples.
Inferred InferAllGatherStart(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  if (!i.shape().is_tuple() || i.shape().tuple().size() != 2) {
    return Violation("all-gather-start-result", Brief(i.shape()), "(operands, results)");
  }
  XLAD_ASSIGN_OR_RETURN(Shape results, Resized(i, i.shape().tuple()[1], true));
  return Shape::Tuple({OneOrTuple(PlainOperands(i)), std::move(results)});
}

Inferred InferAllGatherDone(const Instruction& i) {
  const Shape& x = i.operand(0)->shape();
  if (!x.is_tuple() || x.tuple().size() != 2) {
    return Violation("all-gather-done-operand", Brief(x), "(operands, results) of all-gather-start");
  }
  return Plain(x.tuple()[1]);
}

Inferred InferAllToAll(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  const int64_t group = GroupSize(i);
  if (i.dimensions().empty()) {  // Member k of the group receives operand k.
    if (group > 0 && i.operand_count() != group) {
      return Violation("all-to-all-operands", Counted(i.operand_count(), "operand"),
                       absl::StrCat("one for each of ", group, " members of a group"));
    }
    for (const Instruction* const operand : i.operands()) {
      if (!operand->shape().SameIgnoringLayout(i.operand(0)->shape())) {
        return Violation("all-to-all-same-shape",
                         absl::StrCat("operands ", Brief(i.operand(0)->shape()), " and ", Brief(operand->shape())),
                         "operands of the same shape");
      }
    }
    return Shape::Tuple(PlainOperands(i));
  }
  if (i.operand_count() != 1 || i.dimensions().size() != 1) {
    return Violation("all-to-all-operands",
                     absl::StrCat(i.operand_count(), " operands, dimensions=", Brief(i.dimensions())),
                     "one operand and one dimension, or no dimension");
  }
  const Shape& x = i.operand(0)->shape();
  XLAD_RETURN_IF_ERROR(ExpectDimension("collective-dimension", i.dimensions()[0], x.ndim()));
  if (group > 0 && x.dim(i.dimensions()[0]) % group != 0) {
    return Violation("all-to-all-sizes",
                     absl::StrCat("size ", x.dim(i.dimensions()[0]), " in dimension ", i.dimensions()[0]),
                     absl::StrCat("a multiple of ", group, ", the size of a group"));
  }
  return Shape(x.type(), x.dims());
}

// The operands are input, output, input_offsets, send_sizes, output_offsets and recv_sizes. The result has the shape of
// the output.
Inferred InferRaggedAllToAll(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 6));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  if (i.operand_count() != 6) {
    return Violation("operand-count", Counted(i.operand_count(), "operand"), "6");
  }
  const Shape& input = i.operand(0)->shape();
  const Shape& output = i.operand(1)->shape();
  bool fits = input.type() == output.type() && input.ndim() == output.ndim() && input.ndim() >= 1;
  for (int64_t d = 1; fits && d < input.ndim(); ++d) fits = input.dim(d) == output.dim(d);
  if (!fits) {
    return Violation("ragged-all-to-all-output", absl::StrCat("input ", Brief(input), " and output ", Brief(output)),
                     "the same type and sizes except in dimension 0");
  }
  for (int64_t k = 2; k < 6; ++k) {
    XLAD_RETURN_IF_ERROR(ExpectArray(i, k, kIntegers));
    if (!i.operand(k)->shape().SameIgnoringLayout(i.operand(2)->shape()) || i.operand(k)->shape().ndim() != 1) {
      return Violation("ragged-all-to-all-offsets",
                       absl::StrCat(Brief(i.operand(2)->shape()), " and ", Brief(i.operand(k)->shape())),
                       "vectors of the same shape");
    }
  }
  return Shape(output.type(), output.dims());
}

namespace {

// The in-place form has four operands: input, output, and the offsets of both.
constexpr int64_t kInPlaceOperands = 4;

bool IsInPlace(const Instruction& i) {
  return i.operand_count() == kInPlaceOperands && i.operand(2)->shape().is_tuple();
}

}  // namespace

Inferred InferCollectivePermute(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  std::vector<Shape> shapes = PlainOperands(i);
  if (IsInPlace(i)) return shapes[1];
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  return OneOrTuple(std::move(shapes));
}

// The result is (operand, result, contexts ...).
Inferred InferCollectivePermuteStart(const Instruction& i) {
  XLAD_ASSIGN_OR_RETURN(const Shape result, InferCollectivePermute(i));
  std::vector<Shape> operands = PlainOperands(i);
  std::vector<Shape> parts = {IsInPlace(i) ? operands[0] : result, result};
  const Shape& given = i.shape();
  if (!given.is_tuple() || given.tuple().size() < parts.size()) {
    return Violation("collective-permute-start-result", Brief(given), "(operand, result, contexts ...)");
  }
  for (size_t k = parts.size(); k < given.tuple().size(); ++k) parts.push_back(given.tuple()[k]);
  return Shape::Tuple(std::move(parts));
}

Inferred InferCollectivePermuteDone(const Instruction& i) {
  const Shape& x = i.operand(0)->shape();
  if (!x.is_tuple() || x.tuple().size() < 2) {
    return Violation("collective-permute-done-operand", Brief(x), "(operand, result, ...)");
  }
  return Plain(x.tuple()[1]);
}

Inferred InferCollectiveBroadcast(const Instruction& i) {
  XLAD_RETURN_IF_ERROR(ExpectOperandCount(i, 1));
  XLAD_RETURN_IF_ERROR(ExpectArrays(i));
  std::vector<Shape> shapes = PlainOperands(i);
  // If has_dynamic_root=true, the last operand has the senders of the other operands, and it has no result.
  const Shape& given = i.shape();
  const size_t results = given.is_tuple() ? given.tuple().size() : 1;
  if (shapes.size() > 1 && results == shapes.size() - 1) shapes.pop_back();
  return given.is_tuple() ? Shape::Tuple(std::move(shapes)) : OneOrTuple(std::move(shapes));
}

}  // namespace xlad::hlo
