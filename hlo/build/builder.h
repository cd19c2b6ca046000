// Making instructions in code, with inferred shapes. For passes, the partitioner and tests.
#pragma once

#include "absl/strings/string_view.h"

#include "hlo/module.h"

namespace xlad::hlo {

// Appends to one computation. Operands must fit (XLAD_CHECKed): passes build only what is right by construction.
class Builder {
 public:
  explicit Builder(Computation* computation) : computation_(computation) {}

  Computation* computation() const { return computation_; }
  // Metadata and the base of the name for what is made next; nullptr: none.
  void set_template(const Instruction* like) { like_ = like; }

  Instruction* Parameter(int64_t number, Shape shape, absl::string_view name = "");
  Instruction* Constant(tensor::Array value);
  Instruction* Scalar(ElementType type, double value);        // Converted to the type.
  Instruction* Zero(const Shape& shape);                      // Broadcast of a scalar 0.
  Instruction* Full(const Shape& shape, Instruction* scalar);
  Instruction* Iota(Shape shape, int64_t dimension);
  Instruction* Unary(Opcode opcode, Instruction* x);
  Instruction* Binary(Opcode opcode, Instruction* x, Instruction* y);
  Instruction* Compare(Comparison comparison, Instruction* x, Instruction* y);
  Instruction* Select(Instruction* condition, Instruction* yes, Instruction* no);
  Instruction* Convert(ElementType type, Instruction* x);
  Instruction* Broadcast(Instruction* x, Dims sizes, Dims dimensions);  // dimensions: operand dim -> result dim
  Instruction* Reshape(Instruction* x, Dims sizes);
  Instruction* Transpose(Instruction* x, Dims permutation);
  Instruction* Slice(Instruction* x, Dims start, Dims limit, Dims stride = {});
  Instruction* DynamicSlice(Instruction* x, absl::Span<Instruction* const> starts, Dims sizes);
  Instruction* DynamicUpdateSlice(Instruction* x, Instruction* update, absl::Span<Instruction* const> starts);
  Instruction* Pad(Instruction* x, Instruction* value, std::vector<PaddingDimension> padding);
  Instruction* Concatenate(absl::Span<Instruction* const> parts, int64_t dimension);
  Instruction* Dot(Instruction* lhs, Instruction* rhs, DotDimensions dimensions, ElementType result);
  // `reducer` must be a computation of the same module.
  Instruction* Reduce(Instruction* x, Instruction* init, Dims dimensions, Computation* reducer);
  Instruction* PartitionId();
  Instruction* Tuple(absl::Span<Instruction* const> elements);
  Instruction* GetTupleElement(Instruction* tuple, int64_t index);
  Instruction* Call(Computation* callee, absl::Span<Instruction* const> arguments);

  // Cross-partition collectives over `groups`, with flattened ids and the given channel.
  Instruction* AllReduce(Instruction* x, Computation* reducer, ReplicaGroups groups, int64_t channel_id);
  Instruction* AllGather(Instruction* x, int64_t dimension, ReplicaGroups groups, int64_t channel_id);
  Instruction* ReduceScatter(Instruction* x, int64_t dimension, Computation* reducer, ReplicaGroups groups,
                             int64_t channel_id);
  Instruction* AllToAll(Instruction* x, int64_t split_dimension, int64_t concat_dimension, ReplicaGroups groups,
                        int64_t channel_id);
  Instruction* CollectivePermute(Instruction* x, std::vector<std::pair<int64_t, int64_t>> pairs, int64_t channel_id);

 private:
  Instruction* Add(std::unique_ptr<Instruction> instruction, absl::Span<Instruction* const> operands);

  Computation* computation_;
  const Instruction* like_ = nullptr;
};

// A computation (x, y) -> opcode(x, y) on scalars; one per (module, opcode, type), made on first use.
Computation* ScalarReducer(Module* module, Opcode opcode, ElementType type);

// The binary opcode that a reducer computation applies to its two scalar parameters, where it is just that.
std::optional<Opcode> ReducerOpcode(const Computation& reducer);

}  // namespace xlad::hlo
