// Makes instructions in code and infers their shapes, for passes, the partitioner and tests.
//
// Example: appends the sum of the rows of x = f32[8,4] to a computation, and makes it the root.
//
//   Builder builder(computation);
//   Instruction* x = builder.Parameter(0, Shape(ElementType::kF32, {8, 4}), "x");
//   Instruction* zero = builder.Scalar(ElementType::kF32, 0);
//   Computation* add = ScalarReducer(module, Opcode::kAdd, ElementType::kF32);
//   computation->set_root(builder.Reduce(x, zero, {0}, add));
//
// The computation then prints as
//   x = f32[8,4] parameter(0)
//   constant = f32[] constant(0)
//   ROOT reduce = f32[4] reduce(x, constant), dimensions={0}, to_apply=add_f32
#pragma once

#include <concepts>

#include "absl/strings/string_view.h"

#include "hlo/module.h"

namespace xlad::hlo {

// Appends instructions to one computation. Operands must satisfy shape inference (XLAD_CHECK), because passes make only
// programs that are correct by construction. The computation must outlive the builder. Only one thread may use a
// builder. The class has more than 25 methods because it has one for each kind of instruction.
class Builder {
 public:
  explicit Builder(Computation* computation) : computation_(computation) {}

  Computation* computation() const { return computation_; }
  // If `like` is not null, later instructions copy their metadata and the base of their name from it.
  void set_template(const Instruction* like) { like_ = like; }

  Instruction* Parameter(int64_t number, Shape shape, absl::string_view name = "");
  Instruction* Constant(tensor::Array value);
  Instruction* Scalar(ElementType type, double value);        // Converts the value to the type.
  // Does the same. An integer of an integer type is exact, although a double has only 53 bits.
  template <std::integral Integer>
  Instruction* Scalar(ElementType type, Integer value) {
    if (!tensor::IsInteger(type)) return Scalar(type, static_cast<double>(value));
    return IntegerScalar(type, static_cast<uint64_t>(value));
  }
  Instruction* Zero(const Shape& shape);                      // All elements are 0.
  Instruction* Full(const Shape& shape, Instruction* scalar);
  Instruction* Iota(Shape shape, int64_t dimension);
  Instruction* Unary(Opcode opcode, Instruction* x);
  Instruction* Binary(Opcode opcode, Instruction* x, Instruction* y);
  Instruction* Compare(Comparison comparison, Instruction* x, Instruction* y);
  Instruction* Select(Instruction* condition, Instruction* yes, Instruction* no);
  Instruction* Convert(ElementType type, Instruction* x);
  Instruction* ConvertTo(ElementType type, Instruction* x);  // Returns x if it already has the type.
  // Dimension i of x becomes dimension dimensions[i] of the result.
  Instruction* Broadcast(Instruction* x, Dims sizes, Dims dimensions);
  Instruction* Reshape(Instruction* x, Dims sizes);
  Instruction* Transpose(Instruction* x, Dims permutation);
  // Dimension d of size n becomes two dimensions, of sizes `parts` and n / parts. `parts` must divide n.
  Instruction* SplitDimension(Instruction* x, int64_t d, int64_t parts);
  // Dimension d becomes the first one. The others keep their order.
  Instruction* MoveToFront(Instruction* x, int64_t d);
  Instruction* MoveFromFront(Instruction* x, int64_t d);  // The inverse: the first dimension becomes dimension d.
  Instruction* Element(Instruction* x, int64_t i);        // Element i of the first dimension, without this dimension.
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

  // Collectives over `groups`, whose ids are global device ids. `channel_id` distinguishes the collectives of a module.
  Instruction* AllReduce(Instruction* x, Computation* reducer, ReplicaGroups groups, int64_t channel_id);
  Instruction* AllGather(Instruction* x, int64_t dimension, ReplicaGroups groups, int64_t channel_id);
  Instruction* ReduceScatter(Instruction* x, int64_t dimension, Computation* reducer, ReplicaGroups groups,
                             int64_t channel_id);
  Instruction* AllToAll(Instruction* x, int64_t split_dimension, int64_t concat_dimension, ReplicaGroups groups,
                        int64_t channel_id);
  Instruction* CollectivePermute(Instruction* x, std::vector<std::pair<int64_t, int64_t>> pairs, int64_t channel_id);

 private:
  Instruction* IntegerScalar(ElementType type, uint64_t bits);
  Instruction* Add(std::unique_ptr<Instruction> instruction, absl::Span<Instruction* const> operands);

  Computation* computation_;
  const Instruction* like_ = nullptr;
};

// The computation (x, y) -> opcode(x, y) on scalars. Adds it to the module, unless the module already has such a
// computation besides its entry.
Computation* ScalarReducer(Module* module, Opcode opcode, ElementType type);

// The opcode of a reducer that applies one binary opcode to its two scalar parameters, or nullopt for any other
// computation. The parameters may be swapped if the opcode is commutative.
std::optional<Opcode> ReducerOpcode(const Computation& reducer);

}  // namespace xlad::hlo
