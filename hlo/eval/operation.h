// What an evaluation function gets, and the table from opcode to evaluation function.
#pragma once

#include <vector>

#include "base/status.h"
#include "hlo/eval/value.h"
#include "hlo/module.h"

namespace xlad::hlo::eval {

// Runs called computations (reducers, comparators). They hold no collectives.
class Caller {
 public:
  virtual ~Caller() = default;
  virtual absl::StatusOr<Value> Call(const Computation& computation, std::vector<Value> arguments) = 0;
};

// One instruction with its operands' values. Shapes fit (the module was verified); operands may be consumed.
struct Operation {
  const Instruction& instruction;
  absl::Span<Value> operands;
  Caller& caller;

  const Value& operand(int64_t i) const { return operands[i]; }
  const Shape& shape() const { return instruction.shape(); }
  const Attributes& attributes() const { return instruction.attributes(); }
  // The i-th result's shape: of a tuple its element, else the whole.
  const tensor::Shape& result(int64_t i = 0) const {
    return shape().is_tuple() ? shape().tuple()[i].array() : shape().array();
  }
};

using EvalFunction = absl::StatusOr<Value> (*)(const Operation&);

// nullptr where the opcode has no function: then the interpreter itself runs it (control flow, collectives), or
// WhyNoEvaluator says why it has no meaning here.
EvalFunction FindEvalFunction(Opcode opcode);

// "unimplemented: add of opaque" in one wording.
absl::Status NotDefined(const Operation& operation, ElementType type);

// Families, one file each. Each adds its rows.
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
