#include "hlo/eval/lapack.h"

#include <cstring>

#include "absl/strings/str_join.h"
#include "hlo/eval/reducer.h"

namespace xlad::hlo::eval {
namespace {

// The type to which arrays of type `type` are converted before they are passed to a routine.
ElementType ComputeType(ElementType type) {
  return tensor::IsInteger(type) ? ElementType::kS32 : DoublePrecisionOf(type);
}

std::vector<tensor::Shape> ResultShapes(const Shape& shape) {
  std::vector<tensor::Shape> shapes;
  if (shape.is_array()) return {shape.array()};
  for (const Shape& element : shape.tuple()) shapes.push_back(element.is_array() ? element.array() : tensor::Shape());
  return shapes;
}

Dims WithoutBatch(const Dims& dims, const Dims& batch) { return Dims(dims.begin() + batch.size(), dims.end()); }

}  // namespace

const LapackFunction* FindLapackFunction(absl::string_view target) {
  const std::optional<tensor::LapackCall> call = tensor::ParseLapackTarget(target);
  if (!call.has_value()) return nullptr;
  for (const auto& table : {LapackFactorFunctions(), LapackSpectralFunctions()}) {
    for (const LapackFunction& function : table) {
      if (function.name == call->routine) return &function;
    }
  }
  return nullptr;
}

std::string LapackTargets() {
  std::vector<std::string> names;
  for (const auto& table : {LapackFactorFunctions(), LapackSpectralFunctions()}) {
    for (const LapackFunction& function : table) names.push_back(absl::StrCat("lapack_*", function.name, "_ffi"));
  }
  return absl::StrJoin(names, ", ");
}

absl::StatusOr<Value> EvalLapack(const Operation& operation, const LapackFunction& function) {
  const std::string& target = operation.attributes().custom_call_target;
  tensor::LapackCall call = *tensor::ParseLapackTarget(target);
  std::vector<tensor::Shape> operands;
  for (const Value& operand : operation.operands) {
    if (operand.is_tuple()) return absl::InvalidArgumentError("found a tuple as operand, expected arrays");
    operands.push_back(operand.shape());
  }
  XLAD_RETURN_IF_ERROR(Annotate(CheckLapackShapes(operands, ResultShapes(operation.shape()), &call), target));
  LapackProblem problem;
  problem.config = &operation.attributes().backend_config;
  std::vector<Value> ins;
  std::vector<Array> outs;
  for (const Value& operand : operation.operands) ins.push_back(ConvertTo(operand, ComputeType(operand.type())));
  for (const tensor::Shape& shape : ResultShapes(operation.shape())) {
    outs.emplace_back(tensor::Shape{ComputeType(shape.type), shape.dims});
  }
  for (const Value& in : ins) problem.in_dims.push_back(WithoutBatch(in.dims(), call.batch));
  for (const Array& out : outs) problem.out_dims.push_back(WithoutBatch(out.shape().dims, call.batch));
  const int64_t problems = tensor::Product(call.batch);
  for (int64_t b = 0; b < problems; ++b) {
    problem.in.clear();
    problem.out.clear();
    for (const Value& in : ins) problem.in.push_back(in.bytes().data() + b * (in.shape().bytes() / problems));
    for (Array& out : outs) problem.out.push_back(out.bytes().data() + b * (out.shape().bytes() / problems));
    const absl::Status status = (tensor::IsComplex(call.type) ? function.complex : function.real)(problem);
    if (!status.ok()) return Annotate(status, target);
  }
  std::vector<Value> values;
  const std::vector<tensor::Shape> results = ResultShapes(operation.shape());
  for (const int64_t i : tensor::Indices(outs)) values.push_back(ConvertTo(Value(std::move(outs[i])), results[i].type));
  return PackResults(std::move(values), operation.shape().is_tuple());
}

}  // namespace xlad::hlo::eval
