// The arguments of an evaluation function, and the table from opcode to evaluation function.
#pragma once

#include <vector>

#include "base/status.h"
#include "hlo/eval/value.h"
#include "hlo/module.h"

namespace xlad::hlo::eval {

// Runs called computations (reducers, comparators), which have no collectives.
class Caller {
 public:
  virtual ~Caller() = default;
  virtual absl::StatusOr<Value> Call(const Computation& computation, std::vector<Value> arguments) = 0;
};

// An instruction with the values of its operands. The values have the operands' shapes, because the module has been
// verified. An evaluation function may move the values away.
struct Operation {
  const Instruction& instruction;
  absl::Span<Value> operands;
  Caller& caller;

  const Value& operand(int64_t i) const { return operands[i]; }
  const Shape& shape() const { return instruction.shape(); }
  const Attributes& attributes() const { return instruction.attributes(); }
  // The shape of result i: element i if the instruction's shape is a tuple, otherwise the shape itself.
  const tensor::Shape& result(int64_t i = 0) const {
    return shape().is_tuple() ? shape().tuple()[i].array() : shape().array();
  }
};

using EvalFunction = absl::StatusOr<Value> (*)(const Operation&);

// The evaluation function of an opcode, or null if the interpreter itself runs it (control flow, collectives) or it is
// not evaluated (WhyNoEvaluator has the reason).
EvalFunction FindEvalFunction(Opcode opcode);

// Returns an Unimplemented error: "atan2 is not defined for s32".
absl::Status NotDefined(const Operation& operation, ElementType type);

// The rows of the families of opcodes. To add an opcode, add a row to its family.
struct EvalRow {
  Opcode opcode;
  EvalFunction function;
};
absl::Span<const EvalRow> UnaryRows();
absl::Span<const EvalRow> UnaryMathRows();
absl::Span<const EvalRow> BinaryRows();
absl::Span<const EvalRow> SelectRows();
absl::Span<const EvalRow> ConvertRows();
absl::Span<const EvalRow> ShapeRows();
absl::Span<const EvalRow> DynamicRows();
absl::Span<const EvalRow> TupleRows();
absl::Span<const EvalRow> DotRows();
absl::Span<const EvalRow> ConvolutionRows();
absl::Span<const EvalRow> GatherRows();
absl::Span<const EvalRow> ScatterRows();
absl::Span<const EvalRow> ReduceRows();
absl::Span<const EvalRow> WindowRows();
absl::Span<const EvalRow> SortRows();
absl::Span<const EvalRow> MapRows();
absl::Span<const EvalRow> RngRows();
absl::Span<const EvalRow> FftRows();
absl::Span<const EvalRow> LinalgRows();
absl::Span<const EvalRow> BatchNormRows();
absl::Span<const EvalRow> CustomCallRows();

}  // namespace xlad::hlo::eval
